/** The scales of the charts. `until`: the iteration that all curves reach to, so that they can be compared. */
import type { Series } from "../api/check";
import type { RunView } from "../api/contract";
import type { Axis } from "../charts/setup";
import { decimal, percent } from "../text/format";

const LITTLE = 0.25;

export function axesOf({ iteration: until }: Pick<RunView, "iteration">) {
  const share: Axis = { min: 0, max: 1, step: 0.25, format: (value) => percent(value, 0), until };
  return {
    share,
    reward: { ...share, format: (value) => decimal(value) } satisfies Axis,
    level: { min: 1, max: 5, step: 1, format: (value) => value.toFixed(Number.isInteger(value) ? 0 : 1), until } satisfies Axis,
    count: { min: 0, format: (value) => (Number.isInteger(value) ? String(value) : ""), until } satisfies Axis,
    free: { format: (value) => String(Number(value.toPrecision(3))).replace("-", "−"), until } satisfies Axis,
    /** From a coin to certainty, unless it is worse than a coin. */
    auroc: (points: Series): Axis => ({ ...share, min: points.some(([, y]) => y < 0.5) ? 0 : 0.5, format: (value) => decimal(value) }),
    /** A share that should be small. */
    small: (points: Series): Axis => {
      const max = points.some(([, y]) => y > LITTLE) ? 1 : LITTLE;
      return { ...share, max, step: max / 5 };
    },
  };
}

export const seriesOf = (view: RunView, name: string): Series => view.series.get(name) ?? [];
export const latestOf = (view: RunView, name: string): number | null => view.latest.get(name) ?? null;
