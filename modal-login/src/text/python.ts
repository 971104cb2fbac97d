/** Python in colours: a text cut into pieces of one kind each. It only looks; nothing is parsed, and nothing can fail. Pure. */

export type Kind = "plain" | "comment" | "string" | "number" | "keyword";

export interface Token {
  readonly kind: Kind;
  readonly text: string;
}

/** Later ones stay plain, lest a page of punctuation become a page of elements. */
const MOST_TOKENS = 4_000;
const KINDS: readonly Kind[] = ["comment", "string", "number", "keyword"];
const WORDS =
  "False|None|True|and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield";
const PYTHON = new RegExp(
  `(#[^\\n]*)|("""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?)|\\b(\\d[\\w.]*)|\\b(${WORDS})\\b`,
  "g",
);

export function tokens(code: string): readonly Token[] {
  const found: Token[] = [];
  let end = 0;
  for (const match of code.matchAll(PYTHON)) {
    if (found.length >= MOST_TOKENS) break;
    if (match.index > end) found.push({ kind: "plain", text: code.slice(end, match.index) });
    found.push({ kind: KINDS[match.slice(1).findIndex((group) => group !== undefined)] ?? "plain", text: match[0] });
    end = match.index + match[0].length;
  }
  return end < code.length ? [...found, { kind: "plain", text: code.slice(end) }] : found;
}

/** A model's answer: what stands between fences is Python, and all of it where there is none. */
export function answer(text: string): readonly Token[] {
  const parts = text.split(/^(```.*)$/m);
  return parts.length === 1 ? tokens(text) : parts.flatMap((part, index) => (index % 4 === 2 ? tokens(part) : [{ kind: "plain" as const, text: part }]));
}
