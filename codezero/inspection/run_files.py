"""One run, read from the files that its processes write: what `codezero status` and the page are made of.

It asks no process. What could not be read is unknown, or a problem, and never zero.
"""

import contextlib
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import msgspec

from codezero.chain.outbox_db import OutboxStatus, connect
from codezero.chain.outbox_db import read_status as read_outbox
from codezero.errors import ChainError, SwarmError, UnreadableError
from codezero.monitor.health import limit_seconds
from codezero.monitor.metrics_file import FILE_NAME, number
from codezero.monitor.monitor import NODE_FILE
from codezero.monitor.run_state import CURVES, MAX_WHOLE, Fold, History, Played, whole
from codezero.monitor.run_types import (
    MAX_PEERS,
    ExamView,
    JudgeBelief,
    LevelSkill,
    NetworkView,
    OutboxView,
    Peer,
    Round,
    RunView,
)
from codezero.monitor.text import readable_name
from codezero.swarm.network_status import FOLDER, NetworkStatus
from codezero.swarm.network_status import read_status as read_network
from codezero.system.pidfile import read_process, supervisor_words

UNKNOWN = "unknown"
MAX_TEXT = 512
"""Characters of a text that a run wrote of itself."""
MAX_LIST = 32
"""Facts, addresses, reasons and kinds of errors."""


@dataclass(frozen=True)
class Seen:
    """What the files of a run say at one moment."""

    peer_id: str
    running: bool
    stopped: str
    supervisor: str
    began: float | None
    updated: float | None
    """When the last row was written, in seconds since 1970."""
    facts: dict[str, str]
    stand_ins: str
    """What stands in for sources of problems, and why; empty: nothing."""
    fold: Fold
    """Of the metrics; it goes on changing with the next look."""
    network: NetworkStatus | None
    outbox: OutboxStatus | None
    account: str

    @property
    def name(self) -> str:
        return readable_name(self.peer_id) if self.peer_id else UNKNOWN


class RunFiles:
    """The files of one run, followed as they grow. For one thread at a time.

    budget: bytes of the metrics that the first look reads, from their beginning and their end. None: all.
    """

    def __init__(self, folder: Path, *, budget: int | None = None) -> None:
        self.folder = folder
        self._history = History(folder, budget=budget)

    def unread(self) -> int:
        """Bytes of the metrics that the next look will read."""
        return self._history.unread()

    def look(self) -> Seen:
        """Raises UnreadableError."""
        try:
            fold = self._history.read()
        except OSError as error:
            raise UnreadableError(f"{self.folder / FILE_NAME} cannot be read: {error.strerror}") from error
        node = read_process(self.folder / NODE_FILE)
        outbox = _newest_outbox(self.folder)
        updated = _updated(self.folder, fold)
        begun = bool(fold.last) and (updated or 0.0) >= (node.began or 0.0)
        return Seen(
            peer_id=node.peer_id,
            running=node.alive,
            stopped=node.stopped or "",
            supervisor=supervisor_words(self.folder, node),
            began=node.began,
            updated=updated,
            facts=node.facts,
            stand_ins=_text(fold.last.get("problems/stand_ins") if begun else node.stand_ins),
            fold=fold,
            network=_network(self.folder),
            outbox=outbox and _outbox(outbox),
            account=_account(outbox) if outbox else "",
        )

    def view(self, key: str) -> RunView:
        """As the page shows it. Raises UnreadableError."""
        return run_view(key, self.look())


