"""`market`: bets, prices and records of a run's prediction market."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import OF_A_RUN, Commands, answer, composed, value
from codezero.errors import ConfigError

if TYPE_CHECKING:
    from codezero.inspection.market import GameLine, GamePage, MarketPeer, MarketView

ONE = 10_000  # basis points of a whole
ABOUT = """Nodes bet play points on which attempts are right: no money; nothing is executed unless market.execute=true.
  codezero market                    balance, bets and prices, or why there are none; `market page` is the same
  codezero market games --limit 20   the newest games
  codezero market show 3fa9          all about the game whose id begins with 3fa9
  codezero market peers              the record of each peer
docs/market.md explains the words.
"""


def add(commands: Commands) -> None:
    group = commands.group("market", "play-money bets of nodes on which attempts are right", epilog=ABOUT, alone="page")
    game = {"game": value(str, "GAME", "the first digits of its id")}
    limit = {"--limit": value(int, "N", "how many, 1 to 1000 (default 50)", default=50)}
    group.add("page", market_page, "one page: bets, open games, worth, peers, or why there are none", settings=OF_A_RUN)
    group.add("games", games, "the newest games", limit, settings=OF_A_RUN)
    group.add("show", show, "one game: evidence, reports, price", game, settings=OF_A_RUN)
    group.add("peers", peers, "what each peer was worth, and who has a vote", settings=OF_A_RUN)


def _run(options: argparse.Namespace) -> Path:
    from codezero.inspection.status import newest_run

    config = composed(options)
    return newest_run(Path(config.run.directory), config.run.name)


def market_page(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_market

    view = read_market(_run(options))
    return answer(options, view, lambda: _print_page(view))


def games(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_games

    if not 1 <= options.limit <= 1000:
        raise ConfigError(f"--limit={options.limit} is out of bounds; it must be 1 to 1000")
    page = read_games(_run(options), None, options.limit)
    return answer(options, page, lambda: _print_games("games", page.games))


def show(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_game

    if (page := read_game(_run(options), options.game)) is None:
        listed = "no game's id begins so, or several do; `codezero market games` lists them"
        raise ConfigError(f"GAME={options.game!r}: {listed}")
    return answer(options, page, lambda: _print_game(page))


def peers(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_market

    records = read_market(_run(options)).peers
    return answer(options, records, lambda: _print_peers(records))


def _print_page(view: "MarketView") -> None:
    points = "" if view.balance is None else f" · {view.balance:.3f} play points · round {view.round}"
    print(f"no bets: {view.why}{points}" if view.why else f"in the market{points}")
    for title, lines in (("your bets", view.bets), ("open", view.open), ("last settled", view.settled)):
        _print_games(title, lines)
    brier = ", ".join(f"{name} {score:.3f}" for name, score in view.worth.brier.items())
    for text in filter(None, (view.worth.verdict, brier and f"Brier score, 0 is best: {brier}")):
        print(text)
    _print_peers(view.peers)


def _print_games(title: str, lines: "Sequence[GameLine]") -> None:
    rows: list[list[str]] = []
    for line in lines:
        state = f"{line.phase}, {line.rounds_left} to go" if line.state == "open" else line.state
        state += f": {line.void}" if line.void else {None: "", True: ": right", False: ": wrong"}[line.right]
        price = f"{line.price.steps[-1]:.2f}" if line.price else ""
        own = " ".join(f"{q / ONE:.2f}" for q in line.own if q is not None)
        win = "" if line.win is None else f"{line.win:+.3f}"
        rows.append([line.id[:8], state, line.question, price, own, win])
    _print_table(title, ["game", "state", "question", "right, by the price", "own reports", "win"], rows)


def _print_peers(records: "Sequence[MarketPeer]") -> None:
    rows = [[of.name, f"{of.games:.0f}", f"{of.gain:+.2f}", of.no_vote or "yes", f"{of.balance:.3f}"] for of in records]
    _print_table("peers", ["peer", "games", "gain", "vote", "points"], rows)


def _print_game(page: "GamePage") -> None:
    from codezero.monitor.text import clean

    _print_games(page.line.id, [page.line])
    print(clean("\n".join([page.question, page.code, *page.tests]), 20_000, lines=True))
    rows = [["price", *map("{:.3f}".format, page.line.price.steps)]] if page.line.price else []
    for peer, reports in page.reports.items():
        rows.append([page.names[peer], *("" if q is None else f"{q / ONE:.3f}" for q in reports)])
    _print_table("price and reports", ["of", *(f"step {step}" for step in range(1, 5))], rows)


def _print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from codezero.monitor.text import clean

    table = Table(*heads, title=title, title_justify="left", box=None, padding=(0, 1))
    for row in rows:
        table.add_row(*(Text(clean(cell, 60)) for cell in row))
    if rows:
        Console(file=sys.stdout).print(table)
