/** Does it learn? And does it run? The two answers at the top of the page, worked out from the view. Pure. */
import type { ExamView, RunView } from "../api/contract";
import type { Link } from "../api/live";
import { ago, duration, percent, points } from "../text/format";
import { visibleLine } from "../text/visible";

export interface Headline {
  readonly answer: string;
  readonly sentence: string;
  /** What this rests on. */
  readonly basis: string;
  readonly first: ExamView | null;
  readonly last: ExamView | null;
}

/** Now against the first exam that was measured the same way. Only a change beyond its interval, by pairs of problems, is a Yes or a No. */
export function headline(exams: readonly ExamView[], ended = false): Headline {
  const last = exams.at(-1) ?? null;
  if (last === null) {
    const sentence = ended ? "No exam was held before the run ended." : "The first exam has not been held yet; it comes with the first iterations.";
    return { answer: ended ? "Not measured." : "Not measured yet.", sentence, basis: "", first: null, last: null };
  }
  const first = exams.find((exam) => exam.source === last.source) ?? last;
  const basis = `average@${last.samples}, ${howMeasured(last.source)}${last.set === "" ? "" : `: ${visibleLine(last.set, 120)}`}`;
  const now = `${percent(last.average)} of its attempts at problems it never trains on pass every test`;
  if (first === last) {
    const more = ended ? "There was no second exam to compare it with." : "The next exam will show whether that changes.";
    return { answer: ended ? "Not known." : "Too early to say.", sentence: `${now}. ${more}`, basis, first: null, last };
  }
  return { answer: answerTo(first, last, ended), sentence: `${now}: ${compared(last.average - first.average)}.`, basis, first, last };
}

function compared(change: number): string {
  if (Math.abs(change) < 0.0005) return "the same as at first";
  return `${points(change)} ${change > 0 ? "more" : "fewer"} than at first`;
}

function answerTo(first: ExamView, last: ExamView, ended: boolean): string {
  const known = first.low !== null && first.high !== null && last.low !== null && last.high !== null;
  const rise = last.gain_low ?? (known ? last.low - first.high : 0);
  const fall = last.gain_high ?? (known ? last.high - first.low : 0);
  if (rise > 0) return "Yes.";
  if (fall < 0) return "No, it got worse.";
  if (last.average > first.average) return `It looks like it, but this is not proven${ended ? "" : " yet"}.`;
  return ended ? "No." : "Not so far.";
}

function howMeasured(source: string): string {
  if (source === "executed") return "executed in a sandbox";
  if (source === "judged") return "only judged, nothing was executed";
  return visibleLine(source, 60);
}

export interface State {
  readonly tone: "live" | "stale" | "ended" | "lost";
  readonly words: string;
  /** The same without the clock: what a screen reader is told when it changes. */
  readonly change: string;
}

/** `now` in seconds since 1970. */
export function runState(view: RunView, link: Link, now: number): State {
  const last = view.updated === null ? "no step yet" : `last step ${ago(view.updated, now)}`;
  if (link === "lost") return { tone: "lost", words: `No connection to the node, trying again · ${last}`, change: "The connection to the node is lost." };
  if (!view.running) {
    if (view.supervisor !== "") {
      const words = visibleLine(view.supervisor, 200);
      return { tone: "ended", words: `${words} · ${last}`, change: words };
    }
    const why = view.stopped === "" ? "it was killed, or its machine went down" : visibleLine(view.stopped, 120);
    return { tone: "ended", words: `Ended: ${why} · ${last}`, change: `The run has ended: ${why}.` };
  }
  if (view.updated === null) return { tone: "live", words: "Starting: no step yet", change: "The run is starting." };
  const age = now - view.updated;
  if (age > view.limit_seconds) {
    return { tone: "stale", words: `No step for ${duration(age)}: it may have stalled`, change: "The run seems to have stalled." };
  }
  return { tone: "live", words: `Learning · ${last}`, change: "The run goes on." };
}
