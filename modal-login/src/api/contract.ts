/**
 * What the server sends, field by field as in codezero/monitor/run_types.py; null means not measured, or unknown. Shares and
 * success rates are in [0, 1]; times are seconds since 1970.
 */
import { type Check, type Checked, flag, list, maybe, number, object, oneOf, table, text } from "./check";

export type Point = readonly [x: number, y: number];
export type Series = readonly Point[];

/** A value that is no number (an infinite loss) leaves a gap in its curve; the rest of the page goes on. */
const series: Check<Series> = (value, path) =>
  list(list((item) => (typeof item === "number" ? item : Number.NaN)))(value, path)
    .map(([x = Number.NaN, y = Number.NaN]): Point => [x, y])
    .filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));

export const ExamView = object({
  iteration: number,
  source: text,
  samples: number,
  average: number,
  low: maybe(number),
  high: maybe(number),
  passed: maybe(number),
  pass_low: maybe(number),
  pass_high: maybe(number),
  believed: maybe(number),
  levels: table(number),
  set: text,
  control: maybe(number),
  problems: maybe(number),
  unknown_share: maybe(number),
  auroc: maybe(number),
  within_auroc: maybe(number),
  within_auroc_low: maybe(number),
  within_auroc_high: maybe(number),
  within_auroc_pairs: maybe(number),
  false_positive_share: maybe(number),
  false_negative_share: maybe(number),
});
export type ExamView = Checked<typeof ExamView>;

export const LevelSkill = object({
  level: number,
  mean: number,
  low: number,
  high: number,
  weight: number,
});
export type LevelSkill = Checked<typeof LevelSkill>;

export const JudgeBelief = object({
  weight: maybe(number),
  auroc: maybe(number),
  auroc_low: maybe(number),
  false_positive_share: maybe(number),
  false_positive_low: maybe(number),
  false_positive_high: maybe(number),
  false_negative_share: maybe(number),
  canaries: maybe(number),
  alarm: text,
});
export type JudgeBelief = Checked<typeof JudgeBelief>;

export const Peer = object({
  peer_id: text,
  name: text,
  last_seen: number,
  groups: number,
  judged: number,
  share_used: maybe(number),
  penalty: number,
  state: oneOf("ok", "quarantined"),
  reason: text,
});
export type Peer = Checked<typeof Peer>;

export const OutboxView = object({
  collecting: number,
  pending: number,
  accepted: number,
  refused: number,
  reasons: table(number),
  problem: text,
});
export type OutboxView = Checked<typeof OutboxView>;

export const Round = object({
  number: number,
  began: number,
  iterations: number,
  reward: maybe(number),
});
export type Round = Checked<typeof Round>;

export const NetworkView = object({
  neighbours: number,
  reachable: maybe(flag),
  reachability: text,
  addresses: list(text),
});
export type NetworkView = Checked<typeof NetworkView>;

export const RunView = object({
  run: text,
  name: text,
  peer_id: text,
  account: text,
  running: flag,
  stopped: text,
  supervisor: text,
  began: maybe(number),
  updated: maybe(number),
  iteration: maybe(number),
  round: maybe(number),
  level: maybe(number),
  reward: maybe(number),
  seconds_per_iteration: maybe(number),
  limit_seconds: number,
  tokens_per_second: maybe(number),
  stand_ins: text,
  attempts: text,
  hindrance: text,
  facts: table(text),
  series: table(series),
  latest: table(number),
  exams: list(ExamView),
  difficulty: list(LevelSkill),
  judge: JudgeBelief,
  peers: list(Peer),
  network: maybe(NetworkView),
  rounds: list(Round),
  outbox: maybe(OutboxView),
  tolerated: table(number),
});
export type RunView = Checked<typeof RunView>;

export const RunSummary = object({
  run: text,
  name: text,
  running: flag,
  iteration: maybe(number),
  updated: maybe(number),
  state: oneOf("ended", "failed", "gone", "running", "stalled", "unknown"),
  fleet: text,
  samples: maybe(number),
  source: text,
  start: maybe(number),
  now: maybe(number),
  low: maybe(number),
  high: maybe(number),
  delta: maybe(number),
  reward: maybe(number),
  sparkline: list(number),
});
export type RunSummary = Checked<typeof RunSummary>;

export const Runs = object({
  runs: list(RunSummary),
});
export type Runs = Checked<typeof Runs>;

export const RolloutLine = object({
  id: number,
  iteration: number,
  round: number,
  peer_id: text,
  peer_name: text,
  mine: flag,
  question: text,
  source: text,
  level: maybe(number),
  rewards: list(maybe(number)),
});
export type RolloutLine = Checked<typeof RolloutLine>;

export const RolloutPage = object({
  rollouts: list(RolloutLine),
  older: maybe(number),
});
export type RolloutPage = Checked<typeof RolloutPage>;

export const ShownVerdict = object({
  text: text,
  status: text,
  reward: maybe(number),
  correctness: maybe(number),
  structure: maybe(number),
  adherence: maybe(number),
  format: maybe(number),
  cap: maybe(number),
  reasons: list(text),
  finished: flag,
  cut: flag,
});
export type ShownVerdict = Checked<typeof ShownVerdict>;

export const Rollout = object({
  line: RolloutLine,
  problem_id: text,
  question: text,
  tests: list(text),
  attempts: list(ShownVerdict),
});
export type Rollout = Checked<typeof Rollout>;

export const BoardLine = object({
  peer_id: text,
  name: text,
  owner: text,
  points: number,
  rounds: number,
  votes: number,
  last_round: number,
  mine: flag,
});
export type BoardLine = Checked<typeof BoardLine>;

export const Leaderboard = object({
  chain_id: maybe(number),
  contract: text,
  round: maybe(number),
  peers: list(BoardLine),
  problem: text,
});
export type Leaderboard = Checked<typeof Leaderboard>;

export const SettingLine = object({
  key: text,
  value: text,
  origin: text,
});
export type SettingLine = Checked<typeof SettingLine>;

export const RunSettings = object({
  settings: list(SettingLine),
});

export const LogTail = object({
  path: text,
  text: text,
  cut: flag,
});

export const CheckpointLine = object({
  name: text,
  iteration: maybe(number),
  size: maybe(number),
  digest: text,
  saved: number,
  problem: text,
});
export type CheckpointLine = Checked<typeof CheckpointLine>;

export const RunCheckpoints = object({
  checkpoints: list(CheckpointLine),
});
