"""Runs and a run's network, read from files alone: for `codezero status`, `runs`, `swarm peers` and the page.

What could not be read is unknown, never zero; of a run that cannot be read it is said why. Text of others is cleaned
before a terminal shows it. What the page shows on request is bounded. Anybody may have made the folder: no link is
followed, and no path that a file names is opened."""

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from codezero.chain.outbox import OutboxStatus
from codezero.chain.outbox import read_status as read_outbox
from codezero.errors import ChainError, CheckpointError, ConfigError, SwarmError, UnreadableError, translated
from codezero.monitor.hub import HubState, read_state
from codezero.monitor.logs import FILE_NAME as LOG
from codezero.monitor.metrics_file import FILE_NAME, NODE_FILE
from codezero.monitor.reader import MAX_BYTES, find_runs, summarise_run
from codezero.monitor.rollouts_db import measured_levels, read_page, read_rollout
from codezero.monitor.run_state import Fold, History
from codezero.monitor.run_types import MAX_PEERS, NetworkView, OutboxView, Peer, RunSummary, RunView, read_settings
from codezero.monitor.run_view import UNKNOWN, health, problem_lines, view_of
from codezero.monitor.text import clean, count, duration, measured, percent, readable_name
from codezero.runs import read_label
from codezero.solver.checkpoint import MANIFEST, MOST_MANIFEST_BYTES, checkpoints_in, read_manifest
from codezero.swarm.network_status import DIRECT, FILE, FOLDER, NetworkStatus
from codezero.swarm.network_status import read_status as read_network
from codezero.system.child import read_process, supervisor_words
from codezero.system.files import full, read_bounded

MAX_TEXT = 512  # characters of a text that comes from the chain
MAX_LIST = 32  # addresses and reasons
MAX_COMPARED = 8  # runs beside each other
MAX_TAIL = 64 << 10  # bytes of the end of a log
SHARED = (
    *("name", "peer_id", "account", "running", "stopped", "supervisor", "began", "updated", "iteration", "round"),
    *("level", "reward", "limit_seconds", "stand_ins", "attempts", "best", "hindrance", "facts", "tolerated"),
)  # fields of the view under the same keys in the status


class RunFiles:
    """The files of one run, followed as they grow. For one thread at a time.

    budget: bytes of the metrics that the first read covers, from their beginning and their end; by default some 2 s."""

    def __init__(self, folder: Path, *, budget: int = 256 << 20) -> None:
        self.folder = folder
        self.fold = Fold()  # of the metrics; this and what follows are as the newest `view` read them
        self.network: NetworkStatus | None = None
        self.outbox: OutboxStatus | None = None
        self._history = History(folder, budget=budget)

    def view(self, key: str) -> RunView:
        """key: the run's name in the API. Raises UnreadableError."""
        with translated(UnreadableError, f"{self.folder / FILE_NAME} cannot be read", OSError):
            fold = self.fold = self._history.read()
        self.network = None
        with contextlib.suppress(SwarmError):
            self.network = read_network(self.folder / FOLDER)
        # There is an outbox for each contract; that which was written last counts.
        outboxes = (path for path in self.folder.glob("outbox-*.db") if path.is_file())  # a pipe would hang
        outbox = max(outboxes, key=lambda path: path.stat().st_mtime, default=None)
        try:
            self.outbox = outbox and read_outbox(outbox)
        except ChainError as error:  # a problem, and not an absence
            none = dict.fromkeys(("collecting", "pending", "accepted", "refused"), 0)
            self.outbox = OutboxStatus(**none, reasons={}, problem=str(error))
        node, network, sent = read_process(self.folder / NODE_FILE), None, None
        if self.outbox:
            reasons = {reason[:MAX_TEXT]: times for reason, times in islice(self.outbox.reasons.items(), MAX_LIST)}
            sent = msgspec.convert(self.outbox, OutboxView, from_attributes=True)
            sent = replace(sent, reasons=reasons, problem=sent.problem[:MAX_TEXT])
        if self.network:
            network = msgspec.convert(self.network, NetworkView, from_attributes=True)
            network = replace(network, addresses=network.addresses[:MAX_LIST])
        return replace(
            view_of(fold, node, key),
            account=self.outbox.account if self.outbox else "",
            supervisor=supervisor_words(self.folder, node),
            peers=_peers(self.network, fold) if self.network else [],
            network=network,
            outbox=sent,
        )


def _peers(network: NetworkStatus, fold: Fold) -> list[Peer]:
    return [
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
        for line in network.peers[:MAX_PEERS]
        for judged, used in (fold.shares.get(line.peer, (0, 0)),)
    ]


