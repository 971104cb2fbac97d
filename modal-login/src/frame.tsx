/** What is around every page: the bar with its places, the choice of the run, the way to the account. */
import { type ReactNode, useEffect, useRef } from "react";

import type { RunSummary } from "./api/contract";
import type { LoginState } from "./api/login_contract";
import { EVERY, formatRoute, PLAIN, type Route } from "./route";
import { visibleLine } from "./text/visible";

interface Props {
  readonly title?: string;
  readonly session?: LoginState;
  readonly route?: Route;
  readonly runs?: readonly RunSummary[];
  /** Which one is shown. */
  readonly run?: string | null;
  readonly children: ReactNode;
}

export function Frame({ title = "", session, route, runs = [], run = null, children }: Props) {
  const main = useRef<HTMLElement>(null);
  useTitleAndFocus(title, main);
  return (
    <>
      <a
        className="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header className="bar">
        <a className="wordmark" href="#/">
          <svg viewBox="0 0 32 32" width="26" height="26" aria-hidden="true">
            <rect width="32" height="32" rx="8" />
            <path d="M7 21c4 0 5-10 9-10s4 6 9 6" />
            <circle cx="25" cy="17" r="2.6" />
          </svg>
          codezero
        </a>
        {session !== undefined && route !== undefined && (
          <>
            <Places route={route} run={run} />
            <div className="right">
              {runs.length > 1 && "run" in route && <RunPicker runs={runs} run={run} route={route} />}
              <Account session={session} current={route.page === "account"} />
            </div>
          </>
        )}
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        {children}
      </main>
    </>
  );
}

/** Whoever goes to another page hears its name and stands at its beginning; nothing happens at the first. */
function useTitleAndFocus(title: string, main: { readonly current: HTMLElement | null }): void {
  const before = useRef<string | null>(null);
  useEffect(() => {
    document.title = title === "" ? "codezero" : `${title} · codezero`;
    if (before.current !== null && before.current !== "" && before.current !== title) {
      main.current?.focus({ preventScroll: true });
      window.scrollTo(0, 0);
    }
    before.current = title;
  }, [title, main]);
}

const TABS: ReadonlySet<string> = new Set(["overview", "system", "settings", "log", "checkpoints"]);

function Places({ route, run }: { route: Route; run: string | null }) {
  const chosen = "run" in route && route.run !== null ? run : null;
  const places: readonly { readonly name: string; readonly to: Route; readonly here: boolean }[] = [
    { name: "Runs", to: { page: "runs", chosen: [] }, here: route.page === "runs" || route.page === "swarm" },
    { name: "Overview", to: { page: "overview", run: chosen }, here: TABS.has(route.page) },
    { name: "Rollouts", to: { page: "rollouts", run: chosen, ...EVERY }, here: route.page === "rollouts" || route.page === "rollout" },
    { name: "Judge", to: { page: "market", run: chosen }, here: route.page === "market" || route.page === "game" },
    { name: "Leaderboard", to: { page: "leaderboard", run: chosen }, here: route.page === "leaderboard" },
  ];
  return (
    <nav aria-label="Pages">
      {places.map(({ name, to, here }) => (
        <a key={name} href={formatRoute(to)} aria-current={here ? "page" : undefined}>
          {name}
        </a>
      ))}
    </nav>
  );
}

/** The same page of another run; from a rollout or a game to their list. */
function moved(route: Route, run: string): Route {
  if (route.page === "rollouts" || route.page === "rollout") return { page: "rollouts", run, ...EVERY };
  return { page: route.page === "game" ? "market" : (PLAIN.find((page) => page === route.page) ?? "overview"), run };
}

function RunPicker({ runs, run, route }: { runs: readonly RunSummary[]; run: string | null; route: Route }) {
  const go = (chosen: string) => (window.location.hash = formatRoute(moved(route, chosen)));
  return (
    <label className="picker">
      <span className="unseen">Run</span>
      <select value={run ?? ""} onChange={(event) => go(event.target.value)}>
        {!runs.some((line) => line.run === run) && run !== null && <option value={run}>{run}</option>}
        {runs.map((line) => (
          <option key={line.run} value={line.run}>
            {visibleLine(line.run.replaceAll("~", "/"), 60)}
            {line.running ? " ● running" : ""}
          </option>
        ))}
      </select>
    </label>
  );
}

function Account({ session, current }: { session: LoginState; current: boolean }) {
  return (
    <a className={session.claimed ? "account" : "account claim"} href="#/account" aria-current={current ? "page" : undefined}>
      {session.claimed ? (session.unlocked ? "Account" : "Account (locked)") : "Claim this node"}
    </a>
  );
}
