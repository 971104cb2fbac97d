"""`codezero status`: one truthful page about a run, read from the files that its processes write. It asks no process.

What could not be read is said to be unknown, and never shown as zero.
"""

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codezero.chain.outbox_store import OutboxStatus
from codezero.errors import ConfigError
from codezero.monitor.history import whole
from codezero.monitor.names import readable_name
from codezero.monitor.store import FILE_NAME
from codezero.monitor.text import clean, count, duration, percent
from codezero.run_folder import LABEL
from codezero.run_view import RunFiles, survived

MAX_BYTES = 1 << 20
"""Read of the metrics: the beginning and the newest rows."""


@dataclass(frozen=True)
class Status:
    """A run at one moment. None: unknown, or not measured yet."""

    run: str
    """Its folder."""
    name: str
    peer_id: str
    running: bool
    iteration: int | None
    round: int | None
    seconds_since_step: float | None
    """Since the last iteration was recorded."""
    reward: float | None
    executed: float | None
    """Newest average@k of an exam, in [0, 1]."""
    level: int | None
    peers: float | None
    """Heard from lately."""
    quarantined: dict[str, str]
    """Peers that are kept away from, and why."""
    submissions: OutboxStatus | None
    """None: this run counts no points on a chain."""
    tolerated: dict[str, int]
    """Errors that the run survived, by kind."""


def newest_run(base: Path, name: str) -> Path:
    """The run `name` below `base`, or the one that wrote last. Raises ConfigError."""
    if name:
        if not (base / name).is_dir():
            raise ConfigError(f"run.name={name}: there is no such run below {base}")
        return base / name
    found = [*base.glob(f"*/{LABEL}"), *base.glob(f"*/*/{LABEL}")]
    if not found:
        raise ConfigError(f"there is no run below {base} yet; start one with `codezero run`")
    return max((path.parent for path in found), key=_touched)


def read_run(folder: Path) -> Status:
    """From the files alone. Raises UnreadableError."""
    seen = RunFiles(folder, budget=MAX_BYTES).look()
    fold, last = seen.fold, seen.fold.last
    return Status(
        run=str(folder),
        name=seen.name,
        peer_id=seen.peer_id,
        running=seen.running,
        iteration=whole(last, "iteration"),
        round=whole(last, "round"),
        seconds_since_step=None if seen.updated is None else time.time() - seen.updated,
        reward=fold.newest("reward/mean"),
        executed=fold.exams.newest.average if fold.exams.newest else None,
        level=whole(last, "difficulty/level"),
        peers=fold.newest("swarm/peers"),
        quarantined={peer.peer: peer.reason for peer in seen.network.peers if peer.reason} if seen.network else {},
        submissions=seen.outbox,
        tolerated=survived(fold),
    )


def print_status(status: Status) -> None:
    """For people. Foreign text is cleaned."""
    console = Console(file=sys.stdout)
    state = "running" if status.running else "not running"
    console.print(Text(f"{status.name} · {state} · {clean(status.run, 200)}", "bold"))
    table = Table.grid(padding=(0, 2))
    for label, value in _lines(status):
        table.add_row(Text(label, "dim"), Text(value))
    console.print(table)


def as_json(status: Status) -> str:
    return json.dumps(asdict(status))


def _lines(status: Status) -> list[tuple[str, str]]:
    unknown = "unknown"
    ago = "" if status.seconds_since_step is None else f", {duration(status.seconds_since_step)} ago"
    lines = [
        ("peer id", status.peer_id or unknown),
        ("iteration", unknown if status.iteration is None else f"{status.iteration}{ago}"),
        ("round", unknown if status.round is None else str(status.round)),
        ("reward", unknown if status.reward is None else f"{status.reward:.2f}"),
        ("executed average@k", "not measured yet" if status.executed is None else percent(status.executed)),
        ("level", unknown if status.level is None else str(status.level)),
        ("peers", unknown if status.peers is None else f"{status.peers:.0f} heard lately"),
    ]
    if status.submissions is None:
        lines.append(("submissions", "none: this run counts no points on a chain"))
    else:
        sent = status.submissions
        counts = f"{sent.accepted} accepted, {sent.pending} pending, {sent.refused} refused"
        lines.append(("submissions", f"{counts}; {count(sent.collecting, 'round')} being collected"))
        lines += [("", f"{times} times: {clean(reason, 200)}") for reason, times in sent.reasons.items()]
        if sent.problem:
            lines.append(("kept back", clean(sent.problem, 300)))
    lines += [
        ("kept away from", f"{readable_name(peer)}: {clean(why, 200)}") for peer, why in status.quarantined.items()
    ]
    lines += [("survived", f"{times} times: {clean(kind, 60)}") for kind, times in status.tolerated.items()]
    return lines


def _touched(folder: Path) -> float:
    written = [folder / name for name in (FILE_NAME, LABEL) if (folder / name).is_file()]
    return max(path.stat().st_mtime for path in written)
