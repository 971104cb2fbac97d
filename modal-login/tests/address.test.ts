import { expect, test } from "vitest";

import { AnswerError, list, maybe, number, object, table, text } from "../src/api/check";
import { formatRoute, parseRoute, toggled } from "../src/route";

test("addresses lead where they came from", () => {
  for (const hash of ["#/", "#/run/a~b-1.2", "#/run/x/rollouts?peer=Qm%2F1&mine=false", "#/run/-/rollouts", "#/run/x/rollout/12", "#/run/x/leaderboard", "#/run/x/market", "#/run/-/market", "#/run/x/game/3fa9", "#/account", "#/runs", "#/runs?with=a,,b~node-1", "#/swarm/s_1", "#/run/x/log", "#/run/-/settings", "#/run/x/rollouts?level=3&status=judged"]) {
    expect(formatRoute(parseRoute(hash))).toBe(hash);
  }
});

test("an address that is none of ours leads to the overview", () => {
  for (const hash of ["", "#", "#/run/../../etc", "#/run/a b", "#/nowhere", "#/run/x/rollout/1e9", "#/run/x/game/3FA9", "#/run/x/game/ab", "#/run/<script>", "#/swarm/<b>"]) {
    expect(parseRoute(hash).page).toBe("overview");
  }
});

const check = object({ name: text, peers: list(object({ id: text })), level: maybe(number), counts: table(number) });
const good = { name: "x", peers: [{ id: "a" }], level: null, counts: { a: 1 } };

test("an answer as it should be passes, whatever else it holds", () => {
  expect(check({ ...good, more: 1 }, "").name).toBe("x");
});

test("a wrong answer names the place", () => {
  expect(() => check({ ...good, peers: [{ id: "a" }, { id: 3 }] }, "")).toThrow(/peers\[1\]\.id should be text and is number/);
  expect(() => check([], "")).toThrow(AnswerError);
  expect(() => check({ ...good, level: Number.NaN }, "")).toThrow(/level should be a number/);
});

test("keys of strangers are no properties", () => {
  const counts = table(number)(JSON.parse('{"__proto__": 1, "constructor": 2}'), "");
  expect([...counts]).toEqual([["__proto__", 1], ["constructor", 2]]);
});

test("a run that is compared keeps its place when another goes", () => {
  expect(toggled(toggled(["a", "b", "c"], "b"), "d")).toEqual(["a", "d", "c"]);
  expect(toggled([..."abcdefgh"], "i")).toEqual([..."abcdefgh"]);
  expect(parseRoute("#/runs?with=a,<b>,c")).toEqual({ page: "runs", chosen: ["a", "", "c"] });
});
