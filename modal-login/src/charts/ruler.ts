/** What runs along the bottom of a chart: iterations, the time since a run began, or the tokens it has sampled. Pure. */
import type { Point, Series } from "../api/check";

export const ALONG = ["iteration", "time", "tokens"] as const;
export type Along = (typeof ALONG)[number];

/** The curves of each run, by the run's name. */
export type Curves = ReadonlyMap<string, ReadonlyMap<string, Series>>;

export interface Ruler {
  /** What is counted, in the plural where it is a unit. */
  readonly name: string;
  readonly digits: number;
  /** Points of a run by iteration, where they lie on this ruler. */
  readonly place: (run: string, points: Series) => Series;
}

type Unit = readonly [name: string, size: number];
const UNITS: Readonly<Record<Exclude<Along, "iteration">, readonly [Unit, ...Unit[]]>> = {
  time: [["seconds", 1], ["minutes", 60], ["hours", 3_600], ["days", 86_400]],
  tokens: [["tokens", 1], ["thousand tokens", 1e3], ["million tokens", 1e6], ["billion tokens", 1e9]],
};

/** What has passed at each iteration; empty: the run does not say. */
export function passed(along: Along, curves: ReadonlyMap<string, Series> | undefined): Series {
  if (along === "tokens") return [[0, 0], ...(curves?.get("tokens_total") ?? [])];
  const time = curves?.get("time") ?? [];
  return time.map(([x, y]): Point => [x, y - (time[0]?.[1] ?? 0)]);
}

export function rulerOf(along: Along, runs: Curves): Ruler {
  if (along === "iteration") return { name: "iteration", digits: 0, place: (_, points) => points };
  const clocks = new Map([...runs].map(([run, curves]) => [run, passed(along, curves)]));
  const most = Math.max(0, ...[...clocks.values()].map((clock) => clock.at(-1)?.[1] ?? 0));
  const [name, size] = UNITS[along].findLast(([, size]) => most >= 2 * size) ?? UNITS[along][0];
  const place = (run: string, points: Series): Series => {
    const clock = clocks.get(run) ?? [];
    return clock.length < 2 ? [] : points.map(([x, y]): Point => [at(clock, x) / size, y]);
  };
  return { name, digits: most / size < 10 ? 1 : 0, place };
}

/** Between the two neighbours on a straight line; beyond the ends as at the ends. */
function at(clock: Series, x: number): number {
  const after = clock.findIndex(([known]) => known >= x);
  const right = clock[after < 0 ? clock.length - 1 : after] as Point;
  const left = clock[Math.max(0, after - 1)] as Point;
  return after <= 0 || right[0] === left[0] ? right[1] : left[1] + ((x - left[0]) / (right[0] - left[0])) * (right[1] - left[1]);
}
