"""A run's market, read from its file alone. Every answer is bounded. me: peer id of the run's node.

And what became of a game, recomputed: its id, what was revealed under which root, what it pays. Raises MarketError for
a file that cannot be read.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from codezero.inspection.market_types import (
    GameLine,
    GamePage,
    GamesPage,
    MarketPeer,
    MarketView,
    ReliabilityBin,
    Worth,
)
from codezero.market.closing import Cast, Closing
from codezero.market.games import OVER, STEPS, Evidence, Game, GameKind, Opening, Phase, phase
from codezero.market.jury import PROVEN, VOID, decide, settle
from codezero.market.ledger import NOTE, Fact, GameResult, Ledger, LedgerRow, PlayerNote, PriceRow, opened
from codezero.market.payout import POINT, STAKE, START, Sealed, seal_root
from codezero.market.pricing import NEWCOMER, Record, record
from codezero.monitor.run_types import MAX_PEERS
from codezero.monitor.text import readable_name
from codezero.stats import mean_interval, wilson

MOST_OPEN, MOST_BETS, MOST_SETTLED, MOST_SEALS, MOST_RESULTS = 16, 50, 10, 16, 2_000
"""Of lists; and how many seals and results are read."""
LINE = 200
"""Characters of a text in a list."""
FEWEST_GAMES, BINS = 20, 10


def read_market(folder: Path, me: str) -> MarketView:
    with opened(folder) as ledger:
        return Book(ledger, me).view() if ledger else MarketView()


def read_games(folder: Path, me: str, before: int | None = None, limit: int = 50) -> GamesPage:
    """Newest first, of rounds below `before`: whole rounds, but of one with more than `limit` games so many."""
    with opened(folder) as ledger:
        if ledger is None:
            return GamesPage()
        found = ledger.newest(Fact.GAME, Game, limit + 1, 1 << 62 if before is None else before)
        cut = found[limit].round if len(found) > limit else None
        shown, book = [item for item in found[:limit] if item.round != cut] or found[:limit], Book(ledger, me)
        return GamesPage([book.line(item.data) for item in shown], None if cut is None else shown[-1].round)


def read_game(folder: Path, me: str, digits: str) -> GamePage | None:
    """The one whose id begins with these hexadecimal digits; None: there is none, or more than one."""
    with opened(folder) as ledger:
        found = ledger.starting(Fact.GAME, digits, Game) if ledger else []
        return Book(ledger, me).page(found[0]) if ledger and len(found) == 1 else None


class Book:
    """A run's ledger, as one node reads it."""

    def __init__(self, ledger: Ledger, me: str) -> None:
        self._ledger, self._me = ledger, me
        self._note = ledger.get(Fact.NOTE, 0, "", NOTE, PlayerNote)
        newest = ledger.newest(Fact.GAME, Game, 1)
        self._round = self._note.round if self._note else newest[0].round if newest else 0

    def view(self) -> MarketView:
        ledger, note = self._ledger, self._note
        results = ledger.newest(Fact.RESULT, GameResult, MOST_RESULTS)
        settled = [ledger.get(Fact.GAME, round, opener, id, Game) for round, opener, id, _ in results[:MOST_SETTLED]]
        seals = ledger.newest(Fact.SEAL, Sealed, MOST_SEALS)
        bets = {report.game: seal.round - 1 - report.step for seal in seals for report in seal.data[1]}
        games = ledger.all(Fact.GAME, Game, sorted({*bets.values()}, reverse=True))
        recent = ledger.all(Fact.GAME, Game, range(self._round, max(-1, self._round - OVER), -1))
        lines = (self.line(item.data) for item in recent)
        return MarketView(
            why=note.why if note else "the node has not played a round yet",
            round=self._round,
            balance=ledger.balance(self._me) / POINT,
            confirming=note is not None and note.confirming,
            open=[line for line in lines if line.state == "open"][:MOST_OPEN],
            bets=[self.line(item.data) for item in games if item.name in bets][:MOST_BETS],
            settled=[self.line(game) for game in settled if game],
            peers=self._peers(),
            worth=_worth([item.data.brier for item in results]),
            reliability=_reliability(item.data for item in results),
            counts=note.counts if note else {},
        )

    def line(self, game: Game) -> GameLine:
        where, ledger = (game.round, game.opener, game.id), self._ledger
        result = ledger.get(Fact.RESULT, *where, GameResult)
        evidence = ledger.get(Fact.EVIDENCE, *where, Evidence)
        now, step = phase(game, self._round)
        ends = (far for far in range(1, OVER + 1) if phase(game, self._round + far) != (now, step))
        own = [self._sealed(game, number) for number in range(STEPS)]
        stake = STAKE if any(own) and self._me not in (game.opener, game.proposer) else 0
        state = "pending" if now is Phase.OVER else "open"
        if result is not None:
            state = "disputed" if result.contested else "void" if result.void else "settled"
        return GameLine(
            id=game.id.hex(),
            round=game.round,
            kind=game.kind,
            state=state,
            phase=now if step is None else f"{now} {step + 1} of {STEPS}",
            rounds_left=next(ends, None),
            opener=readable_name(game.opener),
            question=game.question[:LINE],
            call="" if game.kind is GameKind.PROGRAM else game.tests[0][:LINE],
            answers=[answer[:LINE] for answer in game.answers],
            own=own,
            stake=stake // POINT,
            win=result.wins.get(self._me, 0) / POINT if result and not result.void and stake else None,
            price=ledger.get(Fact.PRICE, *where, PriceRow),
            answer=result.answer if result else None,
            truth=result.truth if result else None,
            void=result.void if result else "",
            evidence=[*evidence.outcomes] if evidence else [],
        )

    def page(self, item: LedgerRow) -> GamePage:
        (round, opener, id, game), ledger = item, self._ledger
        opening = ledger.get(Fact.OPENING, round, opener, id, Opening)
        result = ledger.get(Fact.RESULT, round, opener, id, GameResult)
        values = ledger.get(Fact.VALUES, round, opener, id, list[tuple[str, float]]) or []
        found = Closing(ledger, self._me, None).positions(game)[:MAX_PEERS]
        sheets = ledger.all(Fact.BALLOT, Cast, [round])[:MAX_PEERS]
        known = (VOID, *range(len(game.answers)))
        votes = {each.peer: vote for each in sheets if (vote := vote_of(each.data, id)) in known}
        due = range(self._round - round - 2)  # what a round seals is opened by the end of the next
        return GamePage(
            line=self.line(game),
            question=game.question,
            code=game.code,
            tests=[*game.tests],
            answers=[*game.answers],
            names={peer: readable_name(peer) for peer in [*votes, *(each.peer for each in found)]},
            reports={each.peer: [None if q is None else [*q] for q in each.reports] for each in found},
            hidden={each.peer: steps for each in found if (steps := sorted(each.hidden.intersection(due)))},
            wins={peer: win / POINT for peer, win in (result.wins if result else {}).items()},
            ballots={peer: None if vote == VOID else vote for peer, vote in votes.items()},
            values=[value for value, _ in values],
            reference=opening.reference if opening else None,
            confirmed=ledger.get(Fact.CONFIRMED, round, opener, id, str),
        )

    def _sealed(self, game: Game, step: int) -> list[int] | None:
        seal = self._ledger.get(Fact.SEAL, game.round + 1 + step, self._me, b"", Sealed)
        reports = [report.q for report in (seal[1] if seal else ()) if (report.game, report.step) == (game.id, step)]
        return [*reports[0]] if reports else None

    def _peers(self) -> list[MarketPeer]:
        scores, held = self._ledger.scores(), self._ledger.balances()
        records = {peer: record(scores.get(peer, ()), self._me) for peer in {*scores, *held}}
        ranked = sorted(records.items(), key=lambda pair: (-pair[1].gain, pair[0]))[:MAX_PEERS]
        return [
            MarketPeer(
                peer,
                readable_name(peer),
                peer == self._me,
                of.games,
                of.gain,
                _no_vote(of),
                held.get(peer, START) / POINT,
            )
            for peer, of in ranked
        ]


