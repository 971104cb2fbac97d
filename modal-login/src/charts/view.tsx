/** How all charts of a page are looked at: what runs along the bottom, how much they are smoothed, which part is shown. */
import { createContext, type ReactNode, useContext, useMemo, useState } from "react";

import { ALONG, type Along, type Curves, passed, type Ruler, rulerOf } from "./ruler";

export type Span = readonly [from: number, to: number];

interface ChartView {
  readonly ruler: Ruler;
  /** Share of a curve's points that are averaged on either side. */
  readonly smoothing: number;
  /** On the ruler; null: everything. */
  readonly span: Span | null;
  readonly zoom: (span: Span | null) => void;
  /** The run of curves that name none. */
  readonly run: string;
  /** Nothing will be measured any more. */
  readonly ended: boolean;
}

const SMOOTHING = 4;
const NAMES: Readonly<Record<Along, string>> = { iteration: "iterations", time: "time", tokens: "tokens sampled" };
const ALL: ChartView = { ruler: rulerOf("iteration", new Map()), smoothing: SMOOTHING / 100, span: null, zoom: () => undefined, run: "", ended: false };
const Shared = createContext<ChartView>(ALL);
const Chosen = createContext<ReactNode>(null);

export const useChartView = () => useContext(Shared);
/** The controls, wherever a page puts them. */
export const ChartControls = () => useContext(Chosen);

export function Charts({ runs, ended = false, children }: { runs: Curves; ended?: boolean; children: ReactNode }) {
  const [along, setAlong] = useState<Along>("iteration");
  const [percent, setPercent] = useState(SMOOTHING);
  const [span, zoom] = useState<Span | null>(null);
  const ruler = useMemo(() => rulerOf(along, runs), [along, runs]);
  const view = useMemo(
    (): ChartView => ({ ruler, smoothing: percent / 100, span, zoom, run: runs.keys().next().value ?? "", ended }),
    [ruler, percent, span, runs, ended],
  );
  const known = ALONG.filter((each) => each === "iteration" || [...runs.values()].some((curves) => passed(each, curves).length > 1));
  const controls = (
    <div className="controls card" role="group" aria-label="How the charts are shown">
      <label>
        Along{" "}
        <select
          value={along}
          onChange={(event) => {
            setAlong(known.find((each) => each === event.target.value) ?? "iteration");
            zoom(null);
          }}
        >
          {known.map((each) => (
            <option key={each} value={each}>
              {NAMES[each]}
            </option>
          ))}
        </select>
      </label>
      <label>
        Smoothing <input type="range" min="0" max="20" value={percent} aria-valuetext={`${percent} %`} onChange={(event) => setPercent(Number(event.target.value))} />
      </label>
      <Zoom key={`${along} ${String(span)}`} span={span} zoom={zoom} name={ruler.name} />
    </div>
  );
  return (
    <Shared value={view}>
      <Chosen value={controls}>{children}</Chosen>
    </Shared>
  );
}

function Zoom({ span, zoom, name }: { span: Span | null; zoom: (span: Span | null) => void; name: string }) {
  const [from, setFrom] = useState(span === null ? "" : tidy(span[0]));
  const [to, setTo] = useState(span === null ? "" : tidy(span[1]));
  const given: Span = [Number(from), Number(to)];
  const good = from !== "" && to !== "" && given[0] < given[1];
  return (
    <form
      className="zoom"
      onSubmit={(event) => {
        event.preventDefault();
        if (good) zoom(given);
      }}
    >
      <label>
        From <input type="number" step="any" value={from} onChange={(event) => setFrom(event.target.value)} />
      </label>
      <label>
        to <input type="number" step="any" value={to} onChange={(event) => setTo(event.target.value)} /> {name === "iteration" ? "" : name}
      </label>
      <button type="submit" className="quiet" aria-disabled={!good}>
        Zoom
      </button>
      {span !== null && (
        <button type="button" className="quiet" onClick={() => zoom(null)}>
          Show all
        </button>
      )}
      {span === null && <span className="note">or drag over a chart</span>}
    </form>
  );
}

const tidy = (value: number) => String(Number(value.toPrecision(4)));
