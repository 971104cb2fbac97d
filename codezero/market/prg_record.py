"""`logs/prg_record.txt`: a line for each of the own bets that ended, for people who look for it there."""

import contextlib
import time
from pathlib import Path

from codezero.market.games import Game
from codezero.market.ledger import GameResult

FILE = "prg_record.txt"


def tell(folder: Path, game: Game, q: tuple[int, ...], result: GameResult, win: int) -> None:
    """q: the own standing report, in basis points. win: milli-points. A disk that is full costs the line."""
    ended = result.void or f"{game.answers[result.answer or 0] or 'none of these'}, {win / 1000:+.3f} points"
    stated = ", ".join(f"{answer or 'none'} {share / 100:.0f} %" for answer, share in zip(game.answers, q, strict=True))
    when, name = time.strftime("%Y-%m-%d %H:%M:%S"), f"{game.kind} {game.id.hex()[:12]}"
    with contextlib.suppress(OSError), (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(f"{when} round {game.round} {name}: {stated} -> {ended}\n")
