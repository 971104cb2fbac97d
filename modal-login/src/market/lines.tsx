/** Games in tables, and the price of one as a curve. */
import type { ReactNode } from "react";

import type { GameLine, PriceRow } from "../api/market_contract";
import { LineChart } from "../charts/linechart";
import type { Axis } from "../charts/setup";
import { ForeignLine } from "../parts/foreign";
import { Empty } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { formatRoute } from "../route";
import { count, decimal, percent } from "../text/format";

const STEPS = 4;
export const BY_STEP: Axis = { min: 0, max: 1, step: 0.25, until: STEPS, along: "step", format: (value) => percent(value, 0) };

export const signed = (value: number | null, digits = 3) => (value !== null && value > 0 ? `+${decimal(value, digits)}` : decimal(value, digits));

/** A report: how probably the program is right. */
export const share = (q: number | null) => (q === null ? "–" : percent(q / 10_000, 0));

export function State({ line }: { line: GameLine }) {
  if (line.state === "open") return `open: ${line.phase}, ${count(line.rounds_left, "round")} left`;
  if (line.state === "pending") return "over, not settled here yet";
  return line.state === "void" ? <>void: <ForeignLine text={line.void} limit={120} /></> : line.right ? "settled: right" : "settled: wrong";
}

const GAME = { key: "game", title: "game" };
const STATE = { key: "state", title: "state" };
const WIN = { key: "win", title: <Term of="playPoints">win</Term>, numeric: true };
const BETS = [GAME, WIN, STATE, ...[1, 2, 3, 4].map((step) => ({ key: `step-${step}`, title: `step ${step}` }))];
const ENDED = [GAME, STATE, WIN];

interface Props {
  readonly run: string;
  readonly label: string;
  readonly lines: readonly GameLine[];
  readonly empty: ReactNode;
}

export function Bets({ run, label, lines, empty }: Props) {
  if (lines.length === 0) return <Empty>{empty}</Empty>;
  return (
    <Table label={label} head={BETS}>
      {lines.map((line) => (
        <tr key={line.id}>
          <Game run={run} line={line} />
          <td className="numeric">{signed(line.win)}</td>
          <td className="words">
            <State line={line} />
          </td>
          {line.own.map((q, step) => (
            <td key={step}>{share(q)}</td>
          ))}
        </tr>
      ))}
    </Table>
  );
}

export function Ended({ run, label, lines, empty }: Props) {
  if (lines.length === 0) return <Empty>{empty}</Empty>;
  return (
    <Table label={label} head={ENDED}>
      {lines.map((line) => (
        <tr key={line.id}>
          <Game run={run} line={line} />
          <td className="words">
            <State line={line} />
          </td>
          <td className="numeric">{signed(line.win)}</td>
        </tr>
      ))}
    </Table>
  );
}

function Game({ run, line }: { run: string; line: GameLine }) {
  return (
    <th scope="row">
      <a href={formatRoute({ page: "game", run, id: line.id })}>
        <code>{line.id.slice(0, 8)}</code> <ForeignLine text={line.question} limit={40} />
      </a>
    </th>
  );
}

export function PriceCurve({ price, title = "Price by step" }: { price: PriceRow | null; title?: ReactNode }) {
  const points = (price?.steps ?? []).map((p, step): readonly [number, number] => [step + 1, p]);
  const note = price === null ? undefined : price.voters === 0 ? "Nobody has a vote yet: the price is even." : `By ${count(price.voters, "peer")} with a vote.`;
  return <LineChart title={title} note={note} lines={[{ label: "right", points, tone: "judged", marked: true }]} axis={BY_STEP} empty="Appears when the first reports arrive, in the round after the announcement." />;
}

export function Tests({ outcomes }: { outcomes: readonly (boolean | null)[] }) {
  if (outcomes.length === 0) return <p className="note">No <Term of="evidence">evidence</Term> so far.</p>;
  const words = outcomes.slice(0, 64).map((passed) => (passed === null ? "not told" : passed ? "passes" : "fails"));
  return (
    <p className="note">
      <Term of="evidence">Evidence</Term>, test by test: {words.join(", ")}.
    </p>
  );
}
