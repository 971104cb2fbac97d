"""A run's market, read from its file alone, for `codezero market` and the page. Every answer is bounded.

Text of peers is as it came; amounts are play points. Raises MarketError for a file that cannot be read."""

import math
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from codezero.market.games import NEWCOMER, OVER, POINT, STEPS, PriceRow, Record, price_row, record, step_of, without
from codezero.market.ledger import FILE, GameResult, GameRow, Ledger
from codezero.monitor.metrics_file import NODE_FILE
from codezero.monitor.run_types import MAX_PEERS
from codezero.monitor.text import readable_name
from codezero.stats import mean_interval
from codezero.system.child import read_process

OFF = "this run plays no market: market.enabled=false"
MOST_OPEN, MOST_BETS, MOST_SETTLED, MOST_RESULTS = 16, 50, 10, 2_000  # of lists; results that are read
LINE = 200  # characters of a text in a list
FEWEST_GAMES = 20


class GameLine(msgspec.Struct, frozen=True, kw_only=True):
    """One game, its question cut."""

    id: str
    round: int
    state: Literal["open", "pending", "settled", "void"]  # pending: over, and not settled here yet
    phase: str
    rounds_left: int  # until it is settled
    opener: str
    question: str
    own: list[int | None]  # [STEPS] Own reports: basis points that the attempt is right
    win: float | None
    price: PriceRow | None
    right: bool | None  # as this node decided it
    void: str  # why no points are paid
    evidence: list[bool | None]  # of the first tests, as the opener says


class MarketPeer(msgspec.Struct, frozen=True):
    peer_id: str
    name: str
    own: bool
    games: float
    gain: float  # nats above knowing nothing
    no_vote: str  # why its reports do not count in prices; empty: they do
    balance: float


class Worth(msgspec.Struct, frozen=True):
    """Brier scores, 0 best and 2 worst, over the games that this node executed and reported on."""

    verdict: str = ""
    games: int = 0
    brier: dict[str, float] = {}
    difference: float | None = None  # of the price less the own judge, paired by game: below 0 the price is better
    low: float | None = None  # 95 %
    high: float | None = None


class MarketView(msgspec.Struct, frozen=True, kw_only=True):
    why: str = OFF  # why there are no bets; empty: there are
    round: int | None = None
    balance: float | None = None
    open: list[GameLine] = []
    bets: list[GameLine] = []
    settled: list[GameLine] = []
    peers: list[MarketPeer] = []  # greatest gain first
    worth: Worth = Worth()


class GamesPage(msgspec.Struct, frozen=True):
    games: list[GameLine] = []
    older: int | None = None  # ask with `before` this round for more; None: there are no more


class GamePage(msgspec.Struct, frozen=True, kw_only=True):
    """One game in full; what is by peer is by peer id."""

    line: GameLine
    question: str
    code: str
    tests: list[str]
    names: dict[str, str]
    reports: dict[str, list[int | None]]  # [STEPS] basis points
    wins: dict[str, float]


def read_market(folder: Path) -> MarketView:
    with _opened(folder) as book:
        return book.view() if book else MarketView()


def read_games(folder: Path, before: int | None = None, limit: int = 50) -> GamesPage:
    """Newest first, of rounds below `before`: whole rounds, but of one with more than `limit` games so many."""
    with _opened(folder) as book:
        if book is None:
            return GamesPage()
        rows = book.ledger.newest(limit + 1, 1 << 62 if before is None else before)
        cut = rows[limit].game.round if len(rows) > limit else None
        listed = [row for row in rows[:limit] if row.game.round != cut] or rows[:limit]
        return GamesPage([book.line(row) for row in listed], None if cut is None else listed[-1].game.round)


def read_game(folder: Path, digits: str) -> GamePage | None:
    """The one whose id begins with these hexadecimal digits; None: there is none, or more than one."""
    with _opened(folder) as book:
        rows = book.ledger.starting(digits) if book else []
        return book.page(rows[0]) if book and len(rows) == 1 else None


@contextmanager
def _opened(folder: Path) -> Generator["_Book | None"]:
    """None: the run has no market."""
    if not (path := folder / FILE).is_file():
        yield None
        return
    with closing(Ledger(path, read_only=True)) as ledger:
        yield _Book(ledger, read_process(folder / NODE_FILE).peer_id)


