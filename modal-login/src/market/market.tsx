/** The prediction market of the nodes' judges: own bets, open games, and whether any of it is worth something. */
import { useCallback, useEffect, useState } from "react";

import type { GameLine, MarketPeer, MarketView, Worth } from "../api/market_contract";
import { getGames, getMarket } from "../api/routes";
import { useEvery, useLoaded } from "../api/use";
import { Copyable } from "../parts/copy";
import { ForeignLine } from "../parts/foreign";
import { Empty, Notice, Trouble } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { formatRoute } from "../route";
import type { TermKey } from "../text/glossary";
import { count, decimal, whole } from "../text/format";
import { visibleLine } from "../text/visible";
import { Bets, Ended, PriceCurve, signed, State, Tests } from "./lines";

const LOOK_MS = 10_000;

export function MarketPage({ run }: { run: string }) {
  const load = useCallback(() => getMarket(run), [run]);
  const { value, error, reload } = useLoaded(load);
  useEvery(LOOK_MS, reload);
  return (
    <>
      <h1 tabIndex={-1}>Judge</h1>
      <p className="lead">
        Nodes say what their judges believe of programs before anybody knows, and win or lose <Term of="playPoints">play points</Term>: no money, nothing
        to withdraw. Who was right before counts more in the price.
      </p>
      {error !== null && <Trouble error={error} retry={reload} />}
      {value === null ? error === null && <Empty>Loading…</Empty> : <Shown run={run} view={value} />}
    </>
  );
}

function Shown({ run, view }: { run: string; view: MarketView }) {
  return (
    <>
      <Notice tone="calm">
        <strong>{view.why === "" ? "This node is in the market." : "No bets:"}</strong> {view.why !== "" && <ForeignLine text={view.why} limit={300} />}
        {view.balance !== null && (
          <>
            {" "}
            It has {decimal(view.balance, 3)} <Term of="playPoints">play points</Term>
            {view.round !== null && `, in round ${whole(view.round)}`}.
          </>
        )}
      </Notice>
      {view.balance !== null && (
        <>
          <section aria-labelledby="bets">
            <h2 id="bets">Your bets</h2>
            <div className="card">
              <Bets run={run} label="Your bets" lines={view.bets} empty={`There are none${view.why === "" ? " yet: the first report is made in the round after a game is announced." : `: ${visibleLine(view.why, 300)}.`}`} />
            </div>
          </section>
          <Open run={run} lines={view.open} />
          <section aria-labelledby="settled">
            <h2 id="settled">Last settled</h2>
            <div className="card">
              <Ended run={run} label="Last settled" lines={view.settled} empty="No game has ended yet. A game is settled six rounds after it was announced." />
            </div>
          </section>
          <Believed worth={view.worth} />
          <Peers peers={view.peers} />
          <Games run={run} />
        </>
      )}
    </>
  );
}

function Open({ run, lines }: { run: string; lines: readonly GameLine[] }) {
  return (
    <section aria-labelledby="open">
      <h2 id="open">Open games</h2>
      {lines.length === 0 && <Empty>No game is open. Nodes announce games when they have judged programs; each stays open for six rounds.</Empty>}
      <div className="grid">
        {lines.map((line) => (
          <article className="card" key={line.id} aria-labelledby={`game-${line.id}`}>
            <h3 id={`game-${line.id}`}>
              <a href={formatRoute({ page: "game", run, id: line.id })}>
                <code>{line.id.slice(0, 8)}</code>
              </a>
            </h3>
            <p>
              <ForeignLine text={line.question} />
            </p>
            <p className="muted">
              <State line={line} /> · by <ForeignLine text={line.opener} limit={40} />
            </p>
            <Tests outcomes={line.evidence} />
            <PriceCurve price={line.price} title={`Price of ${line.id.slice(0, 8)} by step`} />
          </article>
        ))}
      </div>
    </section>
  );
}

const BRIER_HEAD = [
  { key: "whose", title: "whose report" },
  { key: "brier", title: <Term of="brier">Brier score</Term>, numeric: true },
];
const WHOSE: readonly (readonly [string, string, TermKey | null])[] = [
  ["own", "own judge", null],
  ["mean", "plain average", "mean"],
  ["price", "price", "price"],
];

