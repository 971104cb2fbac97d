import { expect, test } from "vitest";

import type { ExamView, RunView } from "../src/api/contract";
import { headline, runState } from "../src/overview/learning";

function exam(average: number, wide = 0.05, source = "executed"): ExamView {
  return { iteration: 0, samples: 8, source, set: "", average, low: average - wide, high: average + wide } as ExamView;
}

test("only intervals that do not touch are a yes or a no", () => {
  expect(headline([exam(0.36), exam(0.65)]).answer).toBe("Yes.");
  expect(headline([exam(0.36), exam(0.4)]).answer).toMatch(/not proven/);
  expect(headline([exam(0.65), exam(0.36)]).answer).toMatch(/worse/);
  expect(headline([exam(0.4), exam(0.38)]).answer).toBe("Not so far.");
});

test("what pairs of problems say counts more", () => {
  expect(headline([exam(0.36), { ...exam(0.4), gain_low: 0.01, gain_high: 0.07 }]).answer).toBe("Yes.");
  expect(headline([exam(0.36), { ...exam(0.65), gain_low: -0.01, gain_high: 0.6 }]).answer).toMatch(/not proven/);
  expect(headline([exam(0.4), { ...exam(0.36), gain_low: -0.07, gain_high: -0.01 }]).answer).toMatch(/worse/);
});

test("one exam, or none, is no answer", () => {
  expect(headline([]).answer).toBe("Not measured yet.");
  expect(headline([exam(0.36)]).answer).toBe("Too early to say.");
});

test("what the figures rest on names the problems", () => {
  expect(headline([{ ...exam(0.36), set: "mbpp_test, 50 problems, 1a2b3c4d" }]).basis).toBe(
    "average@8, executed in a sandbox: mbpp_test, 50 problems, 1a2b3c4d",
  );
});

test("what was judged is not compared with what was executed", () => {
  expect(headline([exam(0.36), exam(0.9, 0.01, "judged")]).answer).toBe("Too early to say.");
});

const view = { running: true, stopped: "", supervisor: "", updated: 100, limit_seconds: 60 } as RunView;

test("a run that makes no steps is stale, one that ended says why", () => {
  expect(runState(view, "live", 130).tone).toBe("live");
  expect(runState(view, "live", 200).tone).toBe("stale");
  expect(runState({ ...view, running: false, stopped: "reached run.max_iterations=400" }, "live", 200).words).toMatch(/Ended: reached/);
  expect(runState({ ...view, running: false, supervisor: "it is started again in 4.2 s" }, "live", 200).words).toMatch(/started again in 4/);
  expect(runState(view, "lost", 130).tone).toBe("lost");
});

test("the clock is no change of state", () => {
  expect(runState(view, "live", 130).change).toBe(runState(view, "live", 131).change);
});