class _Book:
    def __init__(self, ledger: Ledger, me: str) -> None:
        self.ledger, self._me, self._note = ledger, me, ledger.note()
        newest = ledger.newest(1)
        self._round = self._note.round if self._note else newest[0].game.round if newest else 0
        self._records = {peer: record(scores, me) for peer, scores in ledger.scores().items()}

    def view(self) -> MarketView:
        ledger, note = self.ledger, self._note
        settled = ledger.newest(MOST_RESULTS, settled=True)
        recent = (self.line(row) for row in reversed(ledger.since(self._round - OVER + 1)) if row.result is None)
        return MarketView(
            why=note.why if note else "the node has not played a round yet",
            round=self._round,
            balance=ledger.balance(self._me) / POINT,
            open=[line for line in recent if line.state == "open"][:MOST_OPEN],
            bets=[self.line(row) for row in ledger.newest(MOST_BETS, of=self._me)],
            settled=[self.line(row) for row in settled[:MOST_SETTLED]],
            peers=self._peers(),
            worth=_worth([row.result.brier for row in settled if row.result and row.result.brier]),
        )

    def line(self, row: GameRow) -> GameLine:
        game, result = row.game, row.result or GameResult()
        reports, step, age = self.ledger.reports(game.id), step_of(game, self._round), self._round - game.round
        over = "void" if result.void else "settled"
        now = price_row(game, without(self._me, reports), self._records, min(STEPS, max(0, age)))
        prices, win = result.price if row.result else now, result.wins.get(self._me)
        return GameLine(
            id=game.id.hex(),
            round=game.round,
            state=over if row.result else "open" if age < OVER else "pending",
            phase=f"step {step + 1} of {STEPS}" if step is not None else "announced" if age < 1 else "over",
            rounds_left=max(0, OVER - age),
            opener=readable_name(game.opener),
            question=game.question[:LINE],
            own=[*reports.get(self._me, [None] * STEPS)],
            win=None if win is None else win / POINT,
            price=prices if prices and prices.steps else None,
            right=result.right,
            void=result.void,
            evidence=[*row.evidence],
        )

    def page(self, row: GameRow) -> GamePage:
        game, reports = row.game, dict([*self.ledger.reports(row.game.id).items()][:MAX_PEERS])
        return GamePage(
            line=self.line(row),
            question=game.question,
            code=game.code,
            tests=[*game.tests],
            names={peer: readable_name(peer) for peer in reports},
            reports={peer: [*steps] for peer, steps in reports.items()},
            wins={peer: win / POINT for peer, win in (row.result.wins if row.result else {}).items()},
        )

    def _peers(self) -> list[MarketPeer]:
        records, peers = dict.fromkeys(self.ledger.balances(), Record()) | self._records, list[MarketPeer]()
        for peer, of in sorted(records.items(), key=lambda pair: (-pair[1].gain, pair[0]))[:MAX_PEERS]:
            few = f"{of.games:.0f} of {NEWCOMER} games that count"
            none = few if of.games < NEWCOMER else "no gain beyond what one opener's games gave it"
            why = "worse than a peer that knows nothing" if of.lost else "" if of.vote else none
            points = self.ledger.balance(peer) / POINT
            peers.append(MarketPeer(peer, readable_name(peer), peer == self._me, of.games, of.gain, why, points))
        return peers


def _worth(rows: Sequence[dict[str, float]]) -> Worth:
    count, interval = len(rows), mean_interval([row["price"] - row["own"] for row in rows])
    difference, low, high = interval if math.isfinite(interval[0]) else (None, None, None)
    brier = {name: math.fsum(row[name] for row in rows) / count for name in sorted({*rows[0]} if rows else ())}
    if low is None or high is None or count < FEWEST_GAMES:
        verdict = f"the market is worth nothing here: {count} games with a known truth, {FEWEST_GAMES} are needed"
    elif low <= 0 <= high:
        verdict = f"the market is worth nothing here: in {count} games its price was no surer than the own judge"
    else:
        verdict = f"in {count} games the price was {'better' if high < 0 else 'worse'} than the own judge"
    return Worth(verdict, count, brier, difference, low, high)
