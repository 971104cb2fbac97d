import { expect, test } from "vitest";

import type { ExamView, RunSummary, RunView } from "../src/api/contract";
import { comparable, CURVES, lineOf, placed } from "../src/runs/choice";
import { type Asked, Asking } from "../src/runs/views";

const exam = (iteration: number, rest: Partial<ExamView> = {}) =>
  ({ iteration, samples: 8, source: "executed", average: 0.4, low: 0.3, high: 0.5, passed: null, pass_low: null, pass_high: null, ...rest }) as ExamView;
const view = (exams: readonly ExamView[], series: readonly [string, [number, number][]][] = []) => ({ exams, series: new Map(series) }) as unknown as RunView;
const curve = (key: string) => CURVES.find((each) => each.key === key) ?? CURVES[0];
const place = placed(["a"], (run) => run)[0] ?? expect.unreachable();

test("only exams that were measured as the newest one are compared", () => {
  const [judged, fewer, old, last] = [exam(0, { source: "judged" }), exam(5, { samples: 2 }), exam(10), exam(20)];
  expect(comparable([judged, fewer, old, last])).toEqual([old, last]);
  expect(comparable([])).toEqual([]);
});

test("a run keeps its colour when the place before it is free, and every other line is dashed", () => {
  const three = placed(["a", "b", "c"], (run) => run.toUpperCase());
  expect(placed(["", "b", "c"], (run) => run.toUpperCase())).toEqual(three.slice(1));
  expect(three.map(({ name, dashed }) => [name, dashed])).toEqual([["A", false], ["B", true], ["C", false]]);
});

test("eight runs in one chart look different, and one that is named twice is drawn once", () => {
  const looks = placed([..."abcdefgh"], (run) => run).map(({ tone, dashed }) => `${tone} ${dashed}`);
  expect(new Set(looks).size).toBe(8);
  expect(placed(["a", "a", "b"], (run) => run).map(({ run }) => run)).toEqual(["a", "b"]);
});

test("a curve of exams has its interval, and leaves out what was not measured", () => {
  const line = lineOf(curve("average"), place, view([exam(0), exam(25, { low: null, high: null })]));
  expect(line.points).toEqual([[0, 0.4], [25, 0.4]]);
  expect(line.band).toEqual({ low: [[0, 0.3]], high: [[0, 0.5]] });
  expect(lineOf(curve("passed"), place, view([exam(0)]))).toMatchObject({ points: [], label: "a" });
  expect(lineOf(curve("average"), place, view([exam(0, { low: null, high: null })]))).not.toHaveProperty("band");
});

test("other curves are the run's own series, and a run that has not answered is an empty line", () => {
  const one = view([], [["loss", [[1, 0.5]]], ["level", [[1, 2]]]]);
  expect(lineOf(curve("loss"), place, one)).toMatchObject({ points: [[1, 0.5]], noisy: true, run: "a" });
  expect(lineOf(curve("level"), place, one)).toMatchObject({ points: [[1, 2]], stepped: true });
  expect(lineOf(curve("entropy"), place, one).points).toEqual([]);
  expect(lineOf(curve("loss"), place, null).points).toEqual([]);
});

test("the scale of the judge's AUROC begins at a coin, unless it is worse", () => {
  expect(curve("judge_auroc").axis([[0, 0.9]]).min).toBe(0.5);
  expect(curve("judge_auroc").axis([[0, 0.4]]).min).toBe(0);
});

/** Answers come when the test says so. */
function asking() {
  const open: { run: string; answer: (view: RunView) => void; fail: (error: unknown) => void }[] = [];
  const shown: ReadonlyMap<string, Asked>[] = [];
  const ask = (run: string) => new Promise<RunView>((answer, fail) => open.push({ run, answer, fail }));
  return { open, shown, asking: new Asking(ask, (asked) => shown.push(asked)) };
}

const line = (run: string, updated: number) => ({ run, updated, state: "running" }) as RunSummary;
const settled = () => new Promise((done) => setTimeout(done));

test("a run is asked once, and again when its line has changed", async () => {
  const { open, shown, asking: views } = asking();
  views.follow(["a", "b"], [line("a", 1), line("b", 1)]);
  views.follow(["a", "b"], [line("a", 1), line("b", 1)]);
  expect(open.map(({ run }) => run)).toEqual(["a", "b"]);
  const first = view([exam(0)]);
  open[0]?.answer(first);
  await settled();
  expect(shown.at(-1)).toEqual(new Map([["a", { view: first, error: null }]]));
  views.follow(["a", "b"], [line("a", 2), line("b", 1)]);
  expect(open.map(({ run }) => run)).toEqual(["a", "b", "a"]);
});

test("an older answer does not win over a newer one", async () => {
  const { open, shown, asking: views } = asking();
  views.follow(["a"], [line("a", 1)]);
  views.follow(["a"], [line("a", 2)]);
  const [old, young] = [view([exam(0)]), view([exam(25)])];
  open[1]?.answer(young);
  open[0]?.answer(old);
  await settled();
  expect(shown).toEqual([new Map([["a", { view: young, error: null }]])]);
});

test("after a failure the last view stays, and the next list asks again", async () => {
  const { open, shown, asking: views } = asking();
  const first = view([exam(0)]);
  views.follow(["a"], [line("a", 1)]);
  open[0]?.answer(first);
  await settled();
  views.follow(["a"], [line("a", 2)]);
  open[1]?.fail(new Error("away"));
  await settled();
  expect(shown.at(-1)?.get("a")).toEqual({ view: first, error: new Error("away") });
  views.follow(["a"], [line("a", 2)]);
  expect(open).toHaveLength(3);
  views.follow(["b"], []);
  open[3]?.fail(new Error("none"));
  await settled();
  expect(shown.at(-1)?.get("b")?.view).toBeNull();
});
