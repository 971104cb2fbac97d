import { expect, test } from "vitest";

import type { Series } from "../src/api/check";
import { rulerOf } from "../src/charts/ruler";

const run = (...series: [string, Series][]) => new Map([["a", new Map(series)]]);

test("time counts from the beginning of the run, in a unit that suits", () => {
  const { name, place } = rulerOf("time", run(["time", [[0, 1_000], [10, 1_600], [20, 8_200]]]));
  expect(name).toBe("hours");
  expect(place("a", [[0, 0.5], [5, 0.6], [20, 0.7], [30, 0.8]])).toEqual([[0, 0.5], [300 / 3600, 0.6], [2, 0.7], [2, 0.8]]);
});

test("tokens begin with none", () => {
  const { name, place } = rulerOf("tokens", run(["tokens_total", [[1, 500], [2, 4_000]]]));
  expect(name).toBe("thousand tokens");
  expect(place("a", [[0, 1], [1, 1], [1.5, 1]])).toEqual([[0, 1], [0.5, 1], [2.25, 1]]);
});

test("a run that does not say has no place on such a ruler, and keeps its iterations", () => {
  expect(rulerOf("time", run()).place("a", [[1, 1]])).toEqual([]);
  expect(rulerOf("iteration", run()).place("b", [[1, 1]])).toEqual([[1, 1]]);
});
