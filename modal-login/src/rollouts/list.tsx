/** The rollouts of a run, newest first: what was tried, by whom, and what it earned. */
import { useCallback, useEffect, useState } from "react";

import type { RolloutLine } from "../api/contract";
import { getRollouts } from "../api/routes";
import { useLoaded } from "../api/use";
import { Rewards } from "../parts/bars";
import { ForeignLine } from "../parts/foreign";
import { Empty, Trouble } from "../parts/notice";
import { Term } from "../parts/term";
import { formatRoute } from "../route";
import { short, whole } from "../text/format";
import { visibleLine } from "../text/visible";

const MOST = 600;

interface Props {
  readonly run: string;
  readonly peer: string | null;
  readonly mine: boolean | null;
}

export function RolloutList({ run, peer, mine }: Props) {
  const load = useCallback(() => getRollouts(run, { before: null, peer, mine }), [run, peer, mine]);
  const { value, error, loading, reload } = useLoaded(load);
  const { lines, older, more, moreError, asking } = useOlder({ run, peer, mine }, value);
  return (
    <>
      <header className="head">
        <h1 tabIndex={-1}>Rollouts</h1>
        <button type="button" onClick={reload} disabled={loading}>
          {loading ? "Loading…" : "Refresh"}
        </button>
      </header>
      <p className="lead">
        A <Term of="rollout">rollout</Term> is a group of <Term of="attempt">attempts</Term> at one problem. Bars are the{" "}
        <Term of="reward">rewards</Term> of its attempts; a dot could not be judged.
      </p>
      <Filter run={run} peer={peer} mine={mine} />
      {error !== null && <Trouble error={error} retry={reload} />}
      {value !== null && lines.length === 0 && <Nothing peer={peer} mine={mine} />}
      {lines.length > 0 && (
        <ul className="rolls">
          {lines.map((line) => (
            <Line key={line.id} run={run} line={line} />
          ))}
        </ul>
      )}
      {moreError !== null && <Trouble error={moreError} />}
      {older !== null && lines.length < MOST && (
        <button type="button" onClick={more} disabled={asking}>
          {asking ? "Loading…" : "Show older ones"}
        </button>
      )}
    </>
  );
}

/** Pages that were asked for after the first; a new first page drops them. */
function useOlder(query: Props, first: { readonly rollouts: readonly RolloutLine[]; readonly older: number | null } | null) {
  const [pages, setPages] = useState<readonly RolloutLine[]>([]);
  const [older, setOlder] = useState<number | null>(null);
  const [moreError, setError] = useState<unknown>(null);
  const [asking, setAsking] = useState(false);
  useEffect(() => {
    setPages([]);
    setOlder(first?.older ?? null);
    setError(null);
  }, [first]);
  const more = () => {
    setAsking(true);
    getRollouts(query.run, { before: older, peer: query.peer, mine: query.mine })
      .then((page) => {
        setPages((before) => [...before, ...page.rollouts]);
        setOlder(page.older);
        setError(null);
      }, setError)
      .finally(() => setAsking(false));
  };
  return { lines: [...(first?.rollouts ?? []), ...pages], older, more, moreError, asking };
}

function Filter({ run, peer, mine }: Props) {
  const choices = [
    { name: "All", mine: null },
    { name: "This node's", mine: true },
    { name: "Peers'", mine: false },
  ];
  return (
    <nav className="filter" aria-label="Whose rollouts">
      {choices.map((choice) => (
        <a
          key={choice.name}
          href={formatRoute({ page: "rollouts", run, peer: null, mine: choice.mine })}
          aria-current={peer === null && mine === choice.mine ? "true" : undefined}
        >
          {choice.name}
        </a>
      ))}
      {peer !== null && (
        <a href={formatRoute({ page: "rollouts", run, peer: null, mine: null })} aria-current="true" aria-label="Of one peer; show all again">
          {short(visibleLine(peer, 128))} ✕
        </a>
      )}
    </nav>
  );
}

function Line({ run, line }: { run: string; line: RolloutLine }) {
  return (
    <li className="card">
      <a href={formatRoute({ page: "rollout", run, id: line.id })}>
        <ForeignLine text={line.question} />
      </a>
      <Rewards rewards={line.rewards} />
      <p className="muted">
        {line.mine ? "this node" : <ForeignLine text={line.peer_name} limit={60} />} · iteration {whole(line.iteration)} · round {whole(line.round)}
        {line.level !== null && ` · level ${line.level}`} · <ForeignLine text={line.source} limit={40} />
      </p>
    </li>
  );
}

function Nothing({ peer, mine }: { peer: string | null; mine: boolean | null }) {
  if (peer !== null) return <Empty>Nothing of this peer has been kept. Its next rollout that is taken in appears here.</Empty>;
  if (mine === false) return <Empty>No rollout of a peer has been taken in. In a swarm of one there are none.</Empty>;
  return <Empty>No rollout yet. The first ones appear with the first iteration.</Empty>;
}
