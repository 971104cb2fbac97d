/** Chart.js with only what lines need, and its settings in the colours of the page. */
import { Chart, type ChartConfiguration, type ChartDataset, Filler, LinearScale, LineController, LineElement, PointElement, Tooltip, type TooltipItem } from "chart.js";

import { type Line, place, type Tone } from "./series";

Chart.register(LineController, LineElement, PointElement, LinearScale, Filler, Tooltip);

export interface Axis {
  readonly min?: number;
  readonly max?: number;
  /** Distance of two marks. */
  readonly step?: number;
  /** The iteration that all curves reach to. */
  readonly until: number | null;
  /** What is counted along the bottom, of a chart that has its own measure; without it that of the page. */
  readonly along?: string;
  /** The part that is shown along the bottom. */
  readonly span?: readonly [number, number] | null;
  /** Of the marks along the bottom, behind the point. */
  readonly digits?: number;
  readonly format: (value: number) => string;
}

interface Place {
  x: number;
  y: number;
}
type Dataset = ChartDataset<"line", Place[]>;
export type LineChart = Chart<"line", Place[]>;
type Configuration = ChartConfiguration<"line", Place[]>;

/** Pixels by which a line may leave the plot, lest one at its edge loses half its width. */
const EDGE = 4;
const TICKS_X = 6;
const TICKS_Y = 6;

function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const colour = (tone: Tone) => css(`--${tone}`);
const pale = (tone: Tone) => css(`--${tone}-band`);

/** A band is two borderless curves, the upper one filled down to the lower one; it comes before its line. */
export function datasets(lines: readonly Line[]): Dataset[] {
  return lines.flatMap((line) => {
    const bounds = line.band === undefined ? [] : [edge(line.band.low, line.tone, false), edge(line.band.high, line.tone, true)];
    return [...bounds, drawn(line)];
  });
}

function drawn(line: Line): Dataset {
  const few = line.points.length < 2;
  return {
    label: line.label,
    data: places(line.points),
    borderColor: line.faint ? pale(line.tone) : colour(line.tone),
    backgroundColor: colour(line.tone),
    borderWidth: line.faint ? 1 : 2,
    borderDash: line.dashed ? [6, 4] : [],
    borderJoinStyle: "round",
    stepped: line.stepped ? "before" : false,
    pointRadius: line.marked || few ? 2.5 : 0,
    pointHoverRadius: 4,
    pointHitRadius: 8,
    clip: EDGE,
  };
}

function edge(points: Line["points"], tone: Tone, filled: boolean): Dataset {
  return { label: "", data: places(points), borderWidth: 0, pointRadius: 0, pointHoverRadius: 0, backgroundColor: pale(tone), fill: filled ? "-1" : false };
}

const places = (points: Line["points"]): Place[] => points.map(([x, y]) => ({ x, y }));

/** Both are asked anew for every tooltip, for the chart lives longer than its values. */
export function configuration(lines: () => readonly Line[], axis: () => Axis): Configuration {
  return { type: "line", data: { datasets: datasets(lines()) }, options: options(lines, axis) };
}

function options(lines: () => readonly Line[], measure: () => Axis): NonNullable<Configuration["options"]> {
  const axis = measure();
  const font = { family: css("--sans"), size: 12 };
  const ticks = { color: css("--muted"), font, maxRotation: 0, autoSkipPadding: 12 };
  const grid = { color: css("--grid"), tickLength: 0 };
  return {
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    parsing: false,
    normalized: true,
    interaction: { mode: "nearest", axis: "x", intersect: false },
    layout: { padding: { top: 6, right: 6 } },
    scales: {
      x: { type: "linear", bounds: "data", beginAtZero: true, border: { display: false }, grid: { display: false }, ticks: { ...ticks, maxTicksLimit: TICKS_X, precision: axis.digits ?? 0, padding: 6 } },
      y: {
        ...bounds(axis),
        border: { display: false },
        grid,
        ticks: { ...ticks, maxTicksLimit: TICKS_Y, padding: 8, callback: (value) => axis.format(Number(value)) },
      },
    },
    plugins: { tooltip: tooltip(lines, measure, font) },
  };
}

/** The bounds that follow the values. */
export function rescale(chart: LineChart, axis: Axis): void {
  const { x, y } = chart.options.scales ?? {};
  const [min, max] = axis.span ?? [undefined, undefined];
  if (x !== undefined) Object.assign(x, { min, max, suggestedMax: axis.until ?? undefined });
  if (x?.ticks !== undefined) Object.assign(x.ticks, { precision: axis.digits ?? 0 });
  if (y !== undefined) Object.assign(y, bounds(axis));
  if (y?.ticks !== undefined && axis.step !== undefined) Object.assign(y.ticks, { stepSize: axis.step });
}

function bounds(axis: Axis): { min?: number; max?: number; grace?: string } {
  return {
    ...(axis.min === undefined ? { grace: "5%" } : { min: axis.min }),
    ...(axis.max === undefined ? {} : { max: axis.max }),
  };
}

function tooltip(lines: () => readonly Line[], measure: () => Axis, font: { family: string; size: number }) {
  return {
    filter: (item: TooltipItem<"line">) => item.dataset.label !== "",
    backgroundColor: css("--ink"),
    titleColor: css("--surface"),
    bodyColor: css("--surface"),
    titleFont: { ...font, weight: 600 as const },
    bodyFont: font,
    padding: 10,
    cornerRadius: 6,
    boxWidth: 10,
    boxHeight: 2,
    callbacks: {
      title: (items: TooltipItem<"line">[]) => `${measure().along ?? "iteration"} ${place(items[0]?.parsed.x ?? 0)}`,
      label: (item: TooltipItem<"line">) => {
        const line = lines().find(({ label }) => label === item.dataset.label);
        const low = line?.band?.low.find(([x]) => x === item.parsed.x)?.[1];
        const high = line?.band?.high.find(([x]) => x === item.parsed.x)?.[1];
        const around = low === undefined || high === undefined ? "" : ` [${measure().format(low)}, ${measure().format(high)}]`;
        return ` ${item.dataset.label}: ${measure().format(item.parsed.y ?? Number.NaN)}${around}`;
      },
    },
  };
}

export { Chart };
