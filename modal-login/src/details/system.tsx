/** What a run uses of its machine, and where its time goes. */
import type { RunView } from "../api/contract";
import { LineChart } from "../charts/linechart";
import { type Line, TONES } from "../charts/series";
import type { Axis } from "../charts/setup";
import { ChartControls } from "../charts/view";
import { axesOf, latestOf, seriesOf } from "../overview/axes";
import { bytes, decimal, duration, whole } from "../text/format";

const NEXT = "Appears with the first iteration.";
const STEPS: readonly (readonly [string, string])[] = [
  ["attempts", "attempting and judging"],
  ["sampling", "of that, sampling"],
  ["exchange", "exchange with peers"],
  ["learning", "learning"],
  ["proposals", "difficulty and proposals"],
];

export function System({ view }: { view: RunView }) {
  const { free } = axesOf(view);
  const scale: Axis = { ...free, min: 0 };
  const steps = STEPS.map(([step, label], place): Line => ({ label, points: seriesOf(view, `seconds_${step}`), tone: TONES[place] ?? "plain", dashed: step === "sampling" }));
  const one = (name: string, label: string): Line[] => [{ label, points: seriesOf(view, name), tone: "plain", noisy: true }];
  const seconds = latestOf(view, "seconds");
  return (
    <section aria-labelledby="system">
      <h2 id="system" className="unseen">
        System
      </h2>
      <ChartControls />
      <div className="grid">
        <LineChart wide tall title="Seconds by step" now={seconds === null ? "–" : duration(seconds)} note="Of an iteration, without exams." lines={steps} axis={{ ...scale, format: duration }} empty={NEXT} />
        <LineChart title="CPU" now={decimal(latestOf(view, "cpu"), 1)} note="In cores, of the node and its child processes." lines={one("cpu", "cores")} axis={scale} empty={NEXT} />
        <LineChart title="Memory" now={bytes(latestOf(view, "memory"))} note="Resident, of the node and its child processes." lines={one("memory", "memory")} axis={{ ...scale, format: bytes }} empty={NEXT} />
        {seriesOf(view, "gpu_memory").length > 0 && (
          <LineChart title="GPU memory" now={bytes(latestOf(view, "gpu_memory"))} note="Used on its cards, by all programs." lines={one("gpu_memory", "GPU memory")} axis={{ ...scale, format: bytes }} empty={NEXT} />
        )}
        <LineChart title="Tokens a second" now={whole(latestOf(view, "tokens"))} note="Sampled by the solver." lines={one("tokens", "tokens a second")} axis={{ ...scale, format: whole }} empty={NEXT} />
      </div>
    </section>
  );
}