class RunStatus(msgspec.Struct, frozen=True):
    folder: Path
    view: RunView
    problem: str  # what is wrong; empty: nothing that the files show
    seconds_since_step: float | None  # since the last iteration was recorded
    submissions: OutboxStatus | None  # None: this run counts no points on a chain
    problems: dict[str, str]  # what became of proposals, and how hard unrated problems were, as a person reads it
    wrong_value_share: float | None  # of the expected values in own proposals that were executed, in [0, 1]
    hub: HubState | None  # None: this run pushes nothing

    def to_json(self) -> dict[str, object]:
        """The keys that programs rely on; null: unknown, or not measured yet."""
        view, exam = self.view, self.view.exams[-1] if self.view.exams else None
        return {
            **{name: getattr(view, name) for name in SHARED},
            **{name: getattr(self, name) for name in self.__struct_fields__[2:]},
            "run": str(self.folder),
            "executed": exam and exam.average,
            "executed_low": exam and exam.low,
            "executed_high": exam and exam.high,
            "executed_samples": exam and exam.samples,
            "executed_source": exam.source if exam else "",
            "judge": view.judge.summary,
            "peers": view.latest.get("peers"),
            "quarantined": {peer.peer_id: peer.reason for peer in view.peers if peer.reason},
        }


def newest_network(base: Path, name: str) -> NetworkStatus:
    """Read that of the run `name`, or of the one that wrote last. Raises SwarmError, and ConfigError without one."""
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
    files = RunFiles(folder, budget=1 << 20)
    view = files.view(folder.name)
    state = health(view, time.time())
    return RunStatus(
        folder=folder,
        view=view,
        problem="; ".join(filter(None, (full(folder), state.problem or (view.hindrance if view.running else "")))),
        seconds_since_step=state.seconds_since_step,
        submissions=files.outbox,
        problems=dict(problem_lines(files.fold.last, measured_levels(folder))),
        wrong_value_share=files.fold.newest("proposer/wrong_value_share"),
        hub=read_state(folder),
    )


def print_status(status: RunStatus) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console, table = Console(file=sys.stdout), Table.grid(padding=(0, 2))
    for label, value in status_lines(status):
        table.add_row(Text(label, "dim"), Text(clean(value, 500)))
    console.print(Text(headline(status), "bold red" if status.problem else "bold"), soft_wrap=True)
    console.print(table)


def headline(status: RunStatus) -> str:
    state = f"running, but {status.problem}" if status.problem else "running"
    if not status.view.running:
        state = f"not running: {status.problem or clean(status.view.stopped, 200) or 'it has not been started'}"
    return f"{status.view.name} · {state} · {clean(str(status.folder), 200)}"


def status_lines(status: RunStatus) -> list[tuple[str, str]]:
    """(label, value), of which those without a value are left out."""
    view, sent, hub, ago = status.view, status.submissions, status.hub, status.seconds_since_step
    truth, peers = "executed average@k not measured yet", view.latest.get("peers")
    if view.exams:
        truth = f"{view.exams[-1].label} {view.exams[-1].interval}"
    lines = [
        ("peer id", view.peer_id or UNKNOWN),
        ("account", view.account or "none known"),
        ("iteration", f"{_known(view.iteration)}{'' if ago is None else f', {duration(ago)} ago'}"),
        ("round", _known(view.round)),
        ("reward", _known(view.reward, ".2f")),
        ("attempts", view.attempts or UNKNOWN),
        ("hindrance", view.hindrance),
        ("truth", truth),
        ("", view.best),
        ("judge", view.judge.summary),
        ("level", _known(view.level)),
        ("peers", UNKNOWN if peers is None else f"{peers:.0f} heard lately"),
    ]
    if sent is None:
        lines.append(("submissions", "none: this run counts no points on a chain"))
    else:
        counts = f"{sent.accepted} accepted, {sent.pending} pending, {sent.refused} refused"
        lines.append(("submissions", f"{counts}; {count(sent.collecting, 'round')} being collected"))
        lines += [("", f"{times} times: {reason}") for reason, times in sent.reasons.items()]
        lines.append(("kept back", sent.problem))
    lines += [(name, view.facts[name]) for name in ("problems", "exam", "canaries") if name in view.facts]
    lines += [("stand-ins", view.stand_ins), *status.problems.items()]
    lines += [("kept away from", f"{peer.name}: {peer.reason}") for peer in view.peers if peer.reason]
    if hub is not None:
        pushed = "nothing yet" if hub.round is None else f"round {hub.round}, iteration {hub.iteration}"
        lines.append(("pushed", f"{pushed}, to {hub.repository}"))
        lines.append(("not pushed", f"{count(hub.failures, 'failure')}: {hub.problem}" if hub.problem else ""))
    lines += [("survived", f"{times} times: {kind}") for kind, times in view.tolerated.items()]
    return [(label, value) for label, value in lines if value]


def _known(value: float | None, form: str = "d") -> str:
    return UNKNOWN if value is None else format(value, form)


