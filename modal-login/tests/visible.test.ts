import { expect, test } from "vitest";

import { visible, visibleLine } from "../src/text/visible";

const LOOSE = { characters: 10_000, line: 10_000 };
const shown = (text: string, bounds = LOOSE) => visible(text, bounds).pieces.map((piece) => piece.text).join("");

test("what turns the line round or cannot be seen is named", () => {
  expect(shown("a\u202Eb")).toBe("a⟨U+202E⟩b");
  expect(shown("\u200B\u200B\u200B")).toBe("⟨U+200B ×3⟩");
  expect(shown("\u001B[31m\0")).toBe("⟨U+001B⟩[31m⟨U+0000⟩");
  expect(shown("\u{E0041}")).toBe("⟨U+E0041⟩");
  expect(shown("x\u00A0=\u3164 1")).toBe("x⟨U+00A0⟩=⟨U+3164⟩ 1");
});

test("a lone half of a surrogate pair is named and a whole pair is not", () => {
  expect(shown("\uD83D")).toBe("⟨U+D83D⟩");
  expect(shown("a😀", { characters: 2, line: 9 })).toBe("a");
  expect(shown("\uD83Dx")).toBe("⟨U+D83D⟩x");
  expect(shown("😀")).toBe("😀");
});

test("names of characters are set apart from the same letters in the text", () => {
  const { pieces } = visible("⟨U+202E⟩ \u202E", LOOSE);
  expect(pieces.map((piece) => piece.escaped)).toEqual([false, true]);
});

test("tabs, line ends, accents and foreign scripts stay as they are", () => {
  const text = "def f():\n\treturn 'naïve e\u0301 שלום 漢字'\n";
  expect(shown(text)).toBe(text);
});

test("a pile of marks is cut", () => {
  expect(shown(`z${"\u0301".repeat(50)}`)).toBe(`z${"\u0301".repeat(3)}⟨47 marks⟩`);
});

test("one line of a million characters is cut and says by how much", () => {
  const { pieces, hidden } = visible("A".repeat(1_000_000), { characters: 6_000, line: 1_500 });
  expect(hidden).toBe(998_500);
  expect(pieces.map((piece) => piece.text).join("").length).toBeLessThan(1_600);
});

test("nothing is lost within the bounds, nothing beyond them is shown", () => {
  expect(visible("ab\ncd", { characters: 5, line: 5 }).hidden).toBe(0);
  expect(visible("ab\ncd", { characters: 4, line: 5 })).toEqual({ pieces: [{ text: "ab\nc", escaped: false }], hidden: 1 });
});

test("a text full of escapes makes no more pieces than a page can bear", () => {
  const { pieces } = visible("\u202EA".repeat(50_000), { characters: 100_000, line: 100_000 });
  expect(pieces.length).toBeLessThan(1_000);
});

test("a line has no line ends", () => {
  expect(visibleLine("a\r\n\tb", 10)).toBe("a b");
  expect(visibleLine("abcdef", 3)).toBe("abc…");
});
