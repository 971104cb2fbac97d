/** The curves in which runs can be compared. Pure. */
import type { Point, Series } from "../api/check";
import type { ExamView, RunView } from "../api/contract";
import { examSeries, type Line, TONES } from "../charts/series";
import type { Axis } from "../charts/setup";
import { axesOf, seriesOf } from "../overview/axes";
import type { TermKey } from "../text/glossary";

type Drawn = Pick<Line, "points" | "band" | "marked" | "noisy" | "stepped">;

export interface Curve {
  readonly key: string;
  readonly name: string;
  readonly term: TermKey;
  readonly exam: boolean;
  readonly read: (view: RunView) => Drawn;
  readonly axis: (points: Series) => Axis;
}

const AXES = axesOf({ iteration: null });

/** Those that were measured as the newest one was: only they compare. */
export function comparable(exams: readonly ExamView[]): readonly ExamView[] {
  const last = exams.at(-1);
  return exams.filter((exam) => exam.source === last?.source && exam.samples === last.samples);
}

type Figures = readonly [value: "average" | "passed", low: "low" | "pass_low", high: "high" | "pass_high"];

function exam(key: string, name: string, term: TermKey, [value, low, high]: Figures): Curve {
  const read = (view: RunView): Drawn => {
    const exams = comparable(view.exams);
    const band = { low: examSeries(exams, low), high: examSeries(exams, high) };
    return { points: examSeries(exams, value), marked: true, ...(band.low.length > 0 && { band }) };
  };
  return { key, name, term, exam: true, read, axis: () => AXES.share };
}

function plain(key: string, name: string, term: TermKey, axis: Curve["axis"], look: Partial<Drawn> = { noisy: true }): Curve {
  return { key, name, term, exam: false, axis, read: (view) => ({ points: seriesOf(view, key), ...look }) };
}

const AVERAGE = exam("average", "average@k", "average", ["average", "low", "high"]);
export const CURVES: readonly [Curve, ...Curve[]] = [
  AVERAGE,
  exam("passed", "pass@k", "pass", ["passed", "pass_low", "pass_high"]),
  plain("reward", "reward", "reward", () => AXES.reward),
  plain("loss", "loss", "loss", () => AXES.free),
  plain("entropy", "entropy", "entropy", () => AXES.free),
  plain("zero_spread_share", "groups without spread", "spread", () => AXES.share),
  plain("level", "level", "level", () => AXES.level, { stepped: true }),
  plain("judge_within_auroc", "AUROC within groups", "within", AXES.auroc),
  plain("judge_auroc", "AUROC over problems", "auroc", AXES.auroc),
];

/** The run in one place of the comparison; both decide how its line looks, so it looks the same in every curve. */
export interface Placed {
  readonly run: string;
  readonly name: string;
  readonly tone: Line["tone"];
  readonly dashed: boolean;
}

/** Colours alone do not tell eight lines apart: every other one is dashed. A run that is named twice has its first place. */
export function placed(chosen: readonly string[], nameOf: (run: string) => string): readonly Placed[] {
  return chosen.flatMap((run, place) =>
    run === "" || chosen.indexOf(run) < place ? [] : [{ run, name: nameOf(run), tone: TONES[place % TONES.length] ?? "plain", dashed: place % 2 === 1 }],
  );
}

export function lineOf(curve: Curve, { run, name, tone, dashed }: Placed, view: RunView | null): Line {
  return { label: name, run, tone, dashed, ...(view === null ? { points: [] satisfies Point[] } : curve.read(view)) };
}
