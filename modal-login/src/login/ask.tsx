/** One thing to do, with its button: while it goes on it cannot be begun again, and its failure is said beside it. */
import { type ReactNode, useId, useState } from "react";

import type { LoginState } from "../api/login_contract";
import { Trouble } from "../parts/notice";

interface Props {
  readonly action: string;
  readonly doing: string;
  readonly run: () => Promise<LoginState>;
  readonly onSession: (session: LoginState) => void;
  /** Why it cannot be done now; null: it can. */
  readonly hindrance?: string | null;
  readonly primary?: boolean;
  readonly children?: ReactNode;
}

export function Ask({ action, doing, run, onSession, hindrance = null, primary = false, children }: Props) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const why = useId();
  const start = () => {
    if (busy || hindrance !== null) return;
    setBusy(true);
    setError(null);
    run()
      .then(onSession, setError)
      .finally(() => setBusy(false));
  };
  return (
    <form
      className="ask"
      onSubmit={(event) => {
        event.preventDefault();
        start();
      }}
    >
      {children}
      <button type="submit" className={primary ? "primary" : ""} disabled={busy} aria-disabled={hindrance !== null} aria-describedby={hindrance === null ? undefined : why}>
        {busy ? doing : action}
      </button>
      {hindrance !== null && (
        <p className="note" id={why}>
          {hindrance}
        </p>
      )}
      {error !== null && <Trouble error={error} />}
    </form>
  );
}
