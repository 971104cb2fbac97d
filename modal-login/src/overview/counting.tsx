/** What is counted: points on their way to the chain, the rounds, and the errors that the run survived. */
import type { OutboxView, Round, RunView } from "../api/contract";
import { ForeignLine } from "../parts/foreign";
import { Empty, NotYet, Notice } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { formatRoute } from "../route";
import { decimal, moment, whole } from "../text/format";

export function Counting({ view }: { view: RunView }) {
  return (
    <section aria-labelledby="counting">
      <h2 id="counting">What is counted</h2>
      <div className="grid">
        <Points run={view.run} outbox={view.outbox} running={view.running} />
        <Rounds rounds={view.rounds} />
        <Survived tolerated={view.tolerated} />
        <Facts facts={view.facts} />
      </div>
    </section>
  );
}

function Points({ run, outbox, running }: { run: string; outbox: OutboxView | null; running: boolean }) {
  return (
    <div className="card">
      <h3>
        <Term of="points">Points</Term> and their <Term of="outbox">outbox</Term>
      </h3>
      {outbox === null ? (
        <Empty>This run counts no points on a chain.</Empty>
      ) : (
        <>
          {outbox.problem !== "" && (
            <Notice tone="alarm">
              <ForeignLine text={outbox.problem} limit={300} />
            </Notice>
          )}
          <dl className="rows">
            <Row name="collecting" value={outbox.collecting} note={running ? "rounds not submitted yet" : "rounds that its next start submits"} />
            <Row name="pending" value={outbox.pending} note={running ? "submissions on their way" : "submissions that its next start goes on with"} />
            <Row name="accepted" value={outbox.accepted} note="counted by the chain" />
            <Row name="refused" value={outbox.refused} note="refused by the contract" />
          </dl>
          <Counts label="Reasons of refusals and delays" counts={outbox.reasons} />
        </>
      )}
      <p>
        <a href={formatRoute({ page: "leaderboard", run })}>Leaderboard: who earned what</a>
      </p>
    </div>
  );
}

function Row({ name, value, note }: { name: string; value: number; note: string }) {
  return (
    <div>
      <dt>
        {name} <small>{note}</small>
      </dt>
      <dd>{whole(value)}</dd>
    </div>
  );
}

function Counts({ label, counts }: { label: string; counts: ReadonlyMap<string, number> }) {
  if (counts.size === 0) return null;
  const rows = [...counts].sort(([, a], [, b]) => b - a);
  return (
    <ul className="counts" aria-label={label}>
      {rows.slice(0, 30).map(([reason, times]) => (
        <li key={reason}>
          <span>{whole(times)} ×</span> <ForeignLine text={reason} />
        </li>
      ))}
    </ul>
  );
}

const ROUND_HEAD = [
  { key: "number", title: <Term of="round">round</Term>, numeric: true },
  { key: "began", title: "began" },
  { key: "iterations", title: "iterations", numeric: true },
  { key: "reward", title: <Term of="reward">reward</Term>, numeric: true },
] as const;

function Rounds({ rounds }: { rounds: readonly Round[] }) {
  return (
    <div className="card">
      <h3>Rounds</h3>
      {rounds.length === 0 ? (
        <NotYet>The first round appears with the first iteration.</NotYet>
      ) : (
        <div className="low">
          <Table label="Rounds, newest first" head={ROUND_HEAD}>
            {rounds.map((round) => (
              <tr key={round.number}>
                <th scope="row" className="numeric">
                  {whole(round.number)}
                </th>
                <td>{moment(round.began)}</td>
                <td className="numeric">{whole(round.iterations)}</td>
                <td className="numeric">{decimal(round.reward)}</td>
              </tr>
            ))}
          </Table>
        </div>
      )}
    </div>
  );
}

function Survived({ tolerated }: { tolerated: ReadonlyMap<string, number> }) {
  return (
    <div className="card">
      <h3>
        <Term of="tolerated">Errors survived</Term>
      </h3>
      {tolerated.size === 0 ? <Empty>None. An error that the run gets over is counted here by its kind.</Empty> : <Counts label="Errors by kind" counts={tolerated} />}
    </div>
  );
}

function Facts({ facts }: { facts: ReadonlyMap<string, string> }) {
  return (
    <div className="card">
      <h3>This run</h3>
      {facts.size === 0 && <NotYet>Models and device appear when the run has started.</NotYet>}
      <dl className="rows">
        {[...facts].slice(0, 40).map(([name, value]) => (
          <div key={name}>
            <dt>
              <ForeignLine text={name} limit={40} />
            </dt>
            <dd>
              <ForeignLine text={value} limit={120} />
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
