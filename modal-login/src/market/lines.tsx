/** Games in tables, and the price of one as a curve. */
import type { ReactNode } from "react";

import type { GameLine, PriceRow } from "../api/market_contract";
import { LineChart } from "../charts/linechart";
import type { Tone } from "../charts/series";
import type { Axis } from "../charts/setup";
import { ForeignLine } from "../parts/foreign";
import { Empty } from "../parts/notice";
import { Table } from "../parts/table";
import { Term } from "../parts/term";
import { formatRoute } from "../route";
import { count, decimal, percent } from "../text/format";
import { visibleLine } from "../text/visible";

export const NONE = "none of these";
const STEPS = 4;
const TONES: readonly Tone[] = ["truth", "judged", "pass", "plain", "alarm", "l1", "l3", "l4"];
export const BY_STEP: Axis = { min: 0, max: 1, step: 0.25, until: STEPS, along: "step", format: (value) => percent(value, 0) };

export function Answer({ of, answers }: { of: number | null; answers: readonly string[] }) {
  if (of === null) return "–";
  return answers[of] ? <ForeignLine text={answers[of]} limit={60} /> : NONE;
}

export const signed = (value: number | null, digits = 3) => (value !== null && value > 0 ? `+${decimal(value, digits)}` : decimal(value, digits));

export const shares = (q: readonly number[]) => q.map((part) => percent(part / 10_000, 0)).join(" / ");

export function State({ line }: { line: GameLine }) {
  const left = line.rounds_left === null ? "" : `, ${count(line.rounds_left, "round")} left`;
  if (line.state === "open") return `open: ${line.phase}${left}`;
  if (line.state === "disputed") return <span className="tag alarm">disputed: this node found something else than the jury</span>;
  if (line.state === "pending") return "over, not settled here yet";
  return line.state === "void" ? <>void: <ForeignLine text={line.void} limit={120} /></> : "settled";
}

const GAME = { key: "game", title: "game" };
const STATE = { key: "state", title: "state" };
const RIGHT = { key: "answer", title: "answer" };
const WIN = { key: "win", title: <Term of="playPoints">win</Term>, numeric: true };
const BETS = [GAME, { key: "stake", title: <Term of="playPoints">stake</Term>, numeric: true }, WIN, STATE, ...[1, 2, 3, 4].map((step) => ({ key: `step-${step}`, title: `step ${step}` }))];
const ENDED = [GAME, STATE, RIGHT, WIN];

interface Props {
  readonly run: string;
  readonly label: string;
  readonly lines: readonly GameLine[];
  readonly empty: ReactNode;
}

/** Own reports are in the order of the game's answers. */
export function Bets({ run, label, lines, empty }: Props) {
  if (lines.length === 0) return <Empty>{empty}</Empty>;
  return (
    <Table label={label} head={BETS}>
      {lines.map((line) => (
        <tr key={line.id}>
          <Game run={run} line={line} />
          <td className="numeric">{line.stake}</td>
          <td className="numeric">{signed(line.win)}</td>
          <td className="words">
            <State line={line} />
          </td>
          {line.own.map((q, step) => (
            <td key={step}>{q === null ? "–" : shares(q)}</td>
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
          <td>
            <Answer of={line.answer ?? line.truth} answers={line.answers} />
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
        <code>{line.id.slice(0, 8)}</code> <ForeignLine text={line.call || line.question} limit={40} />
      </a>
    </th>
  );
}

export function PriceCurve({ price, answers, title = "Price by step" }: { price: PriceRow | null; answers: readonly string[]; title?: ReactNode }) {
  const steps = price?.skilled ?? [];
  const lines = answers.map((answer, index) => ({
    label: `${index + 1}. ${answer === "" ? NONE : visibleLine(answer, 40)}`,
    points: steps.map((q, step): readonly [number, number] => [step + 1, q[index] ?? 0]),
    tone: TONES[index % TONES.length] as Tone,
    dashed: index > 0,
    marked: true,
  }));
  const note = price === null ? undefined : price.voters === 0 ? "Nobody has a vote yet: this is the opening price." : `By ${count(price.voters, "peer")} with a vote.`;
  return <LineChart title={title} note={note} lines={lines} axis={BY_STEP} empty="Appears when the first reports are shown, two rounds after the game was announced." />;
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
