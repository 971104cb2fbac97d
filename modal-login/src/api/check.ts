/** Checks of what the server sent, at the parse: a wrong answer gives one line that names the place, not a blank page. */

export class AnswerError extends Error {
  override name = "AnswerError";
}

export type Check<T> = (value: unknown, path: string) => T;
export type Checked<C> = C extends Check<infer T> ? T : never;

function wrong(path: string, wanted: string, value: unknown): never {
  const got = value === null ? "null" : Array.isArray(value) ? "a list" : typeof value;
  throw new AnswerError(`the server's answer is not as expected: ${path || "it"} should be ${wanted} and is ${got}`);
}

export const text: Check<string> = (value, path) => (typeof value === "string" ? value : wrong(path, "text", value));

export const flag: Check<boolean> = (value, path) =>
  typeof value === "boolean" ? value : wrong(path, "true or false", value);

export const number: Check<number> = (value, path) =>
  typeof value === "number" && Number.isFinite(value) ? value : wrong(path, "a number", value);

export function maybe<T>(check: Check<T>): Check<T | null> {
  return (value, path) => (value === null || value === undefined ? null : check(value, path));
}

export function oneOf<const T extends readonly string[]>(...words: T): Check<T[number]> {
  return (value, path) => (words.includes(value as T[number]) ? (value as T[number]) : wrong(path, words.join(" or "), value));
}

export function list<T>(check: Check<T>): Check<readonly T[]> {
  return (value, path) =>
    Array.isArray(value) ? value.map((item: unknown, index) => check(item, `${path}[${index}]`)) : wrong(path, "a list", value);
}

/** A Map, so that no key of a stranger's can be mistaken for a property. */
export function table<T>(check: Check<T>): Check<ReadonlyMap<string, T>> {
  return (value, path) =>
    new Map(Object.entries(plain(value, path)).map(([key, item]) => [key, check(item, `${path}.${key.slice(0, 40)}`)]));
}

export function object<F extends Record<string, Check<unknown>>>(fields: F): Check<{ readonly [K in keyof F]: Checked<F[K]> }> {
  return (value, path) => {
    const given = plain(value, path);
    const entries = Object.entries(fields).map(([key, check]) => [key, check(given[key], path ? `${path}.${key}` : key)]);
    return Object.fromEntries(entries) as { readonly [K in keyof F]: Checked<F[K]> };
  };
}

/** Of a library's own, which checks it itself. */
export const anyObject: Check<Record<string, unknown>> = plain;

export type Point = readonly [x: number, y: number];
export type Series = readonly Point[];

/** A value that is no number (an infinite loss) leaves a gap in its curve; the rest of the page goes on. */
export const series: Check<Series> = (value, path) =>
  list(list((item) => (typeof item === "number" ? item : Number.NaN)))(value, path)
    .map(([x = Number.NaN, y = Number.NaN]): Point => [x, y])
    .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));

function plain(value: unknown, path: string): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : wrong(path, "an object", value);
}
