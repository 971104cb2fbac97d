/** The nodes of one `swarm up` on this machine, side by side. */
import type { RunSummary, RunView } from "../api/contract";
import { latestOf } from "../overview/axes";
import { Empty } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { formatRoute, MOST_CHOSEN } from "../route";
import { count, decimal, whole } from "../text/format";
import { RunRow } from "./cells";
import { runName } from "./compare";
import { useViews } from "./views";

/** Of which peers and points are asked for. */
const MOST_ASKED = 60;

interface Props {
  readonly fleet: string;
  readonly runs: readonly RunSummary[];
}

export function SwarmPage({ fleet, runs }: Props) {
  const name = runName(fleet);
  const nodes = runs.filter((line) => line.fleet === fleet).sort((one, other) => one.run.localeCompare(other.run, "en", { numeric: true }));
  const running = nodes.filter((line) => line.running).length;
  if (nodes.length === 0) {
    return (
      <>
        <h1 tabIndex={-1}>Swarm {name}</h1>
        <Empty>
          No run of this folder is a node of it. <a href={formatRoute({ page: "runs", chosen: [] })}>All runs</a>
        </Empty>
      </>
    );
  }
  const some = nodes.slice(0, MOST_CHOSEN).map((line) => line.run);
  return (
    <>
      <h1 tabIndex={-1}>Swarm {name}</h1>
      <p className="lead">
        {count(nodes.length, "node")} on this machine, {running === 0 ? "none" : whole(running)} running.{" "}
        <a href={formatRoute({ page: "runs", chosen: some })}>{nodes.length > some.length ? `Compare the first ${some.length}` : "Compare them"} in one chart</a>
      </p>
      <div className="card">
        <Nodes nodes={nodes} runs={runs} />
      </div>
    </>
  );
}

function Nodes({ nodes, runs }: { nodes: readonly RunSummary[]; runs: readonly RunSummary[] }) {
  const asked = useViews(nodes.slice(0, MOST_ASKED).map((line) => line.run), runs);
  const [k, ...others] = new Set(nodes.flatMap(({ samples }) => (samples === null ? [] : [samples])));
  const head = [
    { key: "node", title: "node" },
    { key: "state", title: "state" },
    { key: "iteration", title: <Term of="iteration">iteration</Term>, numeric: true },
    { key: "now", title: <Term of="average">average@{others.length === 0 ? (k ?? "k") : "k"}</Term>, numeric: true },
    { key: "delta", title: "delta", numeric: true },
    { key: "reward", title: <Term of="reward">reward</Term>, numeric: true },
    { key: "peers", title: <Term of="peer">peers</Term>, numeric: true },
    { key: "points", title: <Term of="outbox">points</Term> },
  ];
  return (
    <Table label="Nodes of the swarm" head={head}>
      {nodes.map((line) => (
        <Node key={line.run} line={line} view={asked.get(line.run)?.view ?? null} />
      ))}
    </Table>
  );
}

function Node({ line, view }: { line: RunSummary; view: RunView | null }) {
  return (
    <RunRow line={line} name={runName(line.run.slice(line.fleet.length + 1))}>
      <td className="numeric">{decimal(line.reward)}</td>
      <td className="numeric">{whole(view === null ? null : latestOf(view, "peers"))}</td>
      <td>
        <Points outbox={view?.outbox ?? null} />
      </td>
    </RunRow>
  );
}

/** Submissions of points; the chain itself is only read for the leaderboard. */
function Points({ outbox }: Pick<RunView, "outbox">) {
  if (outbox === null) return "–";
  const waiting = outbox.collecting + outbox.pending;
  return [
    `${whole(outbox.accepted)} accepted`,
    ...(waiting > 0 ? [`${whole(waiting)} waiting`] : []),
    ...(outbox.refused > 0 ? [`${whole(outbox.refused)} refused`] : []),
  ].join(", ");
}
