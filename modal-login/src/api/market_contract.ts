/** Written by scripts/page_contract.py from the types of the server; null means not measured, or unknown. */
import { type Checked, flag, list, maybe, number, object, oneOf, table, text } from "./check";

export const MarketPeer = object({
  peer_id: text,
  name: text,
  own: flag,
  games: number,
  gain: number,
  no_vote: text,
  balance: number,
});
export type MarketPeer = Checked<typeof MarketPeer>;

export const Worth = object({
  verdict: text,
  games: number,
  brier: table(number),
  difference: maybe(number),
  low: maybe(number),
  high: maybe(number),
});
export type Worth = Checked<typeof Worth>;

export const PriceRow = object({
  steps: list(number),
  voters: number,
});
export type PriceRow = Checked<typeof PriceRow>;

export const GameLine = object({
  id: text,
  round: number,
  state: oneOf("open", "pending", "settled", "void"),
  phase: text,
  rounds_left: number,
  opener: text,
  question: text,
  own: list(maybe(number)),
  win: maybe(number),
  price: maybe(PriceRow),
  right: maybe(flag),
  void: text,
  evidence: list(maybe(flag)),
});
export type GameLine = Checked<typeof GameLine>;

export const MarketView = object({
  why: text,
  round: maybe(number),
  balance: maybe(number),
  open: list(GameLine),
  bets: list(GameLine),
  settled: list(GameLine),
  peers: list(MarketPeer),
  worth: Worth,
});
export type MarketView = Checked<typeof MarketView>;

export const GamesPage = object({
  games: list(GameLine),
  older: maybe(number),
});
export type GamesPage = Checked<typeof GamesPage>;

export const GamePage = object({
  line: GameLine,
  question: text,
  code: text,
  tests: list(text),
  names: table(text),
  reports: table(list(maybe(number))),
  wins: table(number),
});
export type GamePage = Checked<typeof GamePage>;
