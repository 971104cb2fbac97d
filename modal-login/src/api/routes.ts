/** The data routes, each with the check of its answer. */
import { Leaderboard, LogTail, Rollout, RolloutPage, RunCheckpoints, Runs, RunSettings, RunView } from "./contract";
import { get } from "./http";
import { GamePage, GamesPage, MarketView } from "./market_contract";

const base = (run: string) => `/api/runs/${encodeURIComponent(run)}`;

export const eventsPath = (run: string) => `${base(run)}/events`;
export const getRuns = () => get("/api/runs", Runs);
export const getRun = (run: string) => get(base(run), RunView);
export const getLeaderboard = (run: string) => get(`${base(run)}/leaderboard`, Leaderboard);
export const getSettings = (run: string) => get(`${base(run)}/settings`, RunSettings);
export const getLog = (run: string) => get(`${base(run)}/log`, LogTail);
export const getCheckpoints = (run: string) => get(`${base(run)}/checkpoints`, RunCheckpoints);
export const getMarket = (run: string) => get(`${base(run)}/market`, MarketView);
export const getGame = (run: string, id: string) => get(`${base(run)}/market/games/${id}`, GamePage);
export const getRollout = (run: string, id: number) => get(`${base(run)}/rollouts/${id}`, Rollout);

/** Which rollouts; null: whichever. */
export interface RolloutFilter {
  readonly peer: string | null;
  readonly mine: boolean | null;
  readonly level: number | null;
  readonly status: string | null;
}

const PAGE = 30;

export const getGames = (run: string, before: number | null) => get(`${base(run)}/market/games${queryOf({ limit: PAGE, before })}`, GamesPage);

export const getRollouts = (run: string, filter: RolloutFilter, before: number | null) =>
  get(`${base(run)}/rollouts${queryOf({ limit: PAGE, before, ...filter })}`, RolloutPage);

/** With its question mark; empty when nothing is given. */
export function queryOf(given: Readonly<Record<string, string | number | boolean | null>>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(given)) if (value !== null) query.set(name, String(value));
  return query.size > 0 ? `?${query}` : "";
}
