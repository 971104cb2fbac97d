/** What several runs say of themselves, asked anew whenever the list of runs says that one has changed. */
import { useEffect, useState } from "react";

import type { RunSummary, RunView } from "../api/contract";
import { getRun } from "../api/routes";

export interface Asked {
  /** The last one that came; it stays when a later question fails. */
  readonly view: RunView | null;
  readonly error: unknown;
}

/** Asks for runs, each again when its line in the list has changed, or when the last question failed. */
export class Asking {
  readonly #ask: (run: string) => Promise<RunView>;
  readonly #show: (asked: ReadonlyMap<string, Asked>) => void;
  /** The state of the run's line at the newest question. */
  readonly #stamps = new Map<string, string>();
  #asked: ReadonlyMap<string, Asked> = new Map();

  constructor(ask: (run: string) => Promise<RunView>, show: (asked: ReadonlyMap<string, Asked>) => void) {
    this.#ask = ask;
    this.#show = show;
  }

  follow(keys: readonly string[], runs: readonly RunSummary[]): void {
    for (const run of keys) {
      const line = runs.find((other) => other.run === run);
      const stamp = `${line?.updated} ${line?.state}`;
      if (this.#stamps.get(run) === stamp) continue;
      this.#stamps.set(run, stamp);
      // An older answer that is still on its way must not win.
      const newest = () => this.#stamps.get(run) === stamp;
      this.#ask(run).then(
        (view) => newest() && this.#put(run, { view, error: null }),
        (error: unknown) => {
          if (!newest()) return;
          this.#stamps.delete(run);
          this.#put(run, { view: this.#asked.get(run)?.view ?? null, error });
        },
      );
    }
  }

  #put(run: string, answer: Asked): void {
    this.#asked = new Map(this.#asked).set(run, answer);
    this.#show(this.#asked);
  }
}

/** By the run's key; one that has not answered yet is missing. */
export function useViews(keys: readonly string[], runs: readonly RunSummary[]): ReadonlyMap<string, Asked> {
  const [asked, setAsked] = useState<ReadonlyMap<string, Asked>>(new Map());
  const [asking] = useState(() => new Asking(getRun, setAsked));
  const wanted = keys.join();
  useEffect(() => asking.follow(wanted.split(",").filter((key) => key !== ""), runs), [wanted, runs]);
  return asked;
}
