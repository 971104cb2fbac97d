/** A chart for everybody: drawn, said in words, and as a table. */
import { type PointerEvent, type ReactNode, useEffect, useId, useMemo, useRef, useState } from "react";

import { described, type Line, place, thinned, trend } from "./series";
import { type Axis, Chart, configuration, datasets, type LineChart as Drawn, rescale } from "./setup";
import { type Span, useChartView } from "./view";

const TABLE_ROWS = 20;
/** Pixels; a shorter drag is a click. */
const LEAST_DRAG = 8;

interface Props {
  readonly title: ReactNode;
  /** The figure of now, beside the title. */
  readonly now?: ReactNode;
  readonly note?: ReactNode;
  readonly lines: readonly Line[];
  readonly axis: Axis;
  readonly tall?: boolean;
  /** Over all columns of its grid. */
  readonly wide?: boolean;
  /** Named even where there is one line only. */
  readonly legend?: boolean;
  /** Said when nothing has been measured: what will appear here, and when. */
  readonly empty: string;
}

export function LineChart({ title, now, note, lines, axis, tall = false, wide = false, legend = false, empty }: Props) {
  const { shown, seen, zoom, ended } = useSeen(lines, axis);
  const named = shown.filter((line) => !line.faint);
  const heading = useId();
  return (
    <figure className={wide ? "chart card wide" : "chart card"} aria-labelledby={heading}>
      <figcaption>
        <h3 id={heading}>{title}</h3>
        {now !== undefined && shown.length > 0 && <span className="now">{now}</span>}
      </figcaption>
      {note !== undefined && <p className="note">{note}</p>}
      {shown.length > 0 ? (
        <>
          {(legend || named.length > 1) && <Legend lines={named} />}
          <Canvas lines={shown} axis={seen} tall={tall} zoom={zoom} />
          <Values lines={shown.length > named.length ? shown.filter((line) => line.faint) : named} axis={seen} />
        </>
      ) : (
        <p className="empty">{ended ? "Not measured in this run." : empty}</p>
      )}
    </figure>
  );
}

/** The lines on the page's ruler and as smooth as the page wants them; those with a measure of their own as they are. */
function useSeen(lines: readonly Line[], axis: Axis) {
  const view = useChartView();
  return useMemo(() => {
    const { ruler, run, smoothing, span, zoom, ended } = view;
    const some = (shown: readonly Line[]) => shown.filter((line) => line.points.length > 0);
    if (axis.along !== undefined) return { shown: some(lines), seen: axis, zoom: null, ended };
    const placed = lines.map((line): Line => {
      const at = (points: Line["points"]) => ruler.place(line.run ?? run, points);
      const band = line.band && { band: { low: at(line.band.low), high: at(line.band.high) } };
      return { ...line, points: at(line.points), ...band };
    });
    const until = axis.until === null ? null : (ruler.place(run, [[axis.until, 0]])[0]?.[0] ?? null);
    return { shown: some(placed.flatMap((line) => trend(line, smoothing))), seen: { ...axis, along: ruler.name, digits: ruler.digits, until, span }, zoom, ended };
  }, [lines, axis, view]);
}

