/**
 * Foreign text made harmless to look at: what is invisible, moves the cursor or turns the line round is shown as its
 * number, ⟨U+202E⟩; piles of combining marks are cut. Bounded in characters, in line length and in pieces.
 */

export interface Piece {
  readonly text: string;
  /** True: not part of the text, but our name for a character of it. */
  readonly escaped: boolean;
}

export interface Visible {
  readonly pieces: readonly Piece[];
  /** Characters left out. */
  readonly hidden: number;
}

export interface Bounds {
  /** Characters shown at most. */
  readonly characters: number;
  /** Of these, in one line. */
  readonly line: number;
}

/** Runs of escapes in one text that are set apart from it; later ones are shown in the same form, but as plain text. */
const MAX_ESCAPES = 400;
const MAX_MARKS = 3;

/** Blanks other than the space are among them: in code they are an error that nobody sees. */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u00A0\u1680\u2000-\u200A\u202F\u205F\u2800\u3000]/u;
const NOTABLE = new RegExp(`(?:(?![\\t\\n])(${HIDDEN.source}))\\1*|(\\p{M}{${MAX_MARKS + 1},})`, "gu");

export function visible(text: string, bounds: Bounds): Visible {
  const { kept, hidden } = cut(text, bounds);
  const pieces: Piece[] = [];
  let end = 0;
  let escapes = 0;
  for (const match of kept.matchAll(NOTABLE)) {
    add(pieces, kept.slice(end, match.index), false);
    const [whole, character, marks] = match;
    end = match.index + whole.length;
    if (marks !== undefined) {
      const shown = [...marks].slice(0, MAX_MARKS).join("");
      add(pieces, shown, false);
      add(pieces, `⟨${[...marks].length - MAX_MARKS} marks⟩`, escapes++ < MAX_ESCAPES);
    } else {
      add(pieces, escapeOf(character ?? whole, whole.length / (character ?? whole).length), escapes++ < MAX_ESCAPES);
    }
  }
  add(pieces, kept.slice(end), false);
  return { pieces, hidden };
}

/** One line of foreign text as a plain string: for titles, names, and whoever cannot set escapes apart. */
export function visibleLine(text: string, characters = 200): string {
  const { pieces, hidden } = visible(text.replace(/[\t\n\r]+/g, " "), { characters, line: characters });
  return pieces.map((piece) => piece.text).join("") + (hidden > 0 ? "…" : "");
}

function add(pieces: Piece[], text: string, escaped: boolean): void {
  const last = pieces.at(-1);
  if (text === "") return;
  if (last !== undefined && last.escaped === escaped && !escaped) {
    pieces[pieces.length - 1] = { text: last.text + text, escaped };
  } else {
    pieces.push({ text, escaped });
  }
}

function escapeOf(character: string, times: number): string {
  const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
  return times > 1 ? `⟨U+${code} ×${times}⟩` : `⟨U+${code}⟩`;
}

function cut(text: string, { characters, line }: Bounds): { kept: string; hidden: number } {
  const lines: string[] = [];
  let left = characters;
  let hidden = Math.max(0, text.length - characters);
  const begin = text.length > characters ? wellFormed(text.slice(0, characters)) : text;
  for (const whole of begin.split("\n")) {
    if (left <= 0) break;
    const long = whole.length - line;
    lines.push(long > 0 ? `${wellFormed(whole.slice(0, line))} … ${long} more characters in this line` : whole);
    hidden += Math.max(0, long);
    left -= whole.length + 1;
  }
  return { kept: lines.join("\n"), hidden };
}

/** A cut through a surrogate pair must not look like a lone surrogate of the text. */
function wellFormed(text: string): string {
  return /[\uD800-\uDBFF]$/.test(text) ? text.slice(0, -1) : text;
}
