"""A run and its network, read from files alone, for `codezero status` and the page.

What could not be read is unknown, never zero.
"""

import contextlib
import sqlite3
import time
from itertools import islice
from pathlib import Path

import msgspec

from codezero.chain.outbox_db import OutboxStatus, connect
from codezero.chain.outbox_db import read_status as read_outbox
from codezero.errors import ChainError, ConfigError, SwarmError, UnreadableError, translated
from codezero.monitor.health import health, limit_seconds
from codezero.monitor.metrics_file import FILE_NAME, MAX_WHOLE, NODE_FILE, number, whole
from codezero.monitor.reader import find_runs
from codezero.monitor.rollouts_db import measured_levels
from codezero.monitor.run_state import CURVES, Fold, History
from codezero.monitor.run_types import (
    MAX_PEERS,
    JudgeBelief,
    LevelSkill,
    NetworkView,
    OutboxView,
    Peer,
    Round,
    RunCore,
    RunView,
)
from codezero.monitor.summaries import attempts_line, judge_line, level_lines, proposal_lines, rehearsal
from codezero.monitor.text import readable_name
from codezero.solver.hub_push import HubState, read_state
from codezero.swarm.network_status import FILE, FOLDER, NetworkStatus
from codezero.swarm.network_status import read_status as read_network
from codezero.system.files import full
from codezero.system.pidfile import read_process, supervisor_words

MAX_BYTES = 1 << 20
"""Of the metrics, for the status: their beginning and the newest rows."""
UNKNOWN = "unknown"
MAX_WHOLE_BYTES = 256 << 20
"""Of the metrics, that are read at first for the page; some 2 s."""
MAX_TEXT = 512
"""Characters of a text that comes from the chain."""
MAX_LIST = 32
"""Addresses, reasons and kinds of errors."""


class RunFiles:
    """The files of one run, followed as they grow. For one thread at a time.

    budget: bytes of the metrics that the first read covers, from their beginning and their end.
    """

    def __init__(self, folder: Path, *, budget: int = MAX_WHOLE_BYTES) -> None:
        self.folder = folder
        self.fold = Fold()
        """Of the metrics; these and what follows are as the newest `view` read them."""
        self.network: NetworkStatus | None = None
        self.outbox: OutboxStatus | None = None
        self._history = History(folder, budget=budget)

    def view(self, key: str) -> RunView:
        """As the page shows it. key: the run's name in the API. Raises UnreadableError."""
        with translated(UnreadableError, f"{self.folder / FILE_NAME} cannot be read", OSError):
            fold = self.fold = self._history.read()
        self.network = None
        with contextlib.suppress(SwarmError):
            self.network = read_network(self.folder / FOLDER)
        # There is an outbox for each contract; that which was written last counts.
        outboxes = (path for path in self.folder.glob("outbox-*.db") if path.is_file())  # a pipe would hang
        outbox = max(outboxes, key=lambda path: path.stat().st_mtime, default=None)
        self.outbox = outbox and _outbox(outbox)
        node, last = read_process(self.folder / NODE_FILE), fold.last
        updated = number(last, "time")
        begun = bool(last) and (updated or 0.0) >= (node.began or 0.0)  # the newest row is of this process
        stand_ins = str(last.get("problems/stand_ins") or "") if begun else node.stand_ins
        return RunView(
            run=key,
            name=readable_name(node.peer_id) if node.peer_id else UNKNOWN,
            peer_id=node.peer_id,
            account=_account(outbox) if outbox else "",
            running=node.alive,
            stopped=node.stopped or "",
            supervisor=supervisor_words(self.folder, node),
            began=node.began,
            updated=updated,
            iteration=whole(last, "iteration"),
            round=whole(last, "round"),
            level=whole(last, "difficulty/level"),
            reward=fold.newest("reward/mean"),
            seconds_per_iteration=fold.step_seconds,
            limit_seconds=limit_seconds(not begun, fold.step_seconds, fold.newest("eval/seconds")),
            tokens_per_second=fold.newest("tokens/sampled_per_second"),
            stand_ins=rehearsal(stand_ins, node.facts),
            attempts=attempts_line(fold),
            hindrance=fold.hindrance,
            facts=node.facts,
            series={name: fold.series[name].points for name in CURVES if fold.series[name].newest is not None},
            latest={name: value for name in CURVES if (value := fold.series[name].newest) is not None},
            exams=[*fold.exams],
            difficulty=_skills(fold),
            judge=_judge(fold),
            peers=_peers(self.network, fold) if self.network else [],
            network=self.network and _network_view(self.network),
            rounds=[
                Round(number=number, began=played.began, iterations=played.iterations, reward=played.rewards.mean)
                for number, played in reversed(fold.rounds.items())
            ],
            outbox=self.outbox and _outbox_view(self.outbox),
            tolerated={kind: min(times, MAX_WHOLE) for kind, times in islice(fold.survived.items(), MAX_LIST)},
        )