def print_peers(status: NetworkStatus) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    age = time.time() - status.time
    state = "" if age < 30.0 else f" · {duration(age)} ago, the node is not running now"
    console.print(Text(f"{readable_name(status.me)} · {status.me}{state}", "bold"))
    spread = "" if status.shards == 1 else f" · announcements spread over {status.shards} places"
    console.print(Text(f"{count(status.neighbours, 'neighbour')}{spread} · {clean(status.reachability, 300)}", "dim"))
    for address in status.addresses:
        console.print(Text(f"  {clean(address, 200)}", "dim"), soft_wrap=True)
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for column in ("peer", "heard", "by way of", "bodies", "groups", "KiB", "failures", "state"):
        table.add_column(column, justify="right" if column in ("heard", "bodies", "groups", "KiB") else "left")
    for peer in status.peers:
        table.add_row(
            Text(readable_name(peer.peer)),
            f"{duration(peer.heard_seconds_ago)} ago",
            Text(peer.way if peer.way in ("", DIRECT) else readable_name(peer.way)),
            str(peer.bodies),
            str(peer.groups),
            f"{peer.size / 1024:.0f}",
            Text(", ".join(f"{clean(name, 20)} {times}" for name, times in peer.failures.items())),
            Text(clean(peer.reason, 200), "red") if peer.reason else Text("ok", "green"),
        )
    console.print(table if status.peers else "no peer was heard yet")


class LogTail(msgspec.Struct, frozen=True):
    path: str  # empty: there is no log
    text: str  # whole lines, unless the last one is longer than all that is read
    cut: bool  # `text` is only the end


class CheckpointLine(msgspec.Struct, frozen=True):
    name: str
    iteration: int | None
    size: int | None  # bytes of its files
    digest: str  # SHA-256 of the manifest, which holds those of all files
    saved: float  # seconds since 1970
    problem: str


class RunCheckpoints(msgspec.Struct, frozen=True):
    checkpoints: list[CheckpointLine]  # newest first


def parts(logs: Path) -> Mapping[str, Callable[..., object]]:
    """Name what `RunReader` reads of a run's folder on request. logs: of nodes that have no such folder in theirs."""
    from codezero.inspection.market import read_game, read_games, read_market  # numpy, which a list of runs spares

    return {
        "settings": read_settings,
        "log": partial(read_log, logs=logs),
        "checkpoints": read_checkpoints,
        "rollouts": read_page,
        "rollouts/{id}": read_rollout,
        "market": read_market,
        "market/games": read_games,
        "market/games/{id}": read_game,
    }


def read_log(folder: Path, *, logs: Path) -> LogTail:
    """The end of the node's own log, or of that which the nodes of a folder share."""
    for path in (folder / "logs" / LOG, logs / LOG):
        if path.is_file() and not path.is_symlink():
            with translated(UnreadableError, f"{path} cannot be read", OSError), path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - MAX_TAIL))
                text = file.read(MAX_TAIL).decode(errors="replace")
            cut = size > MAX_TAIL
            return LogTail(str(path), (text.partition("\n")[2] or text) if cut else text, cut)
    return LogTail("", "", False)


def read_checkpoints(folder: Path) -> RunCheckpoints:
    """One that cannot be used is listed with the reason. Its files are not read through."""
    with translated(UnreadableError, f"{folder} cannot be read", OSError):
        return RunCheckpoints([_checkpoint(path) for path in checkpoints_in(folder / "checkpoints")[:32]])


def _checkpoint(path: Path) -> CheckpointLine:
    saved = path.lstat().st_mtime
    try:
        manifest = read_manifest(path)
        digest = hashlib.sha256(read_bounded(path / MANIFEST, MOST_MANIFEST_BYTES)).hexdigest()
    except (CheckpointError, OSError, ValueError) as error:
        return CheckpointLine(path.name, None, None, "", saved, clean(str(error), 300))
    size = sum(size for size, _ in manifest.files.values())
    return CheckpointLine(path.name, manifest.iteration, size, digest, saved, "")


class ListedRun(RunSummary, frozen=True, kw_only=True):
    folder: str
    learns: str  # what it learns on; empty: it has not said
    exam: str
    problem: str  # why it cannot be read; empty: it can


class Comparison(msgspec.Struct, frozen=True):
    runs: list[ListedRun]
    settings: dict[str, list[str | None]]  # JSON of each run, by key, where they differ; None: not recorded


def list_runs(base: Path, limit: int) -> tuple[list[ListedRun], int]:
    """The newest `limit`, and how many more there are, as far as they were looked for. Raises ConfigError for none."""
    folders = find_runs(base)
    if not folders:
        raise ConfigError(f"there is no run below {base}; start one with `codezero run`, or name another folder")
    return [read_line(path, key) for key, path in list(folders.items())[:limit]], max(0, len(folders) - limit)


