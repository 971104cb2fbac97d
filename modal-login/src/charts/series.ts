/** Curves as the charts draw them. Pure. */
import type { Point, Series } from "../api/check";
import type { ExamView } from "../api/contract";

/** Names of colours; the style sheet holds a light and a dark value of each. */
export type Tone = "truth" | "judged" | "pass" | "plain" | "alarm" | "l1" | "l2" | "l3" | "l4" | "l5";

export interface Line {
  readonly label: string;
  readonly points: Series;
  readonly tone: Tone;
  readonly dashed?: boolean;
  readonly stepped?: boolean;
  /** Mark every measurement: for those that are rare. */
  readonly marked?: boolean;
  /** Thin and pale: the raw values behind a smoothed line. */
  readonly faint?: boolean;
  readonly band?: { readonly low: Series; readonly high: Series };
  /** Drawn pale, with its trend. */
  readonly noisy?: boolean;
  /** Whose it is, where a chart has several runs. */
  readonly run?: string;
}

/** For lines that have no colour of their own, in this order. */
export const TONES: readonly Tone[] = ["truth", "judged", "pass", "alarm", "plain", "l1", "l3", "l4"];
const FEW = 30;

/** At most `most` of the points, evenly, always with the first and the last. */
export function thinned(points: Series, most: number): Series {
  if (points.length <= most) return points;
  const step = (points.length - 1) / (most - 1);
  return Array.from({ length: most }, (_, index) => points[Math.round(index * step)] as Point);
}

/** Mean over the neighbours within `reach` places on either side, fewer at the ends but as many on both sides. */
export function smoothed(points: Series, reach: number): Series {
  return points.map(([x], index): Point => {
    const near = Math.min(reach, index, points.length - 1 - index);
    const window = points.slice(index - near, index + near + 1);
    return [x, window.reduce((sum, [, y]) => sum + y, 0) / window.length];
  });
}

/** A noisy curve: what was measured, pale, and its trend; a short one as it is. share: of its points, averaged on either side. */
export function trend(line: Line, share: number): Line[] {
  const reach = Math.round(line.points.length * share);
  if (line.noisy !== true || line.points.length < FEW || reach < 1) return [line];
  return [
    { ...line, label: `${line.label}, smoothed`, points: smoothed(line.points, reach) },
    { ...line, faint: true },
  ];
}

type Field = "average" | "low" | "high" | "passed" | "pass_low" | "pass_high" | "believed";

/** One figure of every exam that has it. */
export function examSeries(exams: readonly ExamView[], field: Field): Series {
  return exams.flatMap((exam): Point[] => {
    const value = exam[field];
    return value === null ? [] : [[exam.iteration, value]];
  });
}

/** How a curve went, in words: for whoever does not see it. */
export function described(line: Line, format: (value: number) => string, along = "iteration"): string {
  const first = line.points[0];
  const last = line.points.at(-1);
  if (first === undefined || last === undefined) return `${line.label}: nothing measured yet.`;
  if (line.points.length === 1) return `${line.label}: ${format(last[1])} at ${along} ${place(last[0])}.`;
  const values = line.points.map(([, y]) => y);
  const range = `between ${format(Math.min(...values))} and ${format(Math.max(...values))}`;
  return `${line.label}: ${format(first[1])} at ${along} ${place(first[0])}, ${format(last[1])} at ${along} ${place(last[0])}, ${range}.`;
}

/** Along the bottom: iterations and steps are whole, a price is not. */
export const place = (x: number): string => (x > 0 && x < 1 ? x.toFixed(2) : String(Math.round(x)));