def _outbox(path: Path) -> OutboxStatus:
    """One that cannot be read is a problem and not an absence."""
    try:
        return read_outbox(path)
    except ChainError as error:
        return OutboxStatus(0, 0, 0, 0, {}, None, str(error))


def _account(path: Path) -> str:
    """Whom the points are for; empty while that cannot be read."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(path, read_only=True)) as connection:
        row = connection.execute("SELECT value FROM owner WHERE key='account'").fetchone()
        return str(row[0]) if row else ""
    return ""


def _skills(fold: Fold) -> list[LevelSkill]:
    """Empty where the run does not say."""
    skills: list[LevelSkill] = []
    for level in range(1, 6):
        key = f"difficulty/success_{level}"
        values = [number(fold.last, name) for name in (key, f"{key}_low", f"{key}_high", f"difficulty/weight_{level}")]
        mean, low, high, weight = values
        if mean is not None and low is not None and high is not None and weight is not None:
            skills.append(LevelSkill(level=level, mean=mean, low=low, high=high, weight=weight))
    return skills


def _judge(fold: Fold) -> JudgeBelief:
    shares = "auroc auroc_low false_positive_share false_positive_low false_positive_high false_negative_share"
    return JudgeBelief(
        weight=fold.newest("judge/weight"),
        canaries=whole(fold.last, "judge/canaries"),
        alarm=fold.trouble,
        **{name: fold.newest(f"judge/canary_{name}") for name in shares.split()},
    )


def _peers(network: NetworkStatus, fold: Fold) -> list[Peer]:
    """Those that the network knows, the last heard first."""
    peers: list[Peer] = []
    for line in network.peers[:MAX_PEERS]:
        judged, used = fold.shares.get(line.peer, (0, 0))
        peers.append(
            Peer(
                peer_id=line.peer,
                name=readable_name(line.peer),
                last_seen=network.time - line.heard_seconds_ago,
                groups=line.groups,
                judged=judged,
                share_used=used / judged if judged else None,
                penalty=line.penalty,
                state="quarantined" if line.reason or line.state == "quarantined" else "ok",
                reason=line.reason,
            )
        )
    return peers


def _network_view(network: NetworkStatus) -> NetworkView:
    view = msgspec.convert(network, NetworkView, from_attributes=True)
    return msgspec.structs.replace(view, addresses=view.addresses[:MAX_LIST])


def _outbox_view(outbox: OutboxStatus) -> OutboxView:
    reasons = {reason[:MAX_TEXT]: times for reason, times in islice(outbox.reasons.items(), MAX_LIST)}
    view = msgspec.convert(outbox, OutboxView, from_attributes=True)
    return msgspec.structs.replace(view, reasons=reasons, problem=outbox.problem[:MAX_TEXT])


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
    judge: str
    """How far the judge can be believed, as a person reads it; empty: not known."""
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


def read_run(folder: Path) -> RunStatus:
    """From the files alone. Raises UnreadableError."""
    files = RunFiles(folder, budget=MAX_BYTES)
    view = files.view(folder.name)
    fold, exam, state = files.fold, next(reversed(files.fold.exams), None), health(view, time.time())
    return RunStatus(
        **{name: getattr(view, name) for name in RunCore.__struct_fields__ if name != "run"},
        run=str(folder),
        problem="; ".join(filter(None, (full(folder), state.problem or (view.hindrance if view.running else "")))),
        seconds_since_step=state.seconds_since_step,
        executed=exam.average if exam else None,
        executed_low=exam.low if exam else None,
        executed_high=exam.high if exam else None,
        executed_samples=exam.samples if exam else None,
        executed_source=exam.source if exam else "",
        judge=judge_line(fold.judge),
        peers=fold.newest("swarm/peers"),
        quarantined={peer.peer: peer.reason for peer in files.network.peers if peer.reason} if files.network else {},
        submissions=files.outbox,
        problems=dict([*proposal_lines(fold.last), *level_lines(measured_levels(folder))]),
        wrong_value_share=fold.newest("proposer/wrong_value_share"),
        hub=read_state(folder),
    )
