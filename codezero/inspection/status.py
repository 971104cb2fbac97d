"""`codezero status`: one truthful page about a run, read from the files that its processes write. It asks no process.

What could not be read is said to be unknown, and never shown as zero.
"""

import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codezero.chain.outbox_db import OutboxStatus
from codezero.config import NodeConfig
from codezero.errors import ConfigError, UnreadableError
from codezero.inspection.run_files import UNKNOWN, RunFiles, Seen, run_view
from codezero.monitor.health import health
from codezero.monitor.metrics_file import number
from codezero.monitor.plain import print_flushed
from codezero.monitor.reader import find_runs
from codezero.monitor.run_state import SILENT, UNAVAILABLE
from codezero.monitor.summaries import proposal_lines
from codezero.monitor.terminal import terminal_console
from codezero.monitor.text import clean, count, duration, measured, readable_name
from codezero.solver.hub_push import HubState, read_state
from codezero.system.files import full
from codezero.system.signals import Stop

MAX_BYTES = 1 << 20
"""Read of the metrics: the beginning and the newest rows."""
LEAST_SECONDS, MOST_SECONDS = 0.2, 3600.0
"""Between two readings of `--watch`."""


@dataclass(frozen=True)
class RunStatus:
    """A run at one moment. None: unknown, or not measured yet."""

    run: str
    """Its folder."""
    name: str
    peer_id: str
    account: str
    """Whom the points are for; empty: unknown, or none is counted."""
    running: bool
    stopped: str
    """Why it ended; empty: it runs, or was killed."""
    problem: str
    """What is wrong; empty: nothing that the files show."""
    iteration: int | None
    round: int | None
    seconds_since_step: float | None
    """Since the last iteration was recorded."""
    limit_seconds: float
    """A step older than this is a stall, of a run that is running."""
    reward: float | None
    executed: float | None
    """Newest average@k of an exam, in [0, 1]."""
    executed_low: float | None
    executed_high: float | None
    """95 % interval of it."""
    executed_samples: int | None
    """k"""
    executed_source: str
    """How it was measured: executed, audited(n) or judged; empty: not at all."""
    level: int | None
    peers: float | None
    """Heard from lately."""
    quarantined: dict[str, str]
    """Peers that are kept away from, and why."""
    submissions: OutboxStatus | None
    """None: this run counts no points on a chain."""
    problems: dict[str, str]
    """What became of proposals, as a person reads it: written, refused, wrong."""
    wrong_value_share: float | None
    """Of the expected values in own proposals that were executed, in [0, 1]."""
    tolerated: dict[str, int]
    """Errors that the run survived, by kind."""
    stand_ins: str
    """What stands in for sources of problems that give nothing now, and why; empty: nothing."""
    hub: HubState | None = None
    """None: this run pushes nothing."""


def _silent(seen: Seen) -> str:
    """Empty: the judge answers, as far as the newest row tells."""
    return SILENT if seen.running and number(seen.fold.last, UNAVAILABLE) == 1.0 else ""


def newest_run(base: Path, name: str) -> Path:
    """The run `name` below `base`, or the one that wrote last. Raises ConfigError."""
    if name:
        if not (base / name).is_dir():
            raise ConfigError(f"run.name={name}: there is no such run below {base}")
        return base / name
    newest = next(iter(find_runs(base).values()), None)
    if newest is None:
        raise ConfigError(f"there is no run below {base} yet; start one with `codezero run`")
    return newest


def read_run(folder: Path, files: RunFiles | None = None) -> RunStatus:
    """From the files alone; `files` of this folder, where they were read before. Raises UnreadableError."""
    seen = (files or RunFiles(folder, budget=MAX_BYTES)).look()
    fold, exam, view = seen.fold, seen.fold.exams.newest, run_view(folder.name, seen)
    state = health(view, time.time())
    return RunStatus(
        run=str(folder),
        name=seen.name,
        peer_id=seen.peer_id,
        account=seen.account,
        running=seen.running,
        stopped=seen.stopped,
        problem="; ".join(filter(None, (full(folder), state.problem or _silent(seen)))),
        iteration=view.iteration,
        round=view.round,
        seconds_since_step=state.seconds_since_step,
        limit_seconds=state.limit_seconds,
        reward=view.reward,
        executed=exam.average if exam else None,
        executed_low=exam.low if exam else None,
        executed_high=exam.high if exam else None,
        executed_samples=exam.samples if exam else None,
        executed_source=exam.source if exam else "",
        level=view.level,
        peers=fold.newest("swarm/peers"),
        quarantined={peer.peer: peer.reason for peer in seen.network.peers if peer.reason} if seen.network else {},
        submissions=seen.outbox,
        problems=dict(proposal_lines(fold.last)),
        wrong_value_share=fold.newest("proposer/wrong_value_share"),
        tolerated=view.tolerated,
        stand_ins=seen.stand_ins,
        hub=read_state(folder),
    )


def print_status(status: RunStatus) -> None:
    """For people. Foreign text is cleaned."""
    console = Console(file=sys.stdout)
    console.print(headline(status), soft_wrap=True)
    console.print(page(status))


def headline(status: RunStatus) -> Text:
    """Whether it runs and what is wrong with it, before all else."""
    if status.running:
        state = f"running, but {status.problem}" if status.problem else "running"
    else:
        state = f"not running: {status.problem or clean(status.stopped, 200) or 'it has not been started'}"
    return Text(f"{status.name} · {state} · {clean(status.run, 200)}", "bold red" if status.problem else "bold")