def vote_of(cast: Cast, game: bytes) -> int | None:
    """Number of an answer, or VOID; None: the ballot does not name the game."""
    vote = dict(zip(*cast[:2], strict=False)).get(game)
    return vote if vote in (None, VOID) else vote % PROVEN


def _no_vote(of: Record) -> str:
    if of.vote or of.lost:
        return "worse than a peer that knows nothing" if of.lost else ""
    few = of.games < NEWCOMER
    return f"{of.games:.0f} of {NEWCOMER} games that count" if few else "no gain beyond what one opener's games gave it"


def _worth(scores: Iterable[dict[str, float]]) -> Worth:
    rows = [row for row in scores if {"own", "skilled"} <= row.keys()]
    count, interval = len(rows), mean_interval([row["skilled"] - row["own"] for row in rows])
    difference, low, high = interval if math.isfinite(interval[0]) else (None, None, None)
    known = {
        name: [row[name] for row in rows if name in row] for name in sorted({name for row in rows for name in row})
    }
    if low is None or high is None or count < FEWEST_GAMES:
        verdict = f"the market is worth nothing here: {count} games with a known truth, {FEWEST_GAMES} are needed"
    elif low <= 0 <= high:
        verdict = f"the market is worth nothing here: in {count} games its price was no surer than the own judge"
    else:
        verdict = f"in {count} games the price was {'better' if high < 0 else 'worse'} than the own judge"
    brier = {name: math.fsum(values) / len(values) for name, values in known.items()}
    return Worth(verdict, count, brier, difference, low, high)


