/** Small drawings beside numbers. Each says in words what it shows. */
import { percent } from "../text/format";

const share = (value: number) => Math.min(1, Math.max(0, value));

/** A share as a bar. */
export function Meter({ label, value, text }: { label: string; value: number; text?: string }) {
  const shown = text ?? percent(value, 0);
  return (
    <div className="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={1} aria-valuenow={share(value)} aria-valuetext={shown}>
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect width="100" height="6" className="rail" />
        <rect width={100 * share(value)} height="6" className="fill" />
      </svg>
    </div>
  );
}

interface Range {
  readonly mean: number;
  readonly low: number | null;
  readonly high: number | null;
  readonly className?: string;
}

/** A value and the interval it lies in, on a scale from 0 to 100 %. Drawn only: the numbers stand beside it. */
export function Interval({ mean, low, high, className = "" }: Range) {
  const from = share(low ?? mean);
  const to = share(high ?? mean);
  return (
    <div className={`interval ${className}`} aria-hidden="true">
      <div className="bar" style={{ left: `${100 * from}%`, width: `${100 * (to - from)}%` }} />
      <div className="mean" style={{ left: `${100 * share(mean)}%` }} />
    </div>
  );
}

/** The rewards of a group, one bar an attempt; without a verdict, a ring. */
export function Rewards({ rewards }: { rewards: readonly (number | null)[] }) {
  const known = rewards.filter((reward) => reward !== null);
  const words = known.length === 0 ? "no verdicts" : `best ${Math.max(...known).toFixed(2)}, worst ${Math.min(...known).toFixed(2)}`;
  const shown = rewards.slice(0, 32);
  return (
    <span className="rewards" role="img" aria-label={`Rewards of ${rewards.length} attempts: ${words}`}>
      <svg viewBox={`0 0 ${shown.length * 7} 20`} width={shown.length * 7} height="20" aria-hidden="true">
        {shown.map((reward, index) =>
          reward === null ? (
            <circle key={index} cx={index * 7 + 2.5} cy="17" r="2" className="unknown" />
          ) : (
            <g key={index}>
              <rect x={index * 7} y="0" width="5" height="20" rx="1" className="rail" />
              <rect x={index * 7} y={20 - Math.max(1, 20 * share(reward))} width="5" height={Math.max(1, 20 * share(reward))} rx="1" className="fill" />
            </g>
          ),
        )}
      </svg>
    </span>
  );
}

const WIDE = 96;
const HIGH = 24;

/** Shares one after another as a small curve, from the lowest to the highest of them. */
export function Sparkline({ label, values }: { label: string; values: readonly number[] }) {
  const [first, last] = [values[0], values.at(-1)];
  if (first === undefined || last === undefined) return <span className="muted">–</span>;
  const low = Math.min(...values);
  const span = Math.max(Math.max(...values) - low, 0.02);
  const at = (value: number, index: number) => `${((WIDE - 6) * index) / Math.max(values.length - 1, 1) + 3},${HIGH - 3 - ((HIGH - 6) * (value - low)) / span}`;
  const places = values.map(at);
  const [x, y] = places.at(-1)?.split(",") ?? [];
  return (
    <svg className="sparkline tone-truth" viewBox={`0 0 ${WIDE} ${HIGH}`} width={WIDE} height={HIGH} role="img" aria-label={`${label}: from ${percent(first)} to ${percent(last)}`}>
      <polyline points={places.join(" ")} />
      <circle cx={x} cy={y} r="2.5" />
    </svg>
  );
}

export function LevelDots({ level }: { level: number | null }) {
  const filled = level === null ? 0 : Math.round(level);
  return (
    <span className="dots" aria-hidden="true">
      {[1, 2, 3, 4, 5].map((place) => (
        <i key={place} className={place <= filled ? "on" : ""} />
      ))}
    </span>
  );
}
