/** A word of the field with its explanation behind it: a button, so that keyboard, finger and screen reader reach it. */
import { type ReactNode, type ToggleEvent, useId, useRef } from "react";

import { GLOSSARY, type TermKey } from "../text/glossary";

const MARGIN = 12;

export function Term({ of, children }: { of: TermKey; children: ReactNode }) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const place = (event: ToggleEvent<HTMLSpanElement>) => {
    if (event.newState === "open" && button.current !== null) placeBelow(event.currentTarget, button.current);
  };
  return (
    <span className="term">
      <button type="button" ref={button} popoverTarget={id} title="What does this mean?">
        {children}
      </button>
      <span popover="auto" id={id} className="explanation" role="note" onToggle={place}>
        {GLOSSARY[of]}
      </span>
    </span>
  );
}

/** Below its word where there is room, else above; never beyond the edge of the window. */
function placeBelow(note: HTMLElement, word: HTMLElement): void {
  const at = word.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = note;
  const left = Math.min(Math.max(MARGIN, at.left), window.innerWidth - width - MARGIN);
  const below = at.bottom + 6;
  const top = below + height + MARGIN > window.innerHeight ? Math.max(MARGIN, at.top - height - 6) : below;
  note.style.left = `${Math.max(MARGIN, left)}px`;
  note.style.top = `${top}px`;
}