function Believed({ worth }: { worth: Worth }) {
  return (
    <section aria-labelledby="worth">
      <h2 id="worth">Is the market worth anything here?</h2>
      <p className="sentence">{visibleLine(worth.verdict.charAt(0).toUpperCase() + worth.verdict.slice(1), 300)}.</p>
      <div className="card">
        <h3>
          <Term of="brier">Brier scores</Term> over {count(worth.games, "game")}
        </h3>
        {worth.games === 0 ? (
          <Empty>Appears when a game is settled whose truth this node knows and on which it reported.</Empty>
        ) : (
          <Table label="Brier scores" head={BRIER_HEAD}>
            {WHOSE.map(([key, name, term]) => (
              <tr key={key}>
                <th scope="row">{term === null ? name : <Term of={term}>{name}</Term>}</th>
                <td className="numeric">{decimal(worth.brier.get(key) ?? null, 3)}</td>
              </tr>
            ))}
          </Table>
        )}
        {worth.difference !== null && (
          <p className="note">
            Price less own judge: {signed(worth.difference)} [{signed(worth.low)}, {signed(worth.high)}], game by game; below 0 the price is better.
          </p>
        )}
      </div>
    </section>
  );
}

const PEER_HEAD = [
  { key: "peer", title: "peer" },
  { key: "games", title: "games", numeric: true },
  { key: "gain", title: <Term of="gain">gain</Term>, numeric: true },
  { key: "balance", title: <Term of="playPoints">play points</Term>, numeric: true },
  { key: "vote", title: <Term of="vote">vote</Term> },
];

function Peers({ peers }: { peers: readonly MarketPeer[] }) {
  return (
    <section aria-labelledby="records">
      <h2 id="records">Whose judge is worth what</h2>
      <div className="card">
        {peers.length === 0 ? (
          <Empty>No peer has a record yet. Records come from settled games.</Empty>
        ) : (
          <Table label="Peers by record" head={PEER_HEAD}>
            {peers.map((peer) => (
              <tr key={peer.peer_id} className={peer.own ? "mine" : ""}>
                <th scope="row">
                  <ForeignLine text={peer.name} limit={40} /> {peer.own && <span className="tag">this node</span>}
                  <Copyable value={peer.peer_id} label={`the peer id of ${visibleLine(peer.name, 60)}`} />
                </th>
                <td className="numeric">{decimal(peer.games, 1)}</td>
                <td className="numeric">{signed(peer.gain, 2)}</td>
                <td className="numeric">{decimal(peer.balance, 3)}</td>
                <td className="words">{peer.no_vote === "" ? "yes" : <ForeignLine text={`no: ${peer.no_vote}`} />}</td>
              </tr>
            ))}
          </Table>
        )}
      </div>
    </section>
  );
}

const MOST = 600;

/** Read only when somebody asks. */
function Games({ run }: { run: string }) {
  const [lines, setLines] = useState<readonly GameLine[]>([]);
  const [older, setOlder] = useState<number | null>(null);
  const [state, setState] = useState<"closed" | "loading" | "shown">("closed");
  const [error, setError] = useState<unknown>(null);
  useEffect(() => (setLines([]), setOlder(null), setState("closed")), [run]);
  const more = () => {
    setState("loading");
    getGames(run, older)
      .then((page) => (setLines((before) => [...before, ...page.games]), setOlder(page.older), setError(null)), setError)
      .finally(() => setState("shown"));
  };
  return (
    <section aria-labelledby="all">
      <h2 id="all">All games</h2>
      {error !== null && <Trouble error={error} />}
      {state === "shown" && error === null && (
        <div className="card">
          <Ended run={run} label="All games" lines={lines} empty="No game has been announced yet." />
        </div>
      )}
      {(state !== "shown" || older !== null || error !== null) && lines.length < MOST && (
        <button type="button" onClick={more} disabled={state === "loading"}>
          {state === "loading" ? "Loading…" : lines.length === 0 ? "Show them" : "Show older ones"}
        </button>
      )}
    </section>
  );
}
