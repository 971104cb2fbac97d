/** Requests to this page's own server, and their failures in words: what is wrong, and what helps. */
import { AnswerError, type Check, object, text } from "./check";

const TIMEOUT_MS = 30_000;
const MAX_LINE = 300;

/** The server answered, and refused. */
export class Refused extends Error {
  override name = "Refused";
  constructor(
    readonly status: number,
    message: string,
    /** Seconds after which to try again; null: the server did not say. */
    readonly retryAfter: number | null = null,
  ) {
    super(message);
  }
}

/** No answer came. */
export class Unreachable extends Error {
  override name = "Unreachable";
}

export function get<T>(path: string, check: Check<T>): Promise<T> {
  return request(path, {}, check);
}

export function post<T>(path: string, body: object, check: Check<T>): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body) }, check);
}

async function request<T>(path: string, init: RequestInit, check: Check<T>): Promise<T> {
  const signal = AbortSignal.timeout(TIMEOUT_MS);
  const { response, body } = await fetched(path, { ...init, signal, cache: "no-store", redirect: "error" });
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    if (response.ok) throw new AnswerError(`the server's answer to ${path} is no JSON`);
    value = null;
  }
  if (!response.ok) throw refused(response, value);
  return check(value, "");
}

async function fetched(path: string, init: RequestInit): Promise<{ response: Response; body: string }> {
  try {
    const response = await fetch(path, init);
    return { response, body: await response.text() };
  } catch (error) {
    const late = error instanceof DOMException && error.name === "TimeoutError";
    throw new Unreachable(late ? `no answer within ${TIMEOUT_MS / 1000} s` : "the node's page server does not answer");
  }
}

/** Fired on the window when the session is another than the page thinks: whoever shows it asks for it anew. */
export const LOGGED_OUT = "codezero:logged-out";

function refused(response: Response, value: unknown): Refused {
  if (response.status === 401 || response.status === 409) window.dispatchEvent(new Event(LOGGED_OUT));
  const seconds = Number(response.headers.get("Retry-After") ?? Number.NaN);
  let line = response.statusText || `HTTP ${response.status}`;
  try {
    line = object({ error: text })(value, "").error.slice(0, MAX_LINE);
  } catch (error) {
    if (!(error instanceof AnswerError)) throw error;
  }
  return new Refused(response.status, line, Number.isFinite(seconds) && seconds > 0 ? Math.ceil(seconds) : null);
}

export interface Trouble {
  readonly what: string;
  readonly remedy: string;
}

/** An error as a person can use it. */
export function inWords(error: unknown): Trouble {
  if (error instanceof Unreachable) {
    return { what: sentence(error.message), remedy: "Start the node again in its terminal; this page keeps trying." };
  }
  if (error instanceof AnswerError) {
    return { what: sentence(error.message), remedy: "The page and the node are of different versions: run scripts/build_page.sh and reload." };
  }
  if (error instanceof Refused) return { what: sentence(error.message), remedy: remedyFor(error) };
  return { what: sentence(error instanceof Error ? error.message : String(error)), remedy: "" };
}

function remedyFor(error: Refused): string {
  if (error.status === 429) return `Wait ${error.retryAfter ?? 60} seconds, then try again.`;
  if (error.status === 401) return "Log in again.";
  if (error.status === 421) return "Open the page at one of the addresses above, or name this one in the setting login.origins.";
  if (error.status >= 500) return "The terminal of the node says more.";
  return "";
}

export function sentence(line: string): string {
  const trimmed = line.trim();
  const upper = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(upper) ? upper : `${upper}.`;
}
