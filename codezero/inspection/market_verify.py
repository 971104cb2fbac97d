"""Recompute from a run's file what became of a game: its id, what was revealed under which root, what it pays."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import msgspec

from codezero.inspection.market_view import seals_of, vote_of
from codezero.market.closing import Cast
from codezero.market.games import STEPS, Game, GameKind, Opening
from codezero.market.ledger import Fact, GameResult, Ledger, LedgerRow, opened
from codezero.market.messages import as_shown
from codezero.market.payout import STAKE, pay
from codezero.market.sealing import Sealed, positions, seal_root
from codezero.market.settling import UNPROVEN
from codezero.monitor.text import readable_name


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
        for seal in ledger.all(entry, Sealed, _rounds(game)):
            if seal_root(seal.peer, *seal.data) != seal.name:
                yield f"{_name(seal.peer)}: the reports of round {seal.round} are not those under their root"
    if result is None or result.void or result.answer is None:
        return
    openings = {each.data.game: each.data for each in ledger.all(Fact.OPENING, Opening, [game.round])}
    opening = openings.get(game.id)
    if game.commitment != (opening and opening.commitment):
        yield "the opening is not what the game commits to"
    payouts = list(_payouts(ledger, game, result.answer, openings))
    if not payouts:
        yield "no ballot for the answer says which reports counted, or one of them is not in this file"
    elif result.wins not in payouts:
        peer = next(
            peer for peer in sorted({*payouts[0], *result.wins}) if payouts[0].get(peer) != result.wins.get(peer)
        )
        wins = [f"{won.get(peer, 0)}" for won in (payouts[0], result.wins)]
        yield f"{_name(peer)}: the game pays {wins[0]} milli-points, and {wins[1]} are recorded"


def _payouts(ledger: Ledger, game: Game, answer: int, openings: dict[bytes, Opening]) -> Iterator[dict[str, int]]:
    """By what jurors of this answer saw opened, the most frequent first. The file does not say who had a seat."""
    roots, reveals = seals_of(ledger, game)
    lists = ledger.all(Fact.SEEN, tuple[bytes, ...], _rounds(game))
    seen, asked = Counter(root for item in lists for root in {*item.data}), Counter(item.round for item in lists)
    opened_roots = ((number, roots[peer, number]) for peer, number in reveals if (peer, number) in roots)
    timely = {root: 2 * seen[root] >= max(1, asked[number]) for number, root in opened_roots}
    opening = openings.get(game.id)
    share = UNPROVEN if game.kind is GameKind.VALUE and not (opening and opening.reference) else Fraction(1)
    sheets = (item.data for item in ledger.all(Fact.BALLOT, Cast, [game.round]))
    for digest, _ in Counter(sheet[2] for sheet in sheets if vote_of(sheet, game.id) == answer).most_common():
        if shown := as_shown(digest, timely, openings):
            counted = {place: sealed for place, sealed in reveals.items() if roots.get(place) in shown[0]}
            stakes = dict.fromkeys({peer for peer, _ in roots}, STAKE)
            yield pay(positions(game, stakes, roots, counted), answer, share)


def _rounds(game: Game) -> range:
    return range(game.round + 1, game.round + 1 + STEPS)


def _name(peer: str) -> str:
    return f"{readable_name(peer)} …{peer[-6:]}"