function Canvas({ lines, axis, tall, zoom }: { lines: readonly Line[]; axis: Axis; tall: boolean; zoom: ((span: Span | null) => void) | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const chart = useRef<Drawn | null>(null);
  const latest = useRef(lines);
  latest.current = lines;
  const measure = useRef(axis);
  measure.current = axis;
  const scheme = useScheme();
  useEffect(() => {
    if (canvas.current === null) return undefined;
    const made: Drawn = new Chart(canvas.current, configuration(() => latest.current, () => measure.current));
    chart.current = made;
    return () => made.destroy();
    // Colours change with the scheme; all else is updated below.
  }, [scheme]);
  const fingerprint = lines.map(({ label, points, band }) => `${label} ${points.length} ${String(points[points.length >> 1])} ${String(points.at(-1))} ${String(band?.high.at(-1))}`).join();
  useEffect(() => {
    if (chart.current === null) return;
    chart.current.data.datasets = datasets(latest.current);
    rescale(chart.current, axis);
    chart.current.update("none");
  }, [fingerprint, scheme, axis.min, axis.max, axis.until, axis.along, axis.span]);
  const drag = useDrag(chart, zoom);
  const summary = lines.filter((line) => !line.faint).map((line) => described(line, axis.format, axis.along));
  return (
    <div className={tall ? "plot tall" : "plot"} {...drag.handlers}>
      <canvas ref={canvas} role="img" aria-label={summary.join(" ")} />
      {drag.box}
    </div>
  );
}

/** A mouse or a pen marks the part to be shown; a finger scrolls the page. */
function useDrag(chart: { readonly current: Drawn | null }, zoom: ((span: Span | null) => void) | null) {
  const [marked, setMarked] = useState<Span | null>(null);
  if (zoom === null) return { handlers: {}, box: null };
  const at = (event: PointerEvent<HTMLElement>) => event.clientX - event.currentTarget.getBoundingClientRect().left;
  const [left, right] = marked === null ? [0, 0] : [Math.min(...marked), Math.max(...marked)];
  const handlers = {
    onPointerDown: (event: PointerEvent<HTMLElement>) => {
      if (event.pointerType === "touch" || event.button !== 0) return;
      event.currentTarget.setPointerCapture(event.pointerId);
      setMarked([at(event), at(event)]);
    },
    onPointerMove: (event: PointerEvent<HTMLElement>) => marked !== null && setMarked([marked[0], at(event)]),
    onPointerUp: () => {
      const x = chart.current?.scales["x"];
      if (x !== undefined && right - left >= LEAST_DRAG) zoom([x.getValueForPixel(left) ?? 0, x.getValueForPixel(right) ?? 0]);
      setMarked(null);
    },
    onPointerCancel: () => setMarked(null),
    onDoubleClick: () => zoom(null),
  };
  return { handlers, box: right - left < LEAST_DRAG ? null : <div className="marked" style={{ left, width: right - left }} /> };
}

function Legend({ lines }: { lines: readonly Line[] }) {
  return (
    <ul className="legend">
      {lines.map((line) => (
        <li key={line.run ?? line.label}>
          <svg viewBox="0 0 24 10" width="24" height="10" aria-hidden="true" className={`tone-${line.tone}`}>
            {line.band !== undefined && <rect width="24" height="10" className="swatch-band" />}
            <line x1="0" x2="24" y1="5" y2="5" className="swatch" strokeDasharray={line.dashed ? "6 3" : undefined} />
          </svg>
          {line.label}
        </li>
      ))}
    </ul>
  );
}

/** Rows are made only when somebody opens it. */
function Values({ lines, axis }: { lines: readonly Line[]; axis: Axis }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="values" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Values as a table</summary>
      {open && <ValueTable lines={lines} axis={axis} />}
    </details>
  );
}

function ValueTable({ lines, axis }: { lines: readonly Line[]; axis: Axis }) {
  const longest = lines.reduce((best, line) => (line.points.length > best.points.length ? line : best), lines[0] as Line);
  const columns = lines.map((line) => ({ line, at: new Map(line.points), low: new Map(line.band?.low), high: new Map(line.band?.high) }));
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Values of the chart">
      <table>
        <thead>
          <tr>
            <th scope="col">{axis.along ?? "iteration"}</th>
            {lines.map((line) => (
              <th scope="col" key={line.label}>
                {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {thinned(longest.points, TABLE_ROWS).map(([x]) => (
            <tr key={x}>
              <th scope="row">{place(x)}</th>
              {columns.map(({ line, at, low, high }) => (
                <td key={line.label}>{cell(at.get(x), low.get(x), high.get(x), axis.format)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function cell(value: number | undefined, low: number | undefined, high: number | undefined, format: Axis["format"]): string {
  if (value === undefined) return "–";
  return low === undefined || high === undefined ? format(value) : `${format(value)} [${format(low)}, ${format(high)}]`;
}

/** Changes when the colours of the page do. */
function useScheme(): string {
  const [scheme, setScheme] = useState("");
  useEffect(() => {
    const queries = ["(prefers-color-scheme: dark)", "(prefers-contrast: more)", "(forced-colors: active)"].map((query) => window.matchMedia(query));
    const changed = () => setScheme(queries.map((query) => query.matches).join());
    for (const query of queries) query.addEventListener("change", changed);
    return () => queries.forEach((query) => query.removeEventListener("change", changed));
  }, []);
  return scheme;
}
