/** A long id: its beginning and end, and a button that copies it whole. */
import { useEffect, useState } from "react";

import { short } from "../text/format";
import { visibleLine } from "../text/visible";

const SHOWN_MS = 2_000;

export function Copyable({ value, label }: { value: string; label: string }) {
  const [said, setSaid] = useState("");
  useEffect(() => {
    if (said === "") return undefined;
    const timer = window.setTimeout(() => setSaid(""), SHOWN_MS);
    return () => window.clearTimeout(timer);
  }, [said]);
  const copy = () => {
    navigator.clipboard.writeText(value).then(
      () => setSaid("copied"),
      () => setSaid("the browser does not allow it"),
    );
  };
  return (
    <span className="copyable">
      <code title={visibleLine(value, 128)}>{short(visibleLine(value, 128))}</code>
      <button type="button" className="icon" onClick={copy} aria-label={`Copy ${label}`}>
        <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
          <rect x="5.5" y="5.5" width="8" height="8" rx="1.5" />
          <path d="M10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2" />
        </svg>
      </button>
      <span role="status" className="said">
        {said}
      </span>
    </span>
  );
}
