/** One game in full: what was asked, who reported what, and how it ended. */
import { useCallback } from "react";

import type { GamePage } from "../api/market_contract";
import { getGame } from "../api/routes";
import { useLoaded } from "../api/use";
import { Copyable } from "../parts/copy";
import { ForeignLine, ForeignText } from "../parts/foreign";
import { Empty, Trouble } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { formatRoute } from "../route";
import { whole } from "../text/format";
import { Answer, NONE, PriceCurve, shares, signed, State, Tests } from "./lines";

const STEPS = [1, 2, 3, 4];
const REPORTS = [{ key: "peer", title: "peer" }, ...STEPS.map((step) => ({ key: `step-${step}`, title: `step ${step}` })), { key: "win", title: <Term of="playPoints">win</Term>, numeric: true }];
const BALLOTS = [
  { key: "juror", title: "juror" },
  { key: "answer", title: "answer" },
];

export function GameDetail({ run, id }: { run: string; id: string }) {
  const load = useCallback(() => getGame(run, id), [run, id]);
  const { value, error, reload } = useLoaded(load);
  return (
    <>
      <p>
        <a href={formatRoute({ page: "market", run })}>← The market</a>
      </p>
      {error !== null && <Trouble error={error} retry={reload} />}
      {value === null ? error === null && <Empty>Loading…</Empty> : <Shown page={value} />}
    </>
  );
}

function Shown({ page }: { page: GamePage }) {
  const { line, answers } = page;
  const robust = page.line.price?.robust.at(-1) ?? [];
  return (
    <>
      <header className="head">
        <div>
          <h1 tabIndex={-1}>Game {line.id.slice(0, 8)}</h1>
          <p className="muted">
            {line.kind} · round {whole(line.round)} · by <ForeignLine text={line.opener} limit={40} /> · <State line={line} />
          </p>
        </div>
        <Copyable value={line.id} label="the game's id" />
      </header>
      <section className="card" aria-labelledby="asked">
        <h2 id="asked">What is asked</h2>
        <p className="note">
          {line.call === "" ? "Does this program pass the tests?" : page.code === "" ? "What should the call return, by this question?" : "What does this program return for the call?"}
        </p>
        <ForeignText text={page.question} label="Text of the question" />
        {page.code !== "" && <ForeignText text={page.code} code label="The program" />}
        <ForeignText text={page.tests.join("\n")} code label={line.call === "" ? "The tests" : "The call"} />
        <Tests outcomes={line.evidence} />
        <ol>
          {answers.map((answer, index) => (
            <li key={index}>
              {answer === "" ? NONE : <ForeignLine text={answer} />} {index === line.answer && <span className="tag">by the jury</span>} {index === line.truth && <span className="tag">true, as this node found</span>}
            </li>
          ))}
        </ol>
      </section>
      <div className="grid">
        <PriceCurve price={line.price} answers={line.answers} />
        <div className="card">
          <h3>What else is known</h3>
          <dl className="rows">
            <div>
              <dt>
                <Term of="robust">median of the peers</Term>
              </dt>
              <dd>{robust.length === 0 ? "–" : shares(robust.map((part) => 10_000 * part))}</dd>
            </div>
            <Row name="own attempts return" value={page.values.length === 0 ? "nothing was tried" : page.values.join(", ")} />
            <Row name="confirmed by this node" value={page.confirmed ?? "–"} />
            <Row name="the opener's solution" value={page.reference === null ? "not opened" : page.reference === "" ? "it knows none" : "below"} />
          </dl>
          {page.reference !== null && page.reference !== "" && <ForeignText text={page.reference} code label="The opener's solution" />}
        </div>
      </div>
      <Reports page={page} />
      <Ballots page={page} />
    </>
  );
}

function Row({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <ForeignLine text={value} limit={300} />
      </dd>
    </div>
  );
}

function Reports({ page }: { page: GamePage }) {
  return (
    <section aria-labelledby="reports">
      <h2 id="reports">Reports</h2>
      <div className="card">
        {page.reports.size === 0 ? (
          <Empty>No report is shown yet: what is sealed in one round is opened in the next.</Empty>
        ) : (
          <Table label="Reports by peer and step" head={REPORTS}>
            {[...page.reports].map(([peer, reports]) => (
              <tr key={peer}>
                <th scope="row">
                  <ForeignLine text={page.names.get(peer) ?? peer} limit={40} />
                </th>
                {reports.map((q, step) => (
                  <td key={step}>{q !== null ? shares(q) : page.hidden.get(peer)?.includes(step) ? "never opened" : "–"}</td>
                ))}
                <td className="numeric">{signed(page.wins.get(peer) ?? null)}</td>
              </tr>
            ))}
          </Table>
        )}
      </div>
    </section>
  );
}

function Ballots({ page }: { page: GamePage }) {
  return (
    <section aria-labelledby="ballots">
      <h2 id="ballots">Ballots</h2>
      <div className="card">
        {page.ballots.size === 0 ? (
          <Empty>No ballot is known yet. Jurors vote from the sixth round after the announcement.</Empty>
        ) : (
          <Table label="Ballots" head={BALLOTS}>
            {[...page.ballots].map(([peer, vote]) => (
              <tr key={peer}>
                <th scope="row">
                  <ForeignLine text={page.names.get(peer) ?? peer} limit={40} />
                </th>
                <td>{vote === null ? "void" : <Answer of={vote} answers={page.answers} />}</td>
              </tr>
            ))}
          </Table>
        )}
      </div>
    </section>
  );
}
