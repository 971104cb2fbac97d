/** The data routes, each with the check of its answer. */
import { Leaderboard, Rollout, RolloutPage, Runs, RunView } from "./contract";
import { get } from "./http";

const base = (run: string) => `/api/runs/${encodeURIComponent(run)}`;

export const eventsPath = (run: string) => `${base(run)}/events`;
export const getRuns = () => get("/api/runs", Runs);
export const getRun = (run: string) => get(base(run), RunView);
export const getLeaderboard = (run: string) => get(`${base(run)}/leaderboard`, Leaderboard);
export const getRollout = (run: string, id: number) => get(`${base(run)}/rollouts/${id}`, Rollout);

export interface RolloutQuery {
  readonly before: number | null;
  readonly peer: string | null;
  readonly mine: boolean | null;
}

const PAGE = 30;

export function getRollouts(run: string, { before, peer, mine }: RolloutQuery) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (before !== null) query.set("before", String(before));
  if (peer !== null) query.set("peer", peer);
  if (mine !== null) query.set("mine", String(mine));
  return get(`${base(run)}/rollouts?${query}`, RolloutPage);
}