def page(status: RunStatus) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, value in _lines(status):
        table.add_row(Text(label, "dim"), Text(value))
    return table


def plain_line(status: RunStatus) -> str:
    """All that matters, in one line."""
    sent = status.submissions
    ago = "" if status.seconds_since_step is None else f" {duration(status.seconds_since_step)} ago"
    parts = [
        headline(status).plain,
        f"iteration {_known(status.iteration)}{ago}",
        f"round {_known(status.round)}",
        f"reward {_known(status.reward, '.2f')}",
        _executed(status),
        f"level {_known(status.level)}",
        "peers unknown" if status.peers is None else count(status.peers, "peer"),
    ]
    if sent is not None:
        parts.append(_counts(sent))
    if status.stand_ins:
        parts.append(clean(status.stand_ins, 200))
    if status.tolerated:
        parts.append(", ".join(f"{times} {clean(kind, 60)}" for kind, times in status.tolerated.items()))
    return " · ".join(parts)


def as_json(status: RunStatus) -> str:
    return json.dumps({**asdict(status), "hub": None if status.hub is None else msgspec.to_builtins(status.hub)})


def _lines(status: RunStatus) -> list[tuple[str, str]]:
    ago = "" if status.seconds_since_step is None else f", {duration(status.seconds_since_step)} ago"
    lines = [
        ("peer id", status.peer_id or UNKNOWN),
        ("account", status.account or "none known"),
        ("iteration", UNKNOWN if status.iteration is None else f"{status.iteration}{ago}"),
        ("round", _known(status.round)),
        ("reward", _known(status.reward, ".2f")),
        ("truth", _executed(status)),
        ("level", _known(status.level)),
        ("peers", UNKNOWN if status.peers is None else f"{status.peers:.0f} heard lately"),
    ]
    if status.submissions is None:
        lines.append(("submissions", "none: this run counts no points on a chain"))
    else:
        sent = status.submissions
        lines.append(("submissions", f"{_counts(sent)}; {count(sent.collecting, 'round')} being collected"))
        lines += [("", f"{times} times: {clean(reason, 200)}") for reason, times in sent.reasons.items()]
        if sent.problem:
            lines.append(("kept back", clean(sent.problem, 300)))
    if status.stand_ins:
        lines.append(("problems", clean(status.stand_ins, 500)))
    lines += [(what, clean(figure, 400)) for what, figure in status.problems.items()]
    lines += [
        ("kept away from", f"{readable_name(peer)}: {clean(why, 200)}") for peer, why in status.quarantined.items()
    ]
    if status.hub is not None:
        lines += _pushes(status.hub)
    lines += [("survived", f"{times} times: {clean(kind, 60)}") for kind, times in status.tolerated.items()]
    return lines


def _pushes(hub: HubState) -> list[tuple[str, str]]:
    there = "nothing yet" if hub.round is None else f"round {hub.round}, iteration {hub.iteration}"
    lines = [("pushed", f"{there}, to {clean(hub.repository, 200)}")]
    if hub.problem:
        lines.append(("not pushed", f"{count(hub.failures, 'failure')}: {clean(hub.problem, 300)}"))
    return lines


def _executed(status: RunStatus) -> str:
    if status.executed is None:
        return "executed average@k not measured yet"
    share = measured(status.executed, status.executed_low, status.executed_high)
    return f"{status.executed_source} average@{status.executed_samples} {share}"


def _counts(sent: OutboxStatus) -> str:
    return f"{sent.accepted} accepted, {sent.pending} pending, {sent.refused} refused"


def _known(value: float | None, form: str = "d") -> str:
    return UNKNOWN if value is None else format(value, form)


def watch(config: NodeConfig, seconds: float, *, as_lines: bool) -> bool:
    """Show the status until SIGINT or SIGTERM; True when it was SIGINT. `as_lines`: one JSON object a line.

    Raises ConfigError when there is no run to watch, and UnreadableError when it cannot be read at first.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ConfigError(f"--every={seconds:g} is out of bounds; it must be {LEAST_SECONDS:g} to {MOST_SECONDS:g}")
    stop, newest = Stop(), _Newest(config)
    console = None if as_lines else terminal_console()
    if console is None:
        with stop.on_signals():
            while not stop:
                status = newest.read()
                line = as_json(status) if as_lines else f"{time.strftime('%H:%M:%S')} · {plain_line(status)}"
                print_flushed(line)
                stop.wait(seconds)
    else:
        with stop.on_signals(), Live(console=console, auto_refresh=False) as live:
            while not stop:
                status = newest.read()
                live.update(Group(headline(status), page(status)), refresh=True)
                stop.wait(seconds)
    return stop.received is signal.SIGINT


class _Newest:
    """The named or newest run; the newest may change. What was read once is not read again."""

    def __init__(self, config: NodeConfig) -> None:
        self._base, self._name = Path(config.run.directory), config.run.name
        self._files: RunFiles | None = None
        self._status: RunStatus | None = None

    def read(self) -> RunStatus:
        folder = newest_run(self._base, self._name)
        if self._files is None or self._files.folder != folder:
            self._files = RunFiles(folder, budget=MAX_BYTES)
        try:
            self._status = read_run(folder, self._files)
        except UnreadableError as error:
            if self._status is None:
                raise
            print(f"codezero: {error}", file=sys.stderr, flush=True)
        return self._status
