/** A run as it goes on: server-sent events, with polling where no more of them can be had. */
import { useEffect, useState, useSyncExternalStore } from "react";

import { RunView } from "./contract";
import { AnswerError } from "./check";
import { eventsPath, getRun } from "./routes";

export type Link = "connecting" | "live" | "polling" | "lost";

export interface Live {
  readonly view: RunView | null;
  readonly link: Link;
  /** Why there is no view; null while there is one, or one may still come. */
  readonly problem: unknown;
}

const NOTHING: Live = { view: null, link: "connecting", problem: null };
const RETRY_MS = [2_000, 5_000, 10_000, 30_000] as const;
const POLL_MS = 5_000;
/** Without an event for so long the connection is made anew: after a laptop's sleep nobody says that it is dead. */
const SILENCE_MS = 90_000;

/** `run`: null follows nothing. A page that nobody looks at follows nothing either, and leaves its place to others. */
export function useLive(run: string | null): Live {
  const [live, setLive] = useState<Live>(NOTHING);
  const seen = useSeen();
  useEffect(() => setLive(NOTHING), [run]);
  useEffect(() => {
    if (run === null || !seen) return undefined;
    const follower = new Follower(run, setLive);
    follower.connect();
    return () => follower.stop();
  }, [run, seen]);
  return live;
}

function useSeen(): boolean {
  return useSyncExternalStore(
    (changed) => {
      document.addEventListener("visibilitychange", changed);
      return () => document.removeEventListener("visibilitychange", changed);
    },
    () => !document.hidden,
  );
}

type Update = (change: (live: Live) => Live) => void;

/** Follows one run until it is stopped. Also after that, the last view stays on show. */
class Follower {
  private source: EventSource | null = null;
  private timer: number | undefined;
  private failures = 0;
  private stopped = false;

  constructor(
    private readonly run: string,
    private readonly update: Update,
  ) {}

  connect(): void {
    if (this.stopped) return;
    this.source?.close();
    const source = new EventSource(eventsPath(this.run));
    this.source = source;
    this.after(SILENCE_MS, () => this.connect());
    source.addEventListener("view", (event: MessageEvent<string>) => {
      this.failures = 0;
      this.after(SILENCE_MS, () => this.connect());
      this.show(() => RunView(JSON.parse(event.data), ""), "live");
    });
    source.onerror = () => {
      if (this.stopped || this.source !== source) return;
      source.close();
      this.lost();
    };
  }

  stop(): void {
    this.stopped = true;
    window.clearTimeout(this.timer);
    this.source?.close();
  }

  /** A stream does not say why it failed; a plain request does. */
  private lost(): void {
    this.update((live) => ({ ...live, link: live.link === "polling" ? "polling" : "lost" }));
    this.poll().catch((error: unknown) => this.fail(error));
  }

  private async poll(): Promise<void> {
    const view = await getRun(this.run);
    if (this.stopped) return;
    this.failures += 1;
    this.show(() => view, "polling");
    this.after(POLL_MS, () => (this.failures % 6 === 1 ? this.connect() : this.lost()));
  }

  private fail(error: unknown): void {
    if (this.stopped) return;
    const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)] ?? POLL_MS;
    this.failures += 1;
    this.update((live) => ({ ...live, link: "lost", problem: error }));
    this.after(wait, () => this.connect());
  }

  private show(read: () => RunView, link: Link): void {
    try {
      const view = read();
      this.update(() => ({ view, link, problem: null }));
    } catch (error) {
      if (!(error instanceof AnswerError || error instanceof SyntaxError)) throw error;
      this.update((live) => ({ ...live, link, problem: error }));
    }
  }

  private after(milliseconds: number, what: () => void): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(what, milliseconds);
  }
}
