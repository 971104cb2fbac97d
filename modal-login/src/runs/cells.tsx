/** What a row about a run is made of. */
import type { RunSummary } from "../api/contract";
import { DASH, interval, percent, points } from "../text/format";
import type { Placed } from "./choice";

const TONE: Readonly<Record<RunSummary["state"], string>> = { running: "live", stalled: "stale", failed: "lost", gone: "lost", ended: "", unknown: "" };

export function State({ state }: Pick<RunSummary, "state">) {
  return (
    <span className={`state ${TONE[state]}`}>
      <i className="lamp" aria-hidden="true" />
      {state}
    </span>
  );
}

/** The newest average with the interval it lies in. */
export function Now({ line }: { line: RunSummary }) {
  return (
    <>
      {percent(line.now)} <small>{interval(line.low, line.high)}</small>
      {line.now !== null && line.source === "judged" && <span className="tag">only judged</span>}
    </>
  );
}

export function delta({ delta: change }: RunSummary): string {
  return change === null ? DASH : `${change < 0 ? "−" : "+"}${points(change)}`;
}

/** How a run's line looks in the chart. */
export function Swatch({ tone, dashed }: Pick<Placed, "tone" | "dashed">) {
  return (
    <svg viewBox="0 0 24 10" width="24" height="10" aria-hidden="true" className={`tone-${tone}`}>
      <line x1="0" x2="24" y1="5" y2="5" className="swatch" strokeDasharray={dashed ? "6 3" : undefined} />
    </svg>
  );
}
