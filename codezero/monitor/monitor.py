"""Records, shows and reports a run: metrics.jsonl, rollouts.db, a view, the report, and Weights & Biases."""

import contextlib
import importlib
import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from codezero.monitor.logs import quiet_libraries
from codezero.monitor.metrics_file import FILE_NAME, NODE_FILE, MetricsFile, number
from codezero.monitor.report import command, headline, write_report
from codezero.monitor.rollouts_db import RolloutStore
from codezero.monitor.run_state import Fold, History
from codezero.monitor.run_types import RunView
from codezero.monitor.run_view import most_telling, view_of
from codezero.monitor.terminal import Screen, choose_view, save_picture
from codezero.monitor.text import duration, print_flushed
from codezero.system.child import ProcessReport, write_process
from codezero.system.signals import Share
from codezero.types import Metrics, ScoredGroup

logger = logging.getLogger(__name__)

MAX_FACT = 300  # characters of a fact in NODE_FILE
SHOWN_EVERY = 15.0  # seconds between two reports of how much of a call is done
MOST_WAITING = 256  # rows queued for Weights & Biases; more are dropped, and metrics.jsonl has them all
LEAVING_SECONDS = 5.0  # for sending the rest at the end: a node that has to stop has 30


class WandbRun(threading.Thread):
    """Sends rows to Weights & Biases, whose own process keeps and uploads them. A failure is one warning.

    project: PROJECT or ENTITY/PROJECT; facts: the peer id and the models; folder: the run's. Calls of wandb can wait
    for its server, so they are made in a thread that nothing waits for. The key comes from WANDB_API_KEY alone; without
    one everything stays below logs/wandb. WANDB_MODE is the user's. Sent are the figures, the run's name, the peer id,
    the models, and the versions of Python, wandb and the kind of system; no settings, paths, source or host name."""

    def __init__(self, project: str, facts: Mapping[str, str], folder: Path, logs: Path) -> None:
        super().__init__(name="wandb", daemon=True)
        self._project, self._facts, self._folder, self._logs = project, facts, folder, logs
        self._rows: queue.Queue[Metrics | None] = queue.Queue(MOST_WAITING)

    def observe(self, row: Metrics | None) -> None:
        """Send this row later; None: it was the last."""
        with contextlib.suppress(queue.Full):
            self._rows.put_nowait(row)

    def close(self) -> None:
        self.observe(None)
        self.join(LEAVING_SECONDS)

    def run(self) -> None:
        try:
            library: Any = importlib.import_module("wandb")
            mode, identity = os.environ.get("WANDB_MODE") or "online", self._folder / "wandb.id"
            if mode != "disabled" and not os.environ.get("WANDB_API_KEY"):
                mode = "offline"
            if not identity.is_file():  # a resumed run keeps its id; a new one in a folder of the same name has none
                identity.write_text(secrets.token_hex(8) + "\n")
            self._logs.mkdir(parents=True, exist_ok=True)
            settings = library.Settings(
                silent=True, console="off", save_code=False, disable_git=True, host="codezero", init_timeout=10.0,
                finish_timeout=LEAVING_SECONDS, x_save_requirements=False, x_disable_meta=True, x_disable_stats=True,
            )  # fmt: skip
            entity, _, project = self._project.rpartition("/")
            run = library.init(
                entity=entity or None,
                project=project,
                name=self._folder.name,
                id=identity.read_text().strip(),
                config=dict(self._facts),
                dir=str(self._logs),
                resume="allow" if mode == "online" else None,
                mode=mode,
                settings=settings,
            )
            while (row := self._rows.get()) is not None:
                figures = {key: float(value) for key in row if (value := number(row, key)) is not None}
                run.log(figures, step=int(row["iteration"] or 0))
            run.finish()
        except (Exception, SystemExit) as error:  # its errors have no base of their own
            name = type(error).__name__
            logger.warning("Weights & Biases: %s: %s; training goes on without it", name, error)
            logger.info("the trace of Weights & Biases", exc_info=error)


