/** Several runs over each other in one chart. */
import { useMemo, useState } from "react";

import type { RunSummary } from "../api/contract";
import { inWords } from "../api/http";
import { LineChart } from "../charts/linechart";
import { ChartControls, Charts } from "../charts/view";
import { Notice } from "../parts/notice";
import { Term } from "../parts/term";
import { formatRoute, toggled } from "../route";
import { visibleLine } from "../text/visible";
import { Swatch } from "./cells";
import { comparable, type Curve, CURVES, lineOf, type Placed, placed } from "./choice";
import { type Asked, useViews } from "./views";

/** As the folders are called. */
export const runName = (run: string): string => visibleLine(run.replaceAll("~", "/"), 60);

/** Heard at once: a second choice that follows on the heels of the first must know of it. */
export function choose(chosen: readonly string[], run: string): void {
  window.location.hash = formatRoute({ page: "runs", chosen: toggled(chosen, run) });
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export function Comparison({ chosen, runs }: { chosen: readonly string[]; runs: readonly RunSummary[] }) {
  const places = useMemo(() => placed(chosen, runName), [chosen.join()]);
  const asked = useViews(places.map(({ run }) => run), runs);
  const series = useMemo(() => new Map(places.flatMap(({ run }) => {
    const view = asked.get(run)?.view;
    return view ? [[run, view.series] as const] : [];
  })), [places, asked]);
  return (
    <section aria-labelledby="comparison">
      <h2 id="comparison">Side by side</h2>
      {places.length === 1 && <p className="note">Tick another run to lay it over this one.</p>}
      <ul className="legend" aria-label="Runs in the chart">
        {places.map((place) => (
          <li key={place.run}>
            <button type="button" className="quiet" onClick={() => choose(chosen, place.run)}>
              <Swatch tone={place.tone} dashed={place.dashed} /> Take out {place.name}
            </button>
          </li>
        ))}
      </ul>
      {places.map(({ run, name }) => <Failed key={run} name={name} error={asked.get(run)?.error ?? null} />)}
      <Charts runs={series}>
        <Overlaid places={places} asked={asked} />
      </Charts>
    </section>
  );
}

function Failed({ name, error }: { name: string; error: unknown }) {
  if (error === null) return null;
  const { what, remedy } = inWords(error);
  return (
    <Notice tone="alarm">
      <strong>
        {name}: {what}
      </strong>{" "}
      {remedy}
    </Notice>
  );
}

function Overlaid({ places, asked }: { places: readonly Placed[]; asked: ReadonlyMap<string, Asked> }) {
  const [key, setKey] = useState(CURVES[0].key);
  const curve = CURVES.find((each) => each.key === key) ?? CURVES[0];
  const { lines, axis } = useMemo(() => {
    const drawn = places.map((place) => lineOf(curve, place, asked.get(place.run)?.view ?? null));
    return { lines: drawn, axis: curve.axis(drawn.flatMap((line) => line.points)) };
  }, [places, asked, curve]);
  const waiting = places.some(({ run }) => !asked.has(run));
  return (
    <>
      <div className="controls card">
        <label>
          Curve{" "}
          <select value={curve.key} onChange={(event) => setKey(event.target.value)}>
            {CURVES.map(({ key, name }) => (
              <option key={key} value={key}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </div>
      <ChartControls />
      <LineChart
        // The scale of one curve is none for another.
        key={curve.key}
        tall
        legend
        title={<Term of={curve.term}>{curve.name}</Term>}
        note={noteOf(curve, places, asked)}
        lines={lines}
        axis={axis}
        empty={waiting ? "Loading the runs…" : "None of these runs has measured it yet."}
      />
    </>
  );
}

function noteOf(curve: Curve, places: readonly Placed[], asked: ReadonlyMap<string, Asked>): string {
  if (!curve.exam) return "Pale lines are as measured, strong ones are their trend.";
  const judged: string[] = [];
  const counts = new Set<number>();
  for (const { run, name } of places) {
    const last = comparable(asked.get(run)?.view?.exams ?? []).at(-1);
    if (last === undefined) continue;
    counts.add(last.samples);
    if (last.source === "judged") judged.push(name);
  }
  const k = counts.size === 0 ? "" : ` k is ${[...counts].join(" or ")}.`;
  const warning = judged.length === 0 ? "" : ` Only judged, nothing was executed: ${judged.join(", ")}.`;
  return `On held-out problems; bands are 95 % intervals.${k}${warning}`;
}