def compare_runs(base: Path, names: Sequence[str]) -> Comparison:
    """names: below `base`, or folders. Raises ConfigError."""
    if len(names) > MAX_COMPARED:
        raise ConfigError(f"{len(names)} runs do not fit beside each other; name {MAX_COMPARED} at most")
    folders = [find_run(base, name) for name in names]
    settings: list[dict[str, str]] = []
    for folder in folders:
        settings.append({})
        with contextlib.suppress(UnreadableError):
            settings[-1].update((line.key, line.value) for line in read_settings(folder).settings)
    no_choice = {"run.name", "run.directory", "run.logs"}  # say nothing of what was tried
    keys = sorted({key for each in settings for key in each} - no_choice)
    rows = {key: [each.get(key) for each in settings] for key in keys}
    differing = {key: values for key, values in rows.items() if len(set(values)) > 1}
    return Comparison([read_line(path, name) for path, name in zip(folders, names, strict=True)], differing)


def find_run(base: Path, name: str) -> Path:
    """`name` below `base`, or a run's folder. Raises ConfigError."""
    for path in (base / name, Path(os.path.expanduser(name))):
        if path.is_dir() and path.resolve() in (run.resolve() for run in find_runs(path).values()):
            return path
    raise ConfigError(f"{name}: there is no such run below {base}; `codezero runs` lists them")


def read_line(folder: Path, key: str) -> ListedRun:
    history, problem = History(folder, budget=MAX_BYTES), ""
    try:
        read_label(folder)
        with translated(UnreadableError, f"{FILE_NAME} cannot be read", OSError):
            history.read()
    except (ConfigError, UnreadableError) as error:
        problem = str(error)
    facts = read_process(folder / NODE_FILE).facts
    return ListedRun(
        **asdict(summarise_run(folder, key, history)),
        folder=str(folder),
        learns=facts.get("environment") or facts.get("problems", ""),
        exam=facts.get("exam", ""),
        problem=problem,
    )


def list_lines(runs: Sequence[ListedRun], more: int) -> Iterator[str]:
    rows = [("RUN", "STATE", "ITERATION", "AVERAGE, START → NOW", "POINTS", "AGE", "LEARNS ON")]
    for run, shown in zip(runs, map(_figures, runs), strict=True):
        way = "no exam yet" if run.now is None else f"{percent(run.start)} → {percent(run.now)}"
        rows.append((run.run, shown["state"], shown["iteration"], way, shown["points"], shown["age"], run.learns))
    yield from _aligned(rows)
    yield from (f"{clean(run.run)} is broken: {clean(run.problem, 300)}" for run in runs if run.problem)
    if measures := sorted({f"{run.source} average@{run.samples}" for run in runs if run.samples}):
        yield f"average: {clean(', '.join(measures))} of the exam's problems; `codezero runs A B` compares two"
    if more:
        yield f"{count(more, 'older run')} not shown; --limit {len(runs) + more} shows them"


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    runs = comparison.runs
    rows = [("", *(run.run for run in runs))]
    columns = [*map(_figures, runs)]
    rows += [(name, *(shown[name] for shown in columns)) for name in columns[0]]
    yield from _aligned(rows)
    yield "settings that differ:" if comparison.settings else "no recorded setting differs"
    rows = [(f"  {key}", *(value or "not recorded" for value in row)) for key, row in comparison.settings.items()]
    yield from _aligned(rows)
    yield from (f"{clean(run.run)} is broken: {clean(run.problem, 300)}" for run in runs if run.problem)
    if len({run.exam for run in runs}) > 1:
        yield "their exams are of different problems: the averages do not compare"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    cleaned = [[clean(cell, 48) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cleaned, strict=True)]
    for row in cleaned:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _figures(run: ListedRun) -> dict[str, str]:
    """Say what a run has come to, by what the comparison calls it."""
    state, age = "interrupted" if run.state == "gone" else run.state, "—"  # killed, or the machine went down
    if run.updated is not None:
        seconds = max(0.0, time.time() - run.updated)
        days = f"{seconds / 86_400:.0f} d"
        age = days if seconds >= 2 * 86_400 else " ".join(duration(seconds).split()[:2])
    return {
        "state": "broken" if run.problem else state,
        "iteration": "—" if run.iteration is None else str(run.iteration),
        "average": f"{run.source} average@{run.samples}" if run.samples else "no exam yet",
        "start": percent(run.start),
        "now": measured(run.now, run.low, run.high),
        "points": "—" if run.delta is None else f"{100 * run.delta:+.1f}",
        "reward": "—" if run.reward is None else f"{run.reward:.2f}",
        "age": age,
        "learns on": run.learns,
        "exam": run.exam,
    }
