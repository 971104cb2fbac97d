/** All runs of this folder in a table, and those that were ticked in one chart. */
import type { RunSummary } from "../api/contract";
import { useNow } from "../api/use";
import { Sparkline } from "../parts/bars";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { formatRoute, MOST_CHOSEN } from "../route";
import { ago } from "../text/format";
import { RunRow, Swatch } from "./cells";
import { type Placed, placed } from "./choice";
import { choose, Comparison, runName } from "./compare";

const MOST_ROWS = 60;
/** More rows than these scroll by themselves, so that the chart below stays near. */
const MANY_ROWS = 12;

const HEAD = [
  { key: "compare", title: "compare" },
  { key: "run", title: "run" },
  { key: "state", title: "state" },
  { key: "iteration", title: <Term of="iteration">iteration</Term>, numeric: true },
  { key: "start", title: <Term of="average">start</Term>, numeric: true },
  { key: "now", title: <Term of="interval">now</Term>, numeric: true },
  { key: "delta", title: "delta", numeric: true },
  { key: "trend", title: "trend" },
  { key: "updated", title: "last step" },
  { key: "swarm", title: "swarm" },
] as const;

interface Props {
  readonly runs: readonly RunSummary[];
  /** The run in each place of the comparison; "" where it is free. */
  readonly chosen: readonly string[];
}

export function RunsPage({ runs, chosen }: Props) {
  const shown = runs.filter((line, index) => index < MOST_ROWS || chosen.includes(line.run));
  return (
    <>
      <h1 tabIndex={-1}>Runs</h1>
      <p className="lead">Those of this folder, the one written last first. Tick 2 to {MOST_CHOSEN} of them to see them in one chart.</p>
      <div className={shown.length > MANY_ROWS ? "card low" : "card"}>
        <RunTable runs={shown} chosen={chosen} />
      </div>
      {runs.length > shown.length && (
        <p className="note">
          These are the newest {MOST_ROWS}; <code>codezero runs</code> lists the others.
        </p>
      )}
      {chosen.some((run) => run !== "") && <Comparison chosen={chosen} runs={runs} />}
    </>
  );
}

function RunTable({ runs, chosen }: Props) {
  const now = useNow();
  const places = new Map(placed(chosen, runName).map((place) => [place.run, place]));
  return (
    <Table label="All runs" head={HEAD}>
      {runs.map((line) => (
        <Row key={line.run} line={line} place={places.get(line.run) ?? null} full={places.size >= MOST_CHOSEN} chosen={chosen} now={now} />
      ))}
    </Table>
  );
}

interface RowProps {
  readonly line: RunSummary;
  /** null: it is not in the chart. */
  readonly place: Placed | null;
  readonly full: boolean;
  readonly chosen: readonly string[];
  readonly now: number;
}

function Row({ line, place, full, chosen, now }: RowProps) {
  const name = runName(line.run);
  return (
    <RunRow line={line} name={name} start first={<Choice line={line} name={name} place={place} full={full} chosen={chosen} />}>
      <td>
        <Sparkline label={`average@${line.samples ?? "k"} of ${name}`} values={line.sparkline} />
      </td>
      <td>{ago(line.updated, now)}</td>
      <td>{line.fleet === "" ? "–" : <a href={formatRoute({ page: "swarm", fleet: line.fleet })}>{runName(line.fleet)}</a>}</td>
    </RunRow>
  );
}

function Choice({ line, name, place, full, chosen }: Omit<RowProps, "now"> & { readonly name: string }) {
  return (
    <td>
      <input
        type="checkbox"
        aria-label={`Compare ${name}`}
        title={full && place === null ? `${MOST_CHOSEN} at most: take one out first` : undefined}
        checked={place !== null}
        disabled={full && place === null}
        onChange={() => choose(chosen, line.run)}
      />{" "}
      {place !== null && <Swatch tone={place.tone} dashed={place.dashed} />}
    </td>
  );
}
