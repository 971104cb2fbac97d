import { expect, test } from "vitest";

import type { Point } from "../src/api/check";
import type { ExamView } from "../src/api/contract";
import { described, examSeries, smoothed, thinned, trend } from "../src/charts/series";

const line = (length: number): Point[] => Array.from({ length }, (_, x) => [x, x]);

test("a long curve is thinned evenly and keeps both ends", () => {
  const few = thinned(line(1_000), 5);
  expect(few.map(([x]) => x)).toEqual([0, 250, 500, 749, 999]);
  expect(thinned(line(3), 5)).toEqual(line(3));
});

test("smoothing a straight line leaves it alone, its ends too", () => {
  expect(smoothed(line(20), 4)).toEqual(line(20));
});

test("a short curve has no trend of its own", () => {
  const reward = { label: "reward", tone: "judged", noisy: true } as const;
  expect(trend({ ...reward, points: line(10) }, 0.1)).toHaveLength(1);
  expect(trend({ ...reward, points: line(100) }, 0)).toHaveLength(1);
  expect(trend({ ...reward, points: line(100) }, 0.1)).toHaveLength(2);
});

test("an exam without a figure leaves no point", () => {
  const exam = { iteration: 25, average: 0.5, believed: null } as ExamView;
  expect(examSeries([exam], "average")).toEqual([[25, 0.5]]);
  expect(examSeries([exam], "believed")).toEqual([]);
});

test("a curve is said in words", () => {
  const words = described({ label: "reward", points: [[1, 0.6], [9, 0.8]], tone: "judged" }, (value) => value.toFixed(1));
  expect(words).toBe("reward: 0.6 at iteration 1, 0.8 at iteration 9, between 0.6 and 0.8.");
});
