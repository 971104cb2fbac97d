/** Which page is shown: by the session, then by the address. */
import { useCallback, useEffect, useState } from "react";

import { LoginState } from "./api/login_contract";
import { get, LOGGED_OUT } from "./api/http";
import { type Live, useLive } from "./api/live";
import { getRuns } from "./api/routes";
import { useEvery, useLoaded } from "./api/use";
import { Boundary } from "./boundary";
import { CheckpointsTab, LogTab, SettingsTab, Tabs } from "./details/tabs";
import { AccountPage } from "./login/account";
import { ClaimPage } from "./login/claim";
import { LoginPage } from "./login/enter";
import { Overview } from "./overview/overview";
import { GameDetail } from "./market/game";
import { MarketPage } from "./market/market";
import { Empty, Trouble, TroublePage } from "./parts/notice";
import { RolloutDetail } from "./rollouts/detail";
import { LeaderboardPage } from "./rollouts/leaderboard";
import { RolloutList } from "./rollouts/list";
import { type Route, useRoute } from "./route";
import { runName } from "./runs/compare";
import { RunsPage } from "./runs/runs";
import { SwarmPage } from "./runs/swarm";
import { Frame } from "./frame";

const SESSION_MS = 15_000;
const RUNS_MS = 15_000;

const getSession = () => get("/api/session", LoginState);

export function App() {
  const { value, error, reload } = useLoaded(getSession);
  const [changed, setChanged] = useState<LoginState | null>(null);
  useEffect(() => setChanged(null), [value]);
  useEvery(SESSION_MS, reload);
  useEffect(() => {
    window.addEventListener(LOGGED_OUT, reload);
    return () => window.removeEventListener(LOGGED_OUT, reload);
  }, [reload]);
  // Asked anew, too: an older answer that is still on its way must not win.
  const onSession = useCallback((next: LoginState) => (setChanged(next), reload()), [reload]);
  const session = changed ?? value;
  if (session === null) return <Frame>{error === null ? <Empty>Loading…</Empty> : <TroublePage title="The node does not answer" error={error} retry={reload} />}</Frame>;
  if (session.claimed && !session.logged_in) {
    return (
      <Frame title="Log in">
        <LoginPage session={session} onSession={onSession} />
      </Frame>
    );
  }
  return <Inside session={session} onSession={onSession} />;
}

interface InsideProps {
  readonly session: LoginState;
  readonly onSession: (session: LoginState) => void;
}

function Inside({ session, onSession }: InsideProps) {
  const route = useRoute();
  const { value, error, reload } = useLoaded(getRuns);
  useEvery(RUNS_MS, reload);
  const runs = value?.runs ?? [];
  const run = ("run" in route ? route.run : null) ?? runs[0]?.run ?? null;
  const live = useLive(route.page === "overview" || route.page === "system" ? run : null);
  const claimed = useCallback(
    (next: LoginState) => {
      onSession(next);
      window.location.hash = "#/account";
    },
    [onSession],
  );
  return (
    <Frame title={titleOf(route)} session={session} route={route} runs={runs} run={run}>
      <Boundary key={route.page}>
        {route.page === "account" ? (
          session.claimed ? (
            <AccountPage session={session} onSession={onSession} />
          ) : (
            <ClaimPage session={session} onSession={claimed} />
          )
        ) : run === null ? (
          <NoRun error={error} known={value !== null} retry={reload} />
        ) : route.page === "runs" ? (
          <RunsPage runs={runs} chosen={route.chosen} />
        ) : route.page === "swarm" ? (
          <SwarmPage fleet={route.fleet} runs={runs} />
        ) : (
          <Page route={route} run={run} live={live} />
        )}
      </Boundary>
    </Frame>
  );
}

function Page({ route, run, live }: { route: Route; run: string; live: Live }) {
  switch (route.page) {
    case "rollouts":
      return <RolloutList run={run} filter={route} />;
    case "rollout":
      return <RolloutDetail run={run} id={route.id} />;
    case "leaderboard":
      return <LeaderboardPage run={run} />;
    case "market":
      return <MarketPage run={run} />;
    case "game":
      return <GameDetail run={run} id={route.id} />;
    case "settings":
    case "log":
    case "checkpoints":
      return (
        <>
          <h1 tabIndex={-1}>{titleOf(route)}</h1>
          <p className="muted">of {runName(run)}</p>
          <Tabs run={run} page={route.page} />
          {route.page === "settings" ? <SettingsTab run={run} /> : route.page === "log" ? <LogTab run={run} /> : <CheckpointsTab run={run} />}
        </>
      );
  }
  if (live.view === null) {
    return live.problem === null ? <Empty>Loading the run…</Empty> : <TroublePage title="This run cannot be shown" error={live.problem} />;
  }
  return (
    <>
      {live.problem !== null && <Trouble error={live.problem} />}
      <Overview view={live.view} link={live.link} page={route.page === "system" ? "system" : "overview"} />
    </>
  );
}

function NoRun({ error, known, retry }: { error: unknown; known: boolean; retry: () => void }) {
  if (error !== null) return <TroublePage title="The runs cannot be listed" error={error} retry={retry} />;
  if (!known) return <Empty>Loading…</Empty>;
  return (
    <div className="narrow">
      <h1 tabIndex={-1}>No run yet</h1>
      <Empty>
        Start one with <code>./run_swarm.sh</code>. It appears here by itself within seconds: first its name, then a point on every curve with each
        iteration, and the first exam soon after.
      </Empty>
    </div>
  );
}

function titleOf(route: Route): string {
  if (route.page === "rollout") return `Rollout ${route.id}`;
  if (route.page === "game") return `Game ${route.id.slice(0, 8)}`;
  const names = { runs: "Runs", swarm: "Swarm", overview: "Overview", system: "System", settings: "Config", log: "Log", checkpoints: "Checkpoints" };
  return { ...names, market: "Judge", rollouts: "Rollouts", leaderboard: "Leaderboard", account: "Account" }[route.page];
}
