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
import { PriceCurve, share, signed, State, Tests } from "./lines";

const STEPS = [1, 2, 3, 4];
const REPORTS = [{ key: "peer", title: "peer" }, ...STEPS.map((step) => ({ key: `step-${step}`, title: `step ${step}` })), { key: "win", title: <Term of="playPoints">win</Term>, numeric: true }];

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
  const { line } = page;
  return (
    <>
      <header className="head">
        <div>
          <h1 tabIndex={-1}>Game {line.id.slice(0, 8)}</h1>
          <p className="muted">
            round {whole(line.round)} · by <ForeignLine text={line.opener} limit={40} /> · <State line={line} />
          </p>
        </div>
        <Copyable value={line.id} label="the game's id" />
      </header>
      <section className="card" aria-labelledby="asked">
        <h2 id="asked">Does this program pass the tests?</h2>
        <ForeignText text={page.question} label="Text of the question" />
        <ForeignText text={page.code} code label="The program" />
        <ForeignText text={page.tests.join("\n")} code label="The tests" />
        <Tests outcomes={line.evidence} />
      </section>
      <PriceCurve price={line.price} />
      <Reports page={page} />
    </>
  );
}

function Reports({ page }: { page: GamePage }) {
  return (
    <section aria-labelledby="reports">
      <h2 id="reports">Reports</h2>
      <div className="card">
        {page.reports.size === 0 ? (
          <Empty>No report has arrived yet: they begin in the round after the announcement.</Empty>
        ) : (
          <Table label="Reports by peer and step" head={REPORTS}>
            {[...page.reports].map(([peer, reports]) => (
              <tr key={peer}>
                <th scope="row">
                  <ForeignLine text={page.names.get(peer) ?? peer} limit={40} />
                </th>
                {reports.map((q, step) => (
                  <td key={step}>{share(q)}</td>
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