def _reliability(results: Iterable[GameResult]) -> list[ReliabilityBin]:
    bins = defaultdict[int, list[tuple[float, bool]]](list)
    for result in results:
        if result.price is not None:
            bins[min(BINS - 1, int(BINS * result.price))].append((result.price, result.right))
    found: list[ReliabilityBin] = []
    for _, rows in sorted(bins.items()):
        count, right = len(rows), sum(right for _, right in rows) / len(rows)
        price = math.fsum(price for price, _ in rows) / count
        found.append(ReliabilityBin(count, price, right, *wilson(right, count)))
    return found


class MarketCheck(msgspec.Struct, frozen=True):
    game: str
    holds: bool
    words: str


def verify_game(folder: Path, digits: str) -> MarketCheck | None:
    """The game whose id begins so; None: there is none, or more than one. Raises MarketError."""
    with opened(folder) as ledger:
        found = ledger.starting(Fact.GAME, digits, Game) if ledger else []
        if ledger is None or len(found) != 1:
            return None
        result = ledger.get(Fact.RESULT, *found[0][:3], GameResult)
        wrong = next(_differences(ledger, found[0], result), "")
        words = "the id, every seal, the opening and all wins are as recomputed"
        if result is None or result.void:
            why = f"void: {result.void}" if result else "not settled yet"
            words = f"{why}; the id and every seal are as recomputed"
        return MarketCheck(found[0].name.hex(), not wrong, wrong or words)


def _differences(ledger: Ledger, item: LedgerRow, result: GameResult | None) -> Iterator[str]:
    game: Game = item.data
    if game.id != item.name:
        yield f"the game's bytes have the id {game.id.hex()}"
    for entry in (Fact.REVEAL, Fact.LATE):
        for seal in ledger.all(entry, Sealed, game.reporting):
            if seal_root(seal.peer, *seal.data) != seal.name:
                yield f"{_name(seal.peer)}: the reports of round {seal.round} are not those under their root"
    if result is None or result.void or result.answer is None:
        return
    opening = ledger.get(Fact.OPENING, *item[:3], Opening)
    if opening is not None and game.commitment != opening.commitment:
        yield "the opening is not what the game commits to"
    wins = _payout(ledger, game, result)
    if wins != result.wins:
        peer = next(peer for peer in sorted({*wins, *result.wins}) if wins.get(peer) != result.wins.get(peer))
        paid = [f"{won.get(peer, 0)}" for won in (wins, result.wins)]
        yield f"{_name(peer)}: the game pays {paid[0]} milli-points, and {paid[1]} are recorded"


def _payout(ledger: Ledger, game: Game, result: GameResult) -> dict[str, int]:
    """By what the jury decides, with the seats that the file names: they need the chain."""
    closing = Closing(ledger, "", None)
    decision = decide(game, result.jury, closing.ballots(game), closing.bits(game))
    ended = settle(game, closing.positions(game, decision.shown), decision, None)
    return ended.wins if ended.answer == result.answer else {}


def _name(peer: str) -> str:
    return f"{readable_name(peer)} …{peer[-6:]}"
