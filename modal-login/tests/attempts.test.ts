import { expect, test } from "vitest";

import type { ShownVerdict } from "../src/api/contract";
import { advantage, grouped } from "../src/rollouts/attempts";
import { answer, tokens } from "../src/text/python";

const attempt = (text: string, reward: number | null, status = "judged") => ({ text, reward, status, reasons: [] }) as unknown as ShownVerdict;

test("only equal attempts are one", () => {
  const groups = grouped([attempt("a", 1), attempt("b", 0), attempt("a", 1), attempt("a", 0.5)]);
  expect(groups.map(({ numbers }) => numbers)).toEqual([[1, 3], [2], [4]]);
});

test("an advantage is the distance from the mean of those that count", () => {
  const group = [attempt("a", 1), attempt("b", 0.5), attempt("c", null, "unavailable"), attempt("d", 0, "quarantined")];
  expect(group.map((each) => advantage(each, group))).toEqual([0.25, -0.25, null, null]);
  expect(advantage(attempt("a", 1), [attempt("a", 1), attempt("b", 1)])).toBe(0);
});

test("colours lose and add no character", () => {
  const code = 'def f(x):  # "no" string\n    return f"{x}" + \'it\\\'s\' * 2.5 or """a\nb';
  expect(tokens(code).map(({ text }) => text).join("")).toBe(code);
  const kinds = tokens(code).map(({ kind }) => kind);
  expect(kinds.filter((kind) => kind !== "plain")).toEqual(["keyword", "comment", "keyword", "string", "string", "number", "keyword", "string"]);
  const said = "Don't return:\n```python\nreturn 1\n```\nreturn";
  expect(answer(said).map(({ text }) => text).join("")).toBe(said);
  expect(answer(said).filter(({ kind }) => kind === "keyword")).toHaveLength(1);
});

test("a hostile text becomes few pieces", () => {
  for (const text of ['"'.repeat(100_000), "'".repeat(90_001), "def ".repeat(30_000), '"\\'.repeat(50_000)]) {
    expect(tokens(text).length).toBeLessThan(8_002);
  }
});
