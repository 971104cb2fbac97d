/** Who earned what, read from the chain when somebody asks. */
import { useCallback } from "react";

import type { BoardLine } from "../api/contract";
import { getLeaderboard } from "../api/routes";
import { useLoaded } from "../api/use";
import { Copyable } from "../parts/copy";
import { ForeignLine } from "../parts/foreign";
import { Empty, Notice, Trouble } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { whole } from "../text/format";
import { visibleLine } from "../text/visible";

const HEAD = [
  { key: "place", title: "place", numeric: true },
  { key: "peer", title: "peer" },
  { key: "points", title: <Term of="points">points</Term>, numeric: true },
  { key: "rounds", title: <Term of="rounds">rounds</Term>, numeric: true },
  { key: "votes", title: <Term of="votes">votes</Term>, numeric: true },
  { key: "last", title: "last round", numeric: true },
  { key: "owner", title: <Term of="account">account</Term> },
] as const;

export function LeaderboardPage({ run }: { run: string }) {
  const load = useCallback(() => getLeaderboard(run), [run]);
  const { value, error, loading, reload } = useLoaded(load);
  return (
    <>
      <header className="head">
        <h1 tabIndex={-1}>Leaderboard</h1>
        <button type="button" onClick={reload} disabled={loading}>
          {loading ? "Reading the chain…" : "Refresh"}
        </button>
      </header>
      <p className="lead">
        What the chain says. <Term of="points">Points</Term> and <Term of="votes">votes</Term> are what peers report of themselves and of each other.
      </p>
      {error !== null && <Trouble error={error} retry={reload} />}
      {value !== null && value.problem !== "" && (
        <Notice tone="calm">
          <ForeignLine text={value.problem} limit={300} />
        </Notice>
      )}
      {value === null ? error === null && <Empty>Reading the chain… The first time can take a while.</Empty> : <Board lines={value.peers} quiet={value.problem !== ""} />}
      {value !== null && value.contract !== "" && (
        <p className="note">
          Contract <Copyable value={value.contract} label="the contract's address" /> on chain {value.chain_id ?? "unknown"}
          {value.round !== null && `, round ${whole(value.round)}`}.
        </p>
      )}
    </>
  );
}

function Board({ lines, quiet }: { lines: readonly BoardLine[]; quiet: boolean }) {
  if (lines.length === 0) return quiet ? null : <Empty>Nobody has reported points yet. The first ones come when a round is over.</Empty>;
  return (
    <div className="card">
      <Table label="Leaderboard" head={HEAD}>
        {lines.map((line, index) => (
          <tr key={line.peer_id} className={line.mine ? "mine" : ""}>
            <td className="numeric">{index + 1}</td>
            <th scope="row">
              <ForeignLine text={line.name} limit={40} /> {line.mine && <span className="tag">this node</span>}
              <Copyable value={line.peer_id} label={`the peer id of ${visibleLine(line.name, 60)}`} />
            </th>
            <td className="numeric">{whole(line.points)}</td>
            <td className="numeric">{whole(line.rounds)}</td>
            <td className="numeric">{whole(line.votes)}</td>
            <td className="numeric">{line.last_round < 0 ? "–" : whole(line.last_round)}</td>
            <td>{line.owner === "" ? "–" : <Copyable value={line.owner} label={`the account of ${visibleLine(line.name, 60)}`} />}</td>
          </tr>
        ))}
      </Table>
    </div>
  );
}
