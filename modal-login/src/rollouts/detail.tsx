/** One rollout in full: the problem, its tests, the attempts and what was decided about each. */
import { useCallback } from "react";

import type { Rollout, ShownVerdict } from "../api/contract";
import { getRollout } from "../api/routes";
import { useLoaded } from "../api/use";
import { advantage, grouped } from "./attempts";
import { Meter } from "../parts/bars";
import { Copyable } from "../parts/copy";
import { ForeignLine, ForeignText } from "../parts/foreign";
import { Empty, Trouble } from "../parts/notice";
import { EVERY } from "../route";
import { Term } from "../parts/term";
import { formatRoute } from "../route";
import { count, decimal, whole } from "../text/format";

const MAX_TESTS = 50;
const PARTS = ["correctness", "structure", "adherence", "format", "cap"] as const;
const ALARMING: ReadonlySet<string> = new Set(["certain_failure", "quarantined"]);
const STATUS: Readonly<Record<string, string>> = {
  judged: "judged",
  certain_failure: "certain failure: the judge was not asked",
  quarantined: "in quarantine: it looks like an attack on the judge",
  unavailable: "no verdict: it could not be judged, which counts as nothing",
};

export function RolloutDetail({ run, id }: { run: string; id: number }) {
  const load = useCallback(() => getRollout(run, id), [run, id]);
  const { value, error, reload } = useLoaded(load);
  return (
    <>
      <p>
        <a href={formatRoute({ page: "rollouts", run, ...EVERY })}>← All rollouts</a>
      </p>
      {error !== null && <Trouble error={error} retry={reload} />}
      {value === null ? error === null && <Empty>Loading…</Empty> : <Shown rollout={value} />}
    </>
  );
}

function Shown({ rollout }: { rollout: Rollout }) {
  const { line, question, tests, attempts } = rollout;
  return (
    <>
      <header className="head">
        <div>
          <h1 tabIndex={-1}>Rollout {line.id}</h1>
          <p className="muted">
            {line.mine ? "this node" : <ForeignLine text={line.peer_name} limit={60} />} · iteration {whole(line.iteration)} · round {whole(line.round)}
            {line.level !== null && ` · level ${line.level}`} · <ForeignLine text={line.source} limit={40} />
          </p>
        </div>
        {!line.mine && line.peer_id !== "" && <Copyable value={line.peer_id} label="the peer id" />}
      </header>
      <section className="card" aria-labelledby="problem">
        <h2 id="problem">The problem</h2>
        <ForeignText text={question} label="Text of the problem" />
        <Tests tests={tests} />
      </section>
      <h2>{count(attempts.length, "attempt")}</h2>
      {grouped(attempts).map(({ attempt, numbers }) => (
        <Attempt key={numbers[0]} numbers={numbers} attempt={attempt} advantage={advantage(attempt, attempts)} />
      ))}
    </>
  );
}

function Tests({ tests }: { tests: readonly string[] }) {
  if (tests.length === 0) return <p className="note">No tests are kept with it.</p>;
  return (
    <details>
      <summary>{count(tests.length, "test")}</summary>
      {tests.slice(0, MAX_TESTS).map((test, index) => (
        <ForeignText key={index} text={test} code python="code" label={`Test ${index + 1}`} />
      ))}
      {tests.length > MAX_TESTS && <p className="note">The first {MAX_TESTS} are shown.</p>}
    </details>
  );
}

function Attempt({ numbers, attempt, advantage }: { numbers: readonly number[]; attempt: ShownVerdict; advantage: number | null }) {
  const number = numbers[0];
  const heading = `attempt-${number}`;
  return (
    <article className="attempt card" aria-labelledby={heading}>
      <header>
        <h3 id={heading}>
          Attempt {number} {numbers.length > 1 && <span title={`Attempts ${numbers.join(", ")}`}>×{numbers.length}</span>}
        </h3>
        {numbers.length > 1 && <span className="muted">the same as {numbers.slice(1).join(", ")}</span>}
        <span className={`tag ${ALARMING.has(attempt.status) ? "alarm" : ""}`}>{STATUS[attempt.status] ?? <ForeignLine text={attempt.status} limit={60} />}</span>
        {!attempt.finished && <span className="tag">cut off: it never ended by itself</span>}
      </header>
      <ForeignText text={attempt.text} code python="answer" cut={attempt.cut} label={`Text of attempt ${number}`} />
      <div className="verdict">
        <p className="earned">
          <Term of="reward">reward</Term> <strong>{decimal(attempt.reward)}</strong>
          <Term of="advantage">advantage</Term> <span className="value">{advantage !== null && advantage > 0 && "+"}{decimal(advantage)}</span>
        </p>
        <dl>
          {PARTS.map((part) => (
            <div key={part}>
              <dt>
                <Term of={part}>{part}</Term>
              </dt>
              <dd>
                {attempt[part] !== null && <Meter label={`${part} of attempt ${number}`} value={attempt[part]} text={decimal(attempt[part])} />}
                <span className="value">{decimal(attempt[part])}</span>
              </dd>
            </div>
          ))}
        </dl>
        {attempt.reasons.length > 0 && (
          <ul className="reasons" aria-label="Reasons, worst first">
            {attempt.reasons.slice(0, 20).map((reason, index) => (
              <li key={index}>
                <ForeignLine text={reason} limit={300} />
              </li>
            ))}
          </ul>
        )}
      </div>
    </article>
  );
}
