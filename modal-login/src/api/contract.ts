/** Written by scripts/page_contract.py from the types of the server; null means not measured, or unknown. */
import { type Checked, flag, list, maybe, number, object, oneOf, series, table, text } from "./check";

export const ExamView = object({
  iteration: number,
  source: text,
  samples: number,
  average: number,
  low: maybe(number),
  high: maybe(number),
  gain_low: maybe(number),
  gain_high: maybe(number),
  passed: maybe(number),
  pass_low: maybe(number),
  pass_high: maybe(number),
  believed: maybe(number),
  levels: table(number),
  set: text,
  control: maybe(number),
  problems: maybe(number),
  unknown_share: maybe(number),
  cheats_share: maybe(number),
  unguarded_share: maybe(number),
  auroc: maybe(number),
  within_auroc: maybe(number),
  within_auroc_low: maybe(number),
  within_auroc_high: maybe(number),
  within_auroc_pairs: maybe(number),
  false_positive_share: maybe(number),
  false_negative_share: maybe(number),
});
export type ExamView = Checked<typeof ExamView>;

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
  summary: text,
  audit: text,
});
export type JudgeBelief = Checked<typeof JudgeBelief>;

export const LevelSkill = object({
  level: number,
  mean: number,
  low: number,
  high: number,
  weight: number,
});
export type LevelSkill = Checked<typeof LevelSkill>;

export const NetworkView = object({
  neighbours: number,
  reachable: maybe(flag),
  reachability: text,
  addresses: list(text),
});
export type NetworkView = Checked<typeof NetworkView>;

export const OutboxView = object({
  collecting: number,
  pending: number,
  accepted: number,
  refused: number,
  reasons: table(number),
  problem: text,
});
export type OutboxView = Checked<typeof OutboxView>;

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

export const Round = object({
  number: number,
  began: number,
  iterations: number,
  reward: maybe(number),
});
export type Round = Checked<typeof Round>;

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

export const BoardLine = object({
  owner: text,
  points: number,
  rounds: number,
  votes: number,
  last_round: number,
  peer_id: text,
  name: text,
  mine: flag,
});
export type BoardLine = Checked<typeof BoardLine>;

export const SettingLine = object({
  key: text,
  value: text,
  origin: text,
});
export type SettingLine = Checked<typeof SettingLine>;

export const LogTail = object({
  path: text,
  text: text,
  cut: flag,
});
export type LogTail = Checked<typeof LogTail>;

export const CheckpointLine = object({
  name: text,
  iteration: maybe(number),
  size: maybe(number),
  digest: text,
  saved: number,
  problem: text,
});
export type CheckpointLine = Checked<typeof CheckpointLine>;

export const RunView = object({
  run: text,
  name: text,
  running: flag,
  iteration: maybe(number),
  updated: maybe(number),
  peer_id: text,
  account: text,
  stopped: text,
  supervisor: text,
  began: maybe(number),
  round: maybe(number),
  level: maybe(number),
  reward: maybe(number),
  seconds_per_iteration: maybe(number),
  limit_seconds: number,
  tokens_per_second: maybe(number),
  stand_ins: text,
  attempts: text,
  best: text,
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

export const Runs = object({
  runs: list(RunSummary),
});
export type Runs = Checked<typeof Runs>;

export const RolloutPage = object({
  rollouts: list(RolloutLine),
  older: maybe(number),
});
export type RolloutPage = Checked<typeof RolloutPage>;

export const Rollout = object({
  line: RolloutLine,
  problem_id: text,
  question: text,
  tests: list(text),
  attempts: list(ShownVerdict),
});
export type Rollout = Checked<typeof Rollout>;

export const Leaderboard = object({
  chain_id: maybe(number),
  contract: text,
  round: maybe(number),
  peers: list(BoardLine),
  problem: text,
});
export type Leaderboard = Checked<typeof Leaderboard>;

export const RunSettings = object({
  settings: list(SettingLine),
});
export type RunSettings = Checked<typeof RunSettings>;

export const RunCheckpoints = object({
  checkpoints: list(CheckpointLine),
});
export type RunCheckpoints = Checked<typeof RunCheckpoints>;
