"""`market`: what a run's prediction market holds, and whether it adds up."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, FAILED, OF_A_RUN, Commands, answer, composed, value
from codezero.errors import ConfigError

if TYPE_CHECKING:
    from codezero.inspection.market_types import GameLine, GamePage, MarketPeer, MarketView

ONE, NONE, VOID = 10_000, "none of these", "void"
"""Basis points of a whole; and words for answers."""
ABOUT = """Nodes bet play points on what programs do: no money, and nothing is executed unless market.execute=true.
  codezero market                    balance, bets and prices, or why there are none; `market page` is the same
  codezero market games --limit 20   the newest games
  codezero market show 3fa9          all about the game whose id begins with 3fa9
  codezero market verify 3fa9        recompute its id, its seals and what it paid
docs/market.md explains the words.
"""
VERIFY = "Exit code 0: all is as recomputed, or the game is void or not settled; 1: the first difference is printed."


def add(commands: Commands) -> None:
    group = commands.group("market", "play-money bets of nodes on what programs do", epilog=ABOUT, alone="page")
    game = {"game": value(str, "GAME", "the first digits of its id")}
    limit = {"--limit": value(int, "N", "how many, 1 to 1000 (default 50)", default=50)}
    group.add("page", market_page, "one page: bets, open games, worth, peers, or why there are none", settings=OF_A_RUN)
    group.add("games", games, "the newest games", limit, settings=OF_A_RUN)
    group.add("show", show, "one game: evidence, reports, price, ballots", game, settings=OF_A_RUN)
    group.add("peers", peers, "what each peer was worth, and who has a vote", settings=OF_A_RUN)
    group.add("verify", verify, "recompute a game from what was recorded", game, settings=OF_A_RUN, epilog=VERIFY)


def _run(options: argparse.Namespace) -> tuple[Path, str]:
    """Folder and peer id."""
    from codezero.inspection.status import newest_run
    from codezero.monitor.metrics_file import NODE_FILE
    from codezero.system.pidfile import read_process

    config = composed(options)
    folder = newest_run(Path(config.run.directory), config.run.name)
    return folder, read_process(folder / NODE_FILE).peer_id


def market_page(options: argparse.Namespace) -> int:
    from codezero.inspection.market_view import read_market

    view = read_market(*_run(options))
    return answer(options, view, lambda: _print_page(view))


def games(options: argparse.Namespace) -> int:
    from codezero.inspection.market_view import read_games

    if not 1 <= options.limit <= 1000:
        raise ConfigError(f"--limit={options.limit} is out of bounds; it must be 1 to 1000")
    page = read_games(*_run(options), None, options.limit)
    return answer(options, page, lambda: _print_games("games", page.games))


def show(options: argparse.Namespace) -> int:
    from codezero.inspection.market_view import read_game

    page = read_game(*_run(options), options.game)
    if page is None:
        raise _unknown(options.game)
    return answer(options, page, lambda: _print_game(page))


def peers(options: argparse.Namespace) -> int:
    from codezero.inspection.market_view import read_market

    found = read_market(*_run(options)).peers
    return answer(options, found, lambda: _print_peers(found))


def verify(options: argparse.Namespace) -> int:
    from codezero.inspection.market_view import verify_game

    check = verify_game(_run(options)[0], options.game)
    if check is None:
        raise _unknown(options.game)
    answer(options, check, f"{check.game[:12]}: {check.words}")
    return DONE if check.holds else FAILED


def _unknown(game: str) -> ConfigError:
    return ConfigError(f"GAME={game!r}: no game's id begins so, or several do; `codezero market games` lists them")


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
        price = line.price.skilled[-1] if line.price and line.price.skilled else []
        top = max(range(len(price)), key=price.__getitem__, default=0)
        likeliest = f"{line.answers[top] or NONE} {price[top]:.2f}" if price else ""
        state = f"{line.phase}, {line.rounds_left} to go" if line.state == "open" else line.state
        state += f": {line.void}" if line.void else ""
        own = [f"{q[top] / ONE:.2f}" for q in line.own if q]
        win = "" if line.win is None else f"{line.win:+.3f}"
        rows.append([line.id[:8], line.kind, state, line.call or line.question, likeliest, " ".join(own), win])
    _print_table(title, ["game", "kind", "state", "asked", "likeliest", "own report of it", "win"], rows)


def _print_peers(found: "Sequence[MarketPeer]") -> None:
    rows = [[of.name, f"{of.games:.0f}", f"{of.gain:+.2f}", of.no_vote or "yes", f"{of.balance:.3f}"] for of in found]
    _print_table("peers", ["peer", "games", "gain", "vote", "points"], rows)


def _print_game(page: "GamePage") -> None:
    from codezero.monitor.text import clean

    _print_games(page.line.id, [page.line])
    print(clean("\n".join([page.question, page.code, *page.tests]), 20_000, lines=True))
    price = page.line.price
    tables = {"price": price.skilled, "robust": price.robust} if price else {}
    rows = [[name, f"{step}", *map("{:.3f}".format, q)] for name, of in tables.items() for step, q in enumerate(of, 1)]
    for peer, reports in page.reports.items():
        of = [(step, q) for step, q in enumerate(reports, 1) if q]
        rows += [[page.names[peer], f"{step}", *(f"{part / ONE:.3f}" for part in q)] for step, q in of]
    answers = [text or NONE for text in page.answers]
    _print_table("prices and reports", ["of", "step", *answers], rows)
    votes = [[page.names[peer], VOID if vote is None else answers[vote]] for peer, vote in page.ballots.items()]
    _print_table("ballots", ["juror", "answer"], votes)


def _print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from codezero.monitor.text import clean

    table = Table(title=title, title_justify="left", box=None, padding=(0, 1))
    for head in heads:
        table.add_column(Text(clean(head, 40)))
    for row in rows:
        table.add_row(*(Text(clean(cell, 60)) for cell in row))
    if rows:
        Console(file=sys.stdout).print(table)
