"""Recompute from a run's file what became of a game: its id, what was revealed under which root, what it pays."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from codezero.market.closing import Closing
from codezero.market.games import Game, Opening
from codezero.market.jury import decide, settle
from codezero.market.ledger import Fact, GameResult, Ledger, LedgerRow, opened
from codezero.market.payout import Sealed, seal_root
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
