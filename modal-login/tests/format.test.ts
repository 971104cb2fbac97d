import { expect, test } from "vitest";

import { ago, count, decimal, duration, interval, percent, points, short } from "../src/text/format";

test("what was not measured is a dash, never a zero", () => {
  expect([percent(null), decimal(null), interval(null, 0.5)]).toEqual(["–", "–", ""]);
});

test("shares are percent with one digit, intervals without the sign", () => {
  expect(percent(0.653)).toBe("65.3\u202F%");
  expect(percent(0.6025)).toBe("60.2\u202F%");
  expect(interval(0.598, 0.709)).toBe("[59.8, 70.9]");
  expect(points(-0.295)).toBe("29.5 points");
});

test("times are as long as they need to be", () => {
  expect([0.42, 12, 252, 7_500, 200_000].map(duration)).toEqual(["0.4\u202Fs", "12\u202Fs", "4 m 12 s", "2 h 05 m", "2 d 7 h"]);
  expect([ago(null, 100), ago(100, 99), ago(100, 103), ago(100, 400)]).toEqual(["never", "just now", "3\u202Fs ago", "5 m 00 s ago"]);
});

test("one is singular", () => {
  expect([count(1, "peer"), count(1_200, "peer")]).toEqual(["1 peer", "1,200 peers"]);
});

test("an id keeps its beginning and its end", () => {
  expect(short("QmQn1oKFwyhVh4pAKuvW4wGQe5oVrvBqjN5ByVyLr2oyWq")).toBe("QmQn1o…r2oyWq");
});
