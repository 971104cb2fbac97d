/** The data routes, each with the check of its answer. */
import { Leaderboard, Rollout, RolloutPage, Runs, RunView } from "./contract";
import { get } from "./http";
import { GamePage, GamesPage, MarketView } from "./market_contract";

const base = (run: string) => `/api/runs/${encodeURIComponent(run)}`;

export const eventsPath = (run: string) => `${base(run)}/events`;
export const getRuns = () => get("/api/runs", Runs);
export const getRun = (run: string) => get(base(run), RunView);
export const getLeaderboard = (run: string) => get(`${base(run)}/leaderboard`, Leaderboard);
export const getMarket = (run: string) => get(`${base(run)}/market`, MarketView);
export const getGame = (run: string, id: string) => get(`${base(run)}/market/games/${id}`, GamePage);
export const getRollout = (run: string, id: number) => get(`${base(run)}/rollouts/${id}`, Rollout);

export interface RolloutQuery {
  readonly before: number | null;
  readonly peer: string | null;
  readonly mine: boolean | null;
}

const PAGE = 30;

export function getGames(run: string, before: number | null) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (before !== null) query.set("before", String(before));
  return get(`${base(run)}/market/games?${query}`, GamesPage);
}

export function getRollouts(run: string, { before, peer, mine }: RolloutQuery) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (before !== null) query.set("before", String(before));
  if (peer !== null) query.set("peer", peer);
  if (mine !== null) query.set("mine", String(mine));
  return get(`${base(run)}/rollouts?${query}`, RolloutPage);
}
