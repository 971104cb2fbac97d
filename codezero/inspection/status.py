"""A run's status and its network's, from files alone. What could not be read is unknown, never zero."""

import time
from pathlib import Path

from codezero.chain.outbox_db import OutboxStatus
from codezero.errors import ConfigError
from codezero.inspection.run_files import RunFiles
from codezero.monitor.health import health
from codezero.monitor.reader import find_runs
from codezero.monitor.rollouts_db import measured_levels
from codezero.monitor.run_state import SILENT
from codezero.monitor.run_types import RunCore
from codezero.monitor.summaries import level_lines, proposal_lines
from codezero.solver.hub_push import HubState, read_state
from codezero.swarm.network_status import FILE, FOLDER, NetworkStatus
from codezero.swarm.network_status import read_status as read_network
from codezero.system.files import full

MAX_BYTES = 1 << 20
"""Read of the metrics: the beginning and the newest rows."""


class RunStatus(RunCore, frozen=True, kw_only=True):
    """A run at one moment; `run` is its folder. None: unknown, or not measured yet."""

    problem: str
    """What is wrong; empty: nothing that the files show."""
    seconds_since_step: float | None
    """Since the last iteration was recorded."""
    executed: float | None
    """Newest average@k of an exam, in [0, 1]."""
    executed_low: float | None
    executed_high: float | None
    """95 % interval of it."""
    executed_samples: int | None
    """k"""
    executed_source: str
    """How it was measured: executed, audited(n) or judged; empty: not at all."""
    peers: float | None
    """Heard from lately."""
    quarantined: dict[str, str]
    """Peers that are kept away from, and why."""
    submissions: OutboxStatus | None
    """None: this run counts no points on a chain."""
    problems: dict[str, str]
    """What became of proposals, and how hard unrated problems were, as a person reads it."""
    wrong_value_share: float | None
    """Of the expected values in own proposals that were executed, in [0, 1]."""
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
        **{name: getattr(view, name) for name in RunCore.__struct_fields__ if name != "run"},
        run=str(folder),
        problem="; ".join(filter(None, (full(folder), state.problem or silent))),
        seconds_since_step=state.seconds_since_step,
        executed=exam.average if exam else None,
        executed_low=exam.low if exam else None,
        executed_high=exam.high if exam else None,
        executed_samples=exam.samples if exam else None,
        executed_source=exam.source if exam else "",
        peers=fold.newest("swarm/peers"),
        quarantined={peer.peer: peer.reason for peer in files.network.peers if peer.reason} if files.network else {},
        submissions=files.outbox,
        problems=dict([*proposal_lines(fold.last), *level_lines(measured_levels(folder))]),
        wrong_value_share=fold.newest("proposer/wrong_value_share"),
        hub=read_state(folder),
    )
