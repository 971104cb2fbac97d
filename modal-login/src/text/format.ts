/** Numbers and times as text. Never measured is a dash, never a zero. */

export const DASH = "–";
const NARROW = "\u202F";

export function percent(share: number | null, digits = 1): string {
  return share === null ? DASH : `${fixed(100 * share, digits)}${NARROW}%`;
}

export function decimal(value: number | null, digits = 2): string {
  return value === null ? DASH : fixed(value, digits).replace("-", "−");
}

/** Ties go to the even digit, as in the terminal: the page must not say 60.3 where that says 60.2. */
function fixed(value: number, digits: number): string {
  const rules = { minimumFractionDigits: digits, maximumFractionDigits: digits, roundingMode: "halfEven", useGrouping: false } as const;
  return value.toLocaleString("en-US", rules);
}

export function whole(value: number | null): string {
  return value === null ? DASH : Math.round(value).toLocaleString("en-US");
}

/** `[59.8, 70.9]` in percent; empty when not measured. */
export function interval(low: number | null, high: number | null): string {
  return low === null || high === null ? "" : `[${fixed(100 * low, 1)}, ${fixed(100 * high, 1)}]`;
}

/** Distance of two shares, in percentage points, without its sign. */
export function points(difference: number): string {
  return `${fixed(Math.abs(100 * difference), 1)} points`;
}

/** `0.6 s`, `4 m 12 s`, `2 h 05 m` or `3 d 4 h`. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)}${NARROW}s`;
  const total = Math.round(seconds);
  const minutes = Math.floor(total / 60);
  const hours = Math.floor(minutes / 60);
  if (total < 60) return `${total}${NARROW}s`;
  if (hours < 1) return `${minutes} m ${String(total % 60).padStart(2, "0")} s`;
  return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} m` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** How long ago `then` was, both in seconds since 1970; clocks that disagree a little are no news from the future. */
export function ago(then: number | null, now: number): string {
  if (then === null) return "never";
  const seconds = Math.max(0, Math.round(now - then));
  return seconds < 2 ? "just now" : `${duration(seconds < 10 ? Math.max(seconds, 0) : seconds).replace(".0", "")} ago`;
}

/** Local date and time, the same in every language. */
export function moment(seconds: number): string {
  const date = new Date(seconds * 1000);
  const two = (value: number) => String(value).padStart(2, "0");
  return Number.isNaN(date.getTime())
    ? DASH
    : `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
}

/** `3.2 MB`. */
export function bytes(size: number | null): string {
  if (size === null) return DASH;
  const unit = Math.min(4, Math.floor(Math.log10(Math.max(size, 1)) / 3));
  return `${(size / 1000 ** unit).toFixed(unit === 0 ? 0 : 1)}${NARROW}${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

export function count(number: number, noun: string): string {
  return `${whole(number)} ${noun}${Math.round(number) === 1 ? "" : "s"}`;
}

/** Beginning and end of an id. */
export function short(id: string): string {
  return id.length <= 14 ? id : `${id.slice(0, 6)}…${id.slice(-6)}`;
}