class RunMonitor:
    def __init__(
        self,
        *,
        folder: Path,
        view: str,
        identity: str,
        facts: Mapping[str, str],
        wandb: WandbRun | None = None,
        usage: Callable[[], Metrics] = dict,
        start: Screen | None = None,
    ) -> None:
        """`view` is auto, live, plain or off; `identity` the peer id; `facts` what stays the same: swarm, models.

        usage: what the node uses of the machine now, for each row. start: what is seen until `started`; None: lines."""
        self.folder, self.view_kind, self._wandb, self._usage = folder, view, wandb, usage
        self.doing = ""  # what takes time now, beside the iterations
        self.problem: ScoredGroup | None = None  # the last own one of which some attempts could be judged
        self._process = ProcessReport(pid=os.getpid(), peer_id=identity, began=time.time(), facts=dict(facts))
        # of the call under way: when it began, when it was last shown, and what was shown before it
        self._call: tuple[float, float, str] | None = None
        self._file: MetricsFile | None = None
        self._history = History(folder)
        self._stage: Literal["starting", "running", "ended"] = "starting"
        self._reason = ""  # why it ended, from the beginning of its end on
        self._rollouts = RolloutStore(folder, identity)
        self._screen = start or choose_view("off" if view == "off" else "plain")
        self.view = self._viewed(Fold())

    def started(self, iteration: int) -> bool:
        """Drop rows after `iteration` (at 0 all of them: the exam before the first iteration is sat again).

        Is an exam on record?"""
        self._file = MetricsFile(self.folder)
        self._file.truncate_after(iteration if iteration > 0 else -1)
        self.view = self._viewed(self._history.read())
        self._rollouts.begin(iteration)
        if self._wandb:
            self._wandb.start()
        self._stage = "running"
        self._write_node_file(stopped=None)
        logger.info("%s begins at iteration %d in %s", self.view.name, iteration, self.folder)
        quiet_libraries()  # by now everything is imported
        self._screen.close()
        self._screen = choose_view(self.view_kind)
        self._screen.show(self.view)
        return bool(self.view.exams)

    def add_facts(self, *, stand_ins: str = "", **facts: str) -> None:
        """Add what turned out while the parts were made. stand_ins: what stands in for sources of problems."""
        old = self._process
        self._process = replace(old, facts=old.facts | facts, stand_ins=stand_ins or old.stand_ins)

    @property
    def fold(self) -> Fold:
        return self._history.fold

    def busy(self, doing: str) -> None:
        """Show this until the next `observe`. From the first call on, others know that this process runs here."""
        if self._file is None and not self.doing:
            self._write_node_file(stopped=None)
        self.doing = doing
        self._screen.busy(doing)

    def part(self, doing: str, what: str, done: int, of: int) -> None:
        """Show from time to time how much of one call is done, with the time that may be left."""
        now = time.monotonic()
        began, shown, before = self._call or (now, now, "" if isinstance(self.doing, Share) else self.doing)
        if done == of:
            if shown > began:
                self.doing = before
                self._screen.show(self.view, self.problem, before)
            self._call = None
            return
        if done and now - shown >= SHOWN_EVERY:
            left = duration((now - began) / done * (of - done))
            self.busy(f"{before or doing}: {done} of {of} {what}, about {left} left")
            shown = now
        self._call = began, shown, before

    def observe(self, iteration: int, metrics: Metrics, judged: Sequence[ScoredGroup]) -> None:
        row = self._usage() | metrics | {"iteration": iteration}
        if row.get("eval/set"):  # an exam's figures mean little without what they are of
            row |= {f"run/{name}": value for name, value in self._process.facts.items() if name != "swarm"}
        if self._file is not None:
            self._file.append(row)
            self._rollouts.add(iteration, judged)
        if self._wandb:
            self._wandb.observe(row)
        try:
            self._history.read()
        except OSError as error:  # the row is written: what is shown may be older, and the run goes on
            logger.warning("%s cannot be read, so older figures are shown: %s", self.folder / FILE_NAME, error.strerror)
        for first, words in self.fold.obstacles.values():
            if first == iteration:
                logger.warning("what keeps this run from learning: %s", words)
        own = [scored for scored in judged if scored.group.peer_id == self._process.peer_id]
        self.problem, self.doing = most_telling(own) or self.problem, ""
        self.view = self._viewed(self.fold)
        self._screen.show(self.view, self.problem)

    def say(self, line: str) -> None:
        """Show a line at once, and until the end. From any thread."""
        logger.info("%s", line)
        self._screen.say(line)

    def close(self, reason: str) -> None:
        """Give the terminal back, write the report and say where it is. Nothing to do before `started`."""
        if self._file is None:
            return
        self._reason = reason
        self._screen.close()
        self._file.close()
        self._file = None
        self._rollouts.close()
        if self._wandb:
            self._wandb.close()
        self._finish(reason, self._history, pictures=True)

    def cut(self, reason: str) -> None:
        """Record, from any thread, that the process ends now: `close` without what takes long."""
        if self._stage == "ended":
            return
        self._screen.close()
        reason = self._reason or reason
        if self._stage == "running":
            self._finish(reason, History(self.folder), pictures=False)  # the other one may be in use by its thread
            return
        with contextlib.suppress(OSError):  # a full disk
            if self.doing:  # else nobody knows of this process
                self._write_node_file(stopped=reason)
        if self.view_kind != "off":
            print_flushed(f"codezero: {reason}")

    def _finish(self, reason: str, history: History, *, pictures: bool) -> None:
        page = self.folder
        try:
            self._write_node_file(stopped=reason)
            fold = history.read()
            page = write_report(self.folder, fold, self._viewed(fold), self.problem, reason, picture=pictures)
            if pictures:
                save_picture(self.folder / "view.svg", self.view, self.problem)
        except OSError as error:  # a full disk: it must not hide why the run ended
            logger.warning("the end of the run cannot be written to %s: %s", self.folder, error.strerror)
        self._stage, iteration = "ended", self.view.iteration or 0
        logger.info("ended after iteration %d: %s", iteration, reason)
        if self.view_kind != "off":
            print_flushed(f"codezero: {reason}, after iteration {iteration}")
            print_flushed(f"  {headline(self.view.exams)}")
            if self.view.best:
                print_flushed(f"  {self.view.best}")
            print_flushed(f"  report: {page}")
            print_flushed(f"  next: the same command goes on from here; with peers: {command()} swarm up --nodes 3")

    def _viewed(self, fold: Fold) -> RunView:
        return view_of(fold, self._process, curves=("reward",))

    def _write_node_file(self, stopped: str | None) -> None:
        own = self._process
        facts = {name: value[:MAX_FACT] for name, value in own.facts.items()}
        report = {"peer_id": own.peer_id, "began": own.began, "stopped": stopped, "facts": facts}
        write_process(self.folder / NODE_FILE, {**report, "stand_ins": own.stand_ins[:MAX_FACT]})
