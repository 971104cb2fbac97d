/** A row about a run, and what it is made of. */
import type { ReactNode } from "react";

import type { RunSummary } from "../api/contract";
import { ForeignLine } from "../parts/foreign";
import { formatRoute } from "../route";
import { DASH, interval, percent, points, whole } from "../text/format";
import type { Placed } from "./choice";

const TONE: Readonly<Record<RunSummary["state"], string>> = { running: "live", stalled: "stale", failed: "lost", gone: "lost", ended: "", unknown: "" };

function State({ state }: Pick<RunSummary, "state">) {
  return (
    <span className={`state ${TONE[state]}`}>
      <i className="lamp" aria-hidden="true" />
      {state}
    </span>
  );
}

interface RowProps {
  readonly line: RunSummary;
  /** As the folder is called. */
  readonly name: string;
  /** The cell before the name. */
  readonly first?: ReactNode;
  /** Also where the run began. */
  readonly start?: boolean;
  /** The cells after those that every table of runs has. */
  readonly children: ReactNode;
}

export function RunRow({ line, name, first, start = false, children }: RowProps) {
  return (
    <tr>
      {first}
      <th scope="row">
        <a href={formatRoute({ page: "overview", run: line.run })}>{name}</a>
        <small>
          <ForeignLine text={line.name} limit={40} />
        </small>
      </th>
      <td>
        <State state={line.state} />
      </td>
      <td className="numeric">{whole(line.iteration)}</td>
      {start && <td className="numeric">{percent(line.start)}</td>}
      <td className="numeric">
        <Now line={line} />
      </td>
      <td className="numeric">{delta(line)}</td>
      {children}
    </tr>
  );
}

/** The newest average with the interval it lies in. */
function Now({ line }: { line: RunSummary }) {
  return (
    <>
      {percent(line.now)} <small>{interval(line.low, line.high)}</small>
      {line.now !== null && line.source === "judged" && <span className="tag">only judged</span>}
    </>
  );
}

function delta({ delta: change }: RunSummary): string {
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
