/** Attempts of one group: which are the same, and how much better each is than the others. Pure. */
import type { ShownVerdict } from "../api/contract";
import { groupBy } from "../parts/group";

export interface Same {
  readonly attempt: ShownVerdict;
  /** Of the equal ones, from 1, in order. */
  readonly numbers: readonly number[];
}

/** In the order of their first. */
export function grouped(attempts: readonly ShownVerdict[]): readonly Same[] {
  const numbers = groupBy(attempts.map((_, index) => index), (index) => JSON.stringify(attempts[index]));
  return [...numbers.values()].map((same) => ({ attempt: attempts[same[0] ?? 0] as ShownVerdict, numbers: same.map((index) => index + 1) }));
}

/** Rewards that lie closer together differ by rounding. */
const LEAST_SPREAD = 1e-4;
const COUNTED: ReadonlySet<string> = new Set(["judged", "certain_failure"]);

/** Reward less the mean of those of the group that count; 0 where they do not differ; null where this one does not count. */
export function advantage(of: ShownVerdict, attempts: readonly ShownVerdict[]): number | null {
  const rewards = attempts.flatMap(({ status, reward }) => (COUNTED.has(status) && reward !== null ? [reward] : []));
  if (!COUNTED.has(of.status) || of.reward === null) return null;
  if (Math.max(...rewards) - Math.min(...rewards) <= LEAST_SPREAD) return 0;
  return of.reward - rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
}