def run_view(key: str, seen: Seen) -> RunView:
    """key: the run's name in the API."""
    fold, last = seen.fold, seen.fold.last
    tolerated = {kind[:MAX_TEXT]: min(times, MAX_WHOLE) for kind, times in fold.survived.items()}
    starting = not last or (seen.began or 0.0) > (seen.updated or 0.0)
    return RunView(
        run=key,
        name=seen.name,
        peer_id=seen.peer_id,
        account=seen.account,
        running=seen.running,
        stopped=seen.stopped,
        supervisor=seen.supervisor,
        began=seen.began,
        updated=seen.updated,
        iteration=whole(last, "iteration"),
        round=whole(last, "round"),
        level=whole(last, "difficulty/level"),
        reward=fold.newest("reward/mean"),
        seconds_per_iteration=fold.step_seconds,
        limit_seconds=limit_seconds(starting, fold.step_seconds, fold.newest("eval/seconds")),
        tokens_per_second=fold.newest("tokens/sampled_per_second"),
        facts=seen.facts,
        series={name: fold.series[name].points for name in CURVES if fold.series[name].newest is not None},
        latest={name: value for name in CURVES if (value := fold.series[name].newest) is not None},
        exams=msgspec.convert(fold.exams.items, list[ExamView], from_attributes=True),
        difficulty=_skills(fold),
        judge=_judge(fold),
        peers=_peers(seen.network, fold),
        network=seen.network and _network_view(seen.network),
        rounds=[_round(played) for played in reversed(fold.rounds.values())],
        outbox=seen.outbox and _outbox_view(seen.outbox),
        tolerated=dict(list(tolerated.items())[:MAX_LIST]),
    )


def _text(value: object) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _updated(folder: Path, fold: Fold) -> float | None:
    if not fold.last:
        return None
    written = number(fold.last, "time")
    with contextlib.suppress(OSError):
        return (folder / FILE_NAME).stat().st_mtime if written is None else written
    return None


def _newest_outbox(folder: Path) -> Path | None:
    """There is one for each contract; that which was written last."""
    with contextlib.suppress(OSError):
        return max(folder.glob("outbox-*.db"), key=lambda path: path.stat().st_mtime, default=None)
    return None


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
        return _text(row[0]) if row else ""
    return ""


def _network(folder: Path) -> NetworkStatus | None:
    try:
        return read_network(folder / FOLDER)
    except SwarmError:
        return None


def _skills(fold: Fold) -> list[LevelSkill]:
    """Empty where the run does not say."""
    skills: list[LevelSkill] = []
    for level in range(1, 6):
        key = f"difficulty/success_{level}"
        values = [number(fold.last, name) for name in (key, f"{key}_low", f"{key}_high", f"difficulty/weight_{level}")]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            skills.append(LevelSkill(level=level, mean=known[0], low=known[1], high=known[2], weight=known[3]))
    return skills


def _judge(fold: Fold) -> JudgeBelief:
    return JudgeBelief(
        weight=fold.newest("judge/weight"),
        auroc=fold.newest("judge/canary_auroc"),
        auroc_low=fold.newest("judge/canary_auroc_low"),
        false_positive_share=fold.newest("judge/canary_false_positive_share"),
        false_positive_low=fold.newest("judge/canary_false_positive_low"),
        false_positive_high=fold.newest("judge/canary_false_positive_high"),
        false_negative_share=fold.newest("judge/canary_false_negative_share"),
        canaries=whole(fold.last, "judge/canaries"),
        alarm=fold.trouble,
    )


def _peers(network: NetworkStatus | None, fold: Fold) -> list[Peer]:
    """Those that the network knows, the last heard first."""
    peers: list[Peer] = []
    for line in () if network is None else network.peers[:MAX_PEERS]:
        share = fold.shares.get(line.peer)
        peers.append(
            Peer(
                peer_id=line.peer,
                name=readable_name(line.peer),
                last_seen=0.0 if network is None else network.time - line.heard_seconds_ago,
                groups=line.groups,
                judged=share.judged if share else 0,
                share_used=share.used / share.judged if share and share.judged else None,
                penalty=line.penalty,
                state="quarantined" if line.reason or line.state == "quarantined" else "ok",
                reason=line.reason,
            )
        )
    return peers


def _network_view(network: NetworkStatus) -> NetworkView:
    return NetworkView(
        neighbours=network.neighbours,
        reachable=network.reachable,
        reachability=network.reachability,
        addresses=network.addresses[:MAX_LIST],
    )


def _round(played: Played) -> Round:
    reward = played.rewards / played.rewarded if played.rewarded else None
    return Round(number=played.number, began=played.began, iterations=played.iterations, reward=reward)


def _outbox_view(outbox: OutboxStatus) -> OutboxView:
    return OutboxView(
        collecting=outbox.collecting,
        pending=outbox.pending,
        accepted=outbox.accepted,
        refused=outbox.refused,
        reasons={reason[:MAX_TEXT]: times for reason, times in list(outbox.reasons.items())[:MAX_LIST]},
        problem=outbox.problem[:MAX_TEXT],
    )
