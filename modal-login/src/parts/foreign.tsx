/** Text of peers and models: always a text node, with whatever is invisible made visible. */
import { Fragment, useMemo, useState } from "react";

import { count } from "../text/format";
import { answer, tokens } from "../text/python";
import { type Piece, visible } from "../text/visible";

const FIRST = { characters: 6_000, line: 1_500 };
/** "Show all" has a bound, too: a browser can hang on a line of a million characters. */
const MOST = { characters: 120_000, line: 30_000 };
const LINE = 200;

function Pieces({ pieces }: { pieces: readonly Piece[] }) {
  return pieces.map((piece, index) =>
    piece.escaped ? (
      <span key={index} className="escape">
        {piece.text}
      </span>
    ) : (
      <Fragment key={index}>{piece.text}</Fragment>
    ),
  );
}

/** Code in colours, with what is escaped set apart as anywhere. */
function Coloured({ pieces, read }: { pieces: readonly Piece[]; read: typeof tokens }) {
  return pieces.map((piece, index) =>
    piece.escaped ? (
      <Pieces key={index} pieces={[piece]} />
    ) : (
      <Fragment key={index}>{read(piece.text).map(({ kind, text }, place) => (kind === "plain" ? text : <span key={place} className={kind}>{text}</span>))}</Fragment>
    ),
  );
}

/** A name, a reason, a question in a list: one line. */
export function ForeignLine({ text, limit = LINE }: { text: string; limit?: number }) {
  const { pieces, hidden } = useMemo(() => visible(text.slice(0, limit + 1).replace(/[\t\r\n]+/g, " "), { characters: limit, line: limit }), [text, limit]);
  return (
    <bdi className="foreign">
      <Pieces pieces={pieces} />
      {hidden > 0 && "…"}
    </bdi>
  );
}

interface Props {
  readonly text: string;
  readonly label: string;
  /** Code is read letter by letter from left to right, whatever the script; prose is not. */
  readonly code?: boolean;
  /** Shown in colours: as Python, or as an answer that may have words around its code. */
  readonly python?: "code" | "answer";
  /** As much of it as a page can show, at once. */
  readonly whole?: boolean;
  /** The server sent only its beginning. */
  readonly cut?: boolean;
}

export function ForeignText({ text, label, code = false, python, whole = false, cut = false }: Props) {
  const [all, setAll] = useState(whole);
  const { pieces, hidden } = useMemo(() => visible(text, all ? MOST : FIRST), [text, all]);
  if (text.trim() === "") return <p className="empty">Empty: there is no text.</p>;
  return (
    <div className="foreign-text">
      <pre className={code ? "code" : "prose"} tabIndex={0} role="region" aria-label={label}>
        {python === undefined ? <Pieces pieces={pieces} /> : <Coloured pieces={pieces} read={python === "code" ? tokens : answer} />}
      </pre>
      {hidden > 0 && !all && (
        <button type="button" className="quiet" onClick={() => setAll(true)}>
          Show all ({count(hidden, "more character")})
        </button>
      )}
      {hidden > 0 && all && <p className="note">{count(hidden, "character")} of it are too much for a page and are left out.</p>}
      {cut && <p className="note">This is its beginning; the node keeps no more of it.</p>}
    </div>
  );
}
