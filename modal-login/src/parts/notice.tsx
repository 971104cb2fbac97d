/** Things that are said: troubles with their remedy, empty places, changes of state. */
import { type ReactNode, useEffect, useRef, useState } from "react";

import { inWords } from "../api/http";
import { useChartView } from "../charts/view";

export function Trouble({ error, retry }: { error: unknown; retry?: () => void }) {
  const { what, remedy } = inWords(error);
  return (
    <Notice tone="alarm" role="alert">
      <strong>{what}</strong> {remedy}
      {retry !== undefined && (
        <button type="button" className="quiet" onClick={retry}>
          Try again
        </button>
      )}
    </Notice>
  );
}

/** A page that has nothing but a trouble to show. */
export function TroublePage({ title, error, retry }: { title: string; error: unknown; retry?: () => void }) {
  return (
    <>
      <h1 tabIndex={-1}>{title}</h1>
      {retry === undefined ? <Trouble error={error} /> : <Trouble error={error} retry={retry} />}
    </>
  );
}

export function Notice({ tone, role, children }: { tone: "alarm" | "calm" | "good"; role?: "alert" | "status"; children: ReactNode }) {
  return (
    <div className={`notice ${tone}`} role={role}>
      {children}
    </div>
  );
}

/** A place that a run will fill; of one that has ended, one that stays empty. */
export function NotYet({ children }: { children: ReactNode }) {
  return <Empty>{useChartView().ended ? "None in this run." : children}</Empty>;
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className="empty">{children}</p>;
}

/** Says a change of state to a screen reader, politely; what stands when the page opens is no change. */
export function Announcer({ state }: { state: string }) {
  const before = useRef(state);
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (before.current === state) return;
    before.current = state;
    setSaid(state);
  }, [state]);
  return (
    <div role="status" aria-live="polite" className="unseen">
      {said}
    </div>
  );
}
