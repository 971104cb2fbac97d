/** The rollouts of a run, newest first: what was tried, by whom, and what it earned. */
import { useCallback, useEffect, useMemo, useState } from "react";

import type { RolloutLine } from "../api/contract";
import { getRollouts, type RolloutFilter } from "../api/routes";
import { useLoaded } from "../api/use";
import { Rewards } from "../parts/bars";
import { ForeignLine } from "../parts/foreign";
import { Empty, Trouble } from "../parts/notice";
import { Term } from "../parts/term";
import { EVERY, formatRoute } from "../route";
import { short, whole } from "../text/format";
import { visibleLine } from "../text/visible";

const MOST = 600;

interface Props {
  readonly run: string;
  readonly filter: RolloutFilter;
}

export function RolloutList({ run, filter: { peer, mine, level, status } }: Props) {
  const filter = useMemo(() => ({ peer, mine, level, status }), [peer, mine, level, status]);
  const load = useCallback(() => getRollouts(run, filter, null), [run, filter]);
  const { value, error, loading, reload } = useLoaded(load);
  const { lines, older, more, moreError, asking } = useOlder({ run, filter }, value);
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
      <Filter run={run} filter={filter} />
      {error !== null && <Trouble error={error} retry={reload} />}
      {value !== null && lines.length === 0 && <Nothing filter={filter} />}
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
function useOlder({ run, filter }: Props, first: { readonly rollouts: readonly RolloutLine[]; readonly older: number | null } | null) {
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
    getRollouts(run, filter, older)
      .then((page) => {
        setPages((before) => [...before, ...page.rollouts]);
        setOlder(page.older);
        setError(null);
      }, setError)
      .finally(() => setAsking(false));
  };
  return { lines: [...(first?.rollouts ?? []), ...pages], older, more, moreError, asking };
}

const WHOSE = [
  { name: "All", mine: null },
  { name: "This node's", mine: true },
  { name: "Peers'", mine: false },
] as const;
const LEVELS: readonly (readonly [string, string])[] = [1, 2, 3, 4, 5].map((level) => [String(level), `level ${level}`]);
const VERDICTS: readonly (readonly [string, string])[] = [
  ["judged", "judged"],
  ["certain_failure", "certain failure"],
  ["quarantined", "in quarantine"],
  ["unavailable", "no verdict"],
];

function Filter({ run, filter }: Props) {
  const to = (change: Partial<RolloutFilter>) => formatRoute({ page: "rollouts", run, ...filter, ...change });
  const go = (change: Partial<RolloutFilter>) => (window.location.hash = to(change));
  return (
    <div className="controls">
      <nav className="filter" aria-label="Whose rollouts">
        {WHOSE.map(({ name, mine }) => (
          <a key={name} href={to({ peer: null, mine })} aria-current={filter.peer === null && filter.mine === mine ? "true" : undefined}>
            {name}
          </a>
        ))}
        {filter.peer !== null && (
          <a href={to({ peer: null })} aria-current="true" aria-label="Of one peer; show all again">
            {short(visibleLine(filter.peer, 128))} ✕
          </a>
        )}
      </nav>
      <Choice label="Level" every="every level" value={String(filter.level ?? "")} choices={LEVELS} onChange={(level) => go({ level: level === "" ? null : Number(level) })} />
      <Choice label="With a verdict" every="every verdict" value={filter.status ?? ""} choices={VERDICTS} onChange={(status) => go({ status: status === "" ? null : status })} />
    </div>
  );
}

interface ChoiceProps {
  readonly label: string;
  /** Of the choice that leaves nothing out. */
  readonly every: string;
  readonly value: string;
  readonly choices: readonly (readonly [value: string, name: string])[];
  readonly onChange: (value: string) => void;
}

function Choice({ label, every, value, choices, onChange }: ChoiceProps) {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChange(event.target.value)}>
      <option value="">{every}</option>
      {choices.map(([value, name]) => (
        <option key={value} value={value}>
          {name}
        </option>
      ))}
    </select>
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
        {line.mine ? (
          "this node"
        ) : (
          <a href={formatRoute({ page: "rollouts", run, ...EVERY, peer: line.peer_id })} title="Only rollouts of this peer">
            <ForeignLine text={line.peer_name} limit={60} />
          </a>
        )}{" "}
        · iteration {whole(line.iteration)} · round {whole(line.round)}
        {line.level !== null && ` · level ${line.level}`} · <ForeignLine text={line.source} limit={40} />
      </p>
    </li>
  );
}

function Nothing({ filter: { peer, mine, level, status } }: { filter: RolloutFilter }) {
  if (level !== null || status !== null) return <Empty>None of the rollouts that are kept is like that.</Empty>;
  if (peer !== null) return <Empty>Nothing of this peer is kept.</Empty>;
  if (mine === false) return <Empty>No rollout of a peer has been taken in. In a swarm of one there are none.</Empty>;
  return <Empty>No rollout is kept. The first ones come with the first iteration.</Empty>;
}
