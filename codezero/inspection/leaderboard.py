"""`codezero leaderboard`: who earned what, and who was voted for, read from the contract's events.

Scanned blocks are remembered beside the embedded chain or in the run directory, so that the next look is quick."""

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codezero.chain.build import read_only
from codezero.config import ChainConfig
from codezero.monitor.metrics_file import MAX_WHOLE
from codezero.monitor.run_types import MAX_PEERS as MAX_SHOWN
from codezero.monitor.run_types import BoardLine, Leaderboard, PeerPoints
from codezero.monitor.text import clean, readable_name
from codezero.swarm.build import visitor
from codezero.system.files import read_known, write_atomic

MAX_PEERS = 20_000
NAMES = ("PeerRegistered", "RewardSubmitted", "WinnerSubmitted", "RoundAdvanced")


class PointsBoard(msgspec.Struct, forbid_unknown_fields=True):
    chain_id: int
    contract: str
    cursor: int = 0  # the first block that was not read
    round: int = 0
    peers: dict[Annotated[str, Meta(max_length=128)], PeerPoints] = {}


def read_board(config: ChainConfig, folder: Path, progress: Callable[[float], None]) -> PointsBoard:
    """The events since the last reading are added to what was remembered. `progress` gets the share read, in [0, 1].
    Raises ConfigError and ChainError; what was read until then is remembered."""
    with contextlib.ExitStack() as stack:
        coordinator = read_only(config, stack, visitor)
        chain_id, contract = coordinator.client.chain_id, coordinator.contract
        path = folder / f"leaderboard-{chain_id}-{contract[2:10].lower()}.json"
        folder.mkdir(parents=True, exist_ok=True)
        board = PointsBoard(chain_id, contract)
        known = read_known(path, PointsBoard, 16 << 20)  # without a file that can be used all is read again
        if known and (known.chain_id, known.contract) == (chain_id, contract):
            board = known
        first = max(board.cursor, coordinator.client.since)
        try:
            for page in coordinator.history(board.cursor, NAMES):
                for event in page.events:
                    _count(board, event["event"], event["args"])
                board.cursor = page.cursor
                progress((page.cursor - first) / max(1, page.head + 1 - first))
        finally:
            with contextlib.suppress(OSError):  # the next look reads everything again
                write_atomic(path, msgspec.json.encode(board))
    return board


def print_board(board: PointsBoard) -> None:
    console = Console(file=sys.stdout)
    console.print(Text(f"round {board.round} · contract {board.contract} on chain {board.chain_id}", "dim"))
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for column in ("", "peer", "points", "rounds", "votes", "last round", "account"):
        table.add_column(column, justify="left" if column in ("peer", "account") else "right")
    for place, (peer, score) in enumerate(ranked(board)[:50], 1):
        last = str(score.last_round) if score.last_round >= 0 else ""
        name = f"{readable_name(peer)} …{clean(peer[-6:], 6)}"
        row = [str(place), name, str(score.points), str(score.rounds), str(score.votes), last, score.owner]
        table.add_row(*map(Text, row))
    console.print(table if board.peers else "nobody has registered yet")


def ranked(board: PointsBoard) -> list[tuple[str, PeerPoints]]:
    return sorted(board.peers.items(), key=lambda entry: (-entry[1].points, -entry[1].votes, entry[0]))


def board_page(board: PointsBoard) -> Leaderboard:
    """Make what the page shows, without an own peer. A claim beyond MAX_WHOLE is shown as that."""
    lines: list[BoardLine] = []
    for peer, score in ranked(board)[:MAX_SHOWN]:
        points, last = max(-MAX_WHOLE, min(score.points, MAX_WHOLE)), min(score.last_round, MAX_WHOLE)
        shown: dict[str, Any] = asdict(score) | {"points": points, "last_round": last}
        lines.append(BoardLine(peer_id=peer, name=readable_name(peer), own=False, **shown))
    current = min(board.round, MAX_WHOLE)
    return Leaderboard(chain_id=board.chain_id, contract=board.contract, round=current, peers=lines, problem="")


def _count(board: PointsBoard, name: str, values: Mapping[str, Any]) -> None:
    """`values`: as the ABI has them. Names that are too long, and new ones beyond MAX_PEERS, are left out."""
    if name == "RoundAdvanced":
        board.round = max(board.round, values["newRoundNumber"])
        return
    for peer in values["winners"] if name == "WinnerSubmitted" else [values["peerId"]]:
        if len(peer) > 128 or (peer not in board.peers and len(board.peers) >= MAX_PEERS):
            continue
        score = board.peers.setdefault(peer, PeerPoints())
        if name == "WinnerSubmitted":
            score.votes += 1
        elif name == "PeerRegistered":
            score.owner = values["eoa"]
        else:
            score.points += values["reward"]
            score.rounds += 1
            score.last_round = max(score.last_round, values["roundNumber"])
