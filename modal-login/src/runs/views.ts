/** What several runs say of themselves, asked anew whenever the list of runs says that one has changed. */
import { useEffect, useRef, useState } from "react";

import type { RunSummary, RunView } from "../api/contract";
import { getRun } from "../api/routes";

export interface Asked {
  /** The last one that came; it stays when a later question fails. */
  readonly view: RunView | null;
  readonly error: unknown;
}

/** By the run's key; one that has not answered yet is missing. A question that failed is asked again with the next list. */
export function useViews(keys: readonly string[], runs: readonly RunSummary[]): ReadonlyMap<string, Asked> {
  const [asked, setAsked] = useState<ReadonlyMap<string, Asked>>(new Map());
  const stamps = useRef(new Map<string, string>());
  const wanted = keys.join();
  useEffect(() => {
    for (const run of wanted.split(",").filter((key) => key !== "")) {
      const line = runs.find((other) => other.run === run);
      const stamp = `${line?.updated} ${line?.state}`;
      if (stamps.current.get(run) === stamp) continue;
      stamps.current.set(run, stamp);
      // An older answer that is still on its way must not win.
      const newest = () => stamps.current.get(run) === stamp;
      getRun(run).then(
        (view) => newest() && setAsked((before) => new Map(before).set(run, { view, error: null })),
        (error: unknown) => {
          if (!newest()) return;
          stamps.current.delete(run);
          setAsked((before) => new Map(before).set(run, { view: before.get(run)?.view ?? null, error }));
        },
      );
    }
  }, [wanted, runs]);
  return asked;
}
