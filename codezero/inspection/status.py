"""`codezero status` and `swarm peers`, from the files of a run alone. What could not be read is unknown, never zero."""

import contextlib
import signal
import sys
import time
from pathlib import Path

import msgspec
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codezero.chain.outbox_db import OutboxStatus
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.inspection.run_files import UNKNOWN, RunFiles
from codezero.monitor.health import health
from codezero.monitor.reader import find_runs
from codezero.monitor.run_state import SILENT
from codezero.monitor.summaries import proposal_lines
from codezero.monitor.terminal import live_console
from codezero.monitor.text import clean, count, duration, measured, print_flushed, readable_name
from codezero.solver.hub_push import HubState, read_state
from codezero.swarm.network_status import FILE, FOLDER, NetworkStatus
from codezero.swarm.network_status import read_status as read_network
from codezero.system.files import full
from codezero.system.signals import Stop

MAX_BYTES = 1 << 20
"""Read of the metrics: the beginning and the newest rows."""
STALE_SECONDS = 30.0
"""Older than this, a network's file is of a node that does not run any more."""
MAX_SHOWN = 500
"""Characters of a line's value."""
LEAST_SECONDS, MOST_SECONDS = 0.2, 3600.0
"""Between two readings of `--watch`."""
OF_VIEW = ("name", "peer_id", "account", "running", "stopped", "iteration", "round", "limit_seconds", "reward", "level")
"""Fields of RunStatus that are as in RunView."""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A run at one moment; `RunView` explains what the two share. None: unknown, or not measured yet."""

    run: str
    """Its folder."""
    name: str
    peer_id: str
    account: str
    running: bool
    stopped: str
    problem: str
    """What is wrong; empty: nothing that the files show."""
    iteration: int | None
    round: int | None
    seconds_since_step: float | None
    """Since the last iteration was recorded."""
    limit_seconds: float
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
    stand_ins: str
    """What stands in for sources of problems that give nothing now, and why; empty: nothing."""
    hub: HubState | None
    """None: this run pushes nothing."""


def newest_network(base: Path, name: str) -> NetworkStatus:
    """Of the run `name` below `base`, or of the one that wrote last. Raises SwarmError, and ConfigError without one."""
    folders = [base / name] if name else find_runs(base).values()
    for folder in folders:
        if name or (folder / FOLDER / FILE).is_file():
            return read_network(folder / FOLDER)
    raise ConfigError(f"no run below {base} has a network; start one with `codezero run network=peer`")


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
    files = files or RunFiles(folder, budget=MAX_BYTES)
    view = files.view(folder.name)
    fold, exam, state = files.fold, next(reversed(files.fold.exams), None), health(view, time.time())
    silent = SILENT if view.running and view.judge.alarm == SILENT else ""
    return RunStatus(
        **{name: getattr(view, name) for name in OF_VIEW},
        run=str(folder),
        problem="; ".join(filter(None, (full(folder), state.problem or silent))),
        seconds_since_step=state.seconds_since_step,
        executed=exam.average if exam else None,
        executed_low=exam.low if exam else None,
        executed_high=exam.high if exam else None,
        executed_samples=exam.samples if exam else None,
        executed_source=exam.source if exam else "",
        tolerated=view.tolerated,
        peers=fold.newest("swarm/peers"),
        quarantined={peer.peer: peer.reason for peer in files.network.peers if peer.reason} if files.network else {},
        submissions=files.outbox,
        problems=dict(proposal_lines(fold.last)),
        wrong_value_share=fold.newest("proposer/wrong_value_share"),
        stand_ins=files.stand_ins,
        hub=read_state(folder),
    )


def print_status(status: RunStatus) -> None:
    """For people. Foreign text is cleaned."""
    console = Console(file=sys.stdout)
    console.print(headline(status), soft_wrap=True)
    console.print(page(status))


def headline(status: RunStatus) -> Text:
    """Whether it runs and what is wrong with it, before all else."""
    state = f"running, but {status.problem}" if status.problem else "running"
    if not status.running:
        state = f"not running: {status.problem or clean(status.stopped, 200) or 'it has not been started'}"
    return Text(f"{status.name} · {state} · {clean(status.run, 200)}", "bold red" if status.problem else "bold")


def page(status: RunStatus) -> Table:
    table = Table.grid(padding=(0, 2))
    for label, value in _lines(status):
        table.add_row(Text(label, "dim"), Text(clean(value, MAX_SHOWN)))
    return table


def plain_line(status: RunStatus) -> str:
    """All that matters, in one line."""
    parts = [
        headline(status).plain,
        f"iteration {_known(status.iteration)}{_ago(status, ' ')}",
        f"round {_known(status.round)}",
        f"reward {_known(status.reward, '.2f')}",
        _executed(status),
        f"level {_known(status.level)}",
        "peers unknown" if status.peers is None else count(status.peers, "peer"),
        _counts(status.submissions) if status.submissions else "",
        clean(status.stand_ins, 200),
        ", ".join(f"{times} {clean(kind, 60)}" for kind, times in status.tolerated.items()),
    ]
    return " · ".join(filter(None, parts))


def _lines(status: RunStatus) -> list[tuple[str, str]]:
    sent, hub = status.submissions, status.hub
    lines = [
        ("peer id", status.peer_id or UNKNOWN),
        ("account", status.account or "none known"),
        ("iteration", f"{_known(status.iteration)}{_ago(status, ', ')}"),
        ("round", _known(status.round)),
        ("reward", _known(status.reward, ".2f")),
        ("truth", _executed(status)),
        ("level", _known(status.level)),
        ("peers", UNKNOWN if status.peers is None else f"{status.peers:.0f} heard lately"),
    ]
    if sent is None:
        lines.append(("submissions", "none: this run counts no points on a chain"))
    else:
        lines.append(("submissions", f"{_counts(sent)}; {count(sent.collecting, 'round')} being collected"))
        lines += [("", f"{times} times: {reason}") for reason, times in sent.reasons.items()]
        lines.append(("kept back", sent.problem))
    lines += [("problems", status.stand_ins), *status.problems.items()]
    lines += [("kept away from", f"{readable_name(peer)}: {why}") for peer, why in status.quarantined.items()]
    if hub is not None:
        pushed = "nothing yet" if hub.round is None else f"round {hub.round}, iteration {hub.iteration}"
        lines.append(("pushed", f"{pushed}, to {hub.repository}"))
        lines.append(("not pushed", f"{count(hub.failures, 'failure')}: {hub.problem}" if hub.problem else ""))
    lines += [("survived", f"{times} times: {kind}") for kind, times in status.tolerated.items()]
    return [(label, value) for label, value in lines if value]


def _ago(status: RunStatus, before: str) -> str:
    return "" if status.seconds_since_step is None else f"{before}{duration(status.seconds_since_step)} ago"


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

    Raises ConfigError when there is no run to watch, and UnreadableError.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise ConfigError(f"--every={seconds:g} is out of bounds; it must be {LEAST_SECONDS:g} to {MOST_SECONDS:g}")
    stop, console, files = Stop(), None if as_lines else live_console("auto"), None
    live = console and Live(console=console, auto_refresh=False)
    with stop.on_signals(), live or contextlib.nullcontext():
        while not stop:
            folder = newest_run(Path(config.run.directory), config.run.name)
            if files is None or files.folder != folder:
                files = RunFiles(folder, budget=MAX_BYTES)  # what was read once is not read again
            status = read_run(folder, files)
            if live is not None:
                live.update(Group(headline(status), page(status)), refresh=True)
            else:
                line = f"{time.strftime('%H:%M:%S')} · {plain_line(status)}"
                print_flushed(msgspec.json.encode(status).decode() if as_lines else line)
            stop.wait(seconds)
    return stop.received is signal.SIGINT


def print_peers(status: NetworkStatus) -> None:
    """A line about this node, then a row for each peer."""
    console = Console(file=sys.stdout)
    age = time.time() - status.time
    state = "" if age < STALE_SECONDS else f" · {duration(age)} ago, the node is not running now"
    console.print(Text(f"{readable_name(status.me)} · {status.me}{state}", "bold"))
    spread = "" if status.shards == 1 else f" · announcements spread over {status.shards} places"
    console.print(Text(f"{count(status.neighbours, 'neighbour')}{spread} · {clean(status.reachability, 300)}", "dim"))
    for address in status.addresses:
        console.print(Text(f"  {clean(address, 200)}", "dim"), soft_wrap=True)
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for column in ("peer", "heard", "bodies", "groups", "KiB", "failures", "state"):
        table.add_column(column, justify="right" if column in ("heard", "bodies", "groups", "KiB") else "left")
    for peer in status.peers:
        table.add_row(
            Text(readable_name(peer.peer)),
            f"{duration(peer.heard_seconds_ago)} ago",
            str(peer.bodies),
            str(peer.groups),
            f"{peer.size / 1024:.0f}",
            Text(", ".join(f"{clean(name, 20)} {times}" for name, times in peer.failures.items())),
            Text(clean(peer.reason, 200), "red") if peer.reason else Text("ok", "green"),
        )
    console.print(table if status.peers else "no peer was heard yet")
