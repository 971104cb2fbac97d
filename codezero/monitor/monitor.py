"""Records, shows and reports a run: `protocols.Monitor` over metrics.jsonl, rollouts.db, a view and the report."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from codezero.monitor.logs import quiet_libraries
from codezero.monitor.metrics_file import FILE_NAME, NODE_FILE, MetricsFile
from codezero.monitor.report import command, headline, write_report
from codezero.monitor.rollouts_db import RolloutStore
from codezero.monitor.run_state import History
from codezero.monitor.sinks import BackgroundSink, close_all
from codezero.monitor.summaries import PlainView, RunState
from codezero.monitor.terminal import LiveView, choose_view, save_picture
from codezero.monitor.text import duration, print_flushed, readable_name
from codezero.system.pidfile import write_process
from codezero.system.signals import Share
from codezero.types import Metrics, ScoredGroup

logger = logging.getLogger(__name__)

MAX_FACT = 300
"""Characters of a fact in NODE_FILE."""
SHOWN_EVERY = 15.0
"""Seconds between two looks at how much of a part is done."""


class RunMonitor:
    """Implements `protocols.Monitor` for one run folder."""

    def __init__(
        self,
        *,
        folder: Path,
        view: str,
        identity: str,
        swarm_kind: str,
        facts: Mapping[str, str],
        sinks: Sequence[BackgroundSink] = (),
        usage: Callable[[], Metrics] = dict,
        start: PlainView | None = None,
    ) -> None:
        """`view` is auto, live, plain or off; `identity` the peer id; `facts` what stays the same, such as models.

        usage: what the node uses of the machine now, for each row. start: what is seen until `started`; None: lines.
        """
        self.folder, self.view_kind, self._sinks, self._usage = folder, view, sinks, usage
        self.stand_ins = ""
        """What stands in for sources of problems at the start."""
        self.state = RunState(identity=identity, swarm_kind=swarm_kind, facts=dict(facts), began=time.time())
        self._begun: tuple[float, float, str] | None = None
        """Of the call under way: when it began, when it was last shown, and what was said before it."""
        self._file: MetricsFile | None = None
        self._history = History(folder)
        self._stage: Literal["starting", "running", "ended"] = "starting"
        self._reason = ""
        """Why it ended, from the beginning of its end on."""
        self._rollouts = RolloutStore(folder, identity)
        self._view = start or choose_view("off" if view == "off" else "plain", LiveView)

    def started(self, iteration: int) -> bool:
        """Drop rows after `iteration` (at 0 all of them: the exam before the first iteration is sat again).

        Is an exam on record?"""
        self._file = MetricsFile(self.folder)
        self._file.truncate_after(iteration if iteration > 0 else -1)
        self.state = self.state.after(self._history.read())
        self._rollouts.begin(iteration)
        for sink in self._sinks:
            sink.start(iteration)
        self._stage = "running"
        self._write_node_file(stopped=None)
        logger.info("%s begins at iteration %d in %s", readable_name(self.state.identity), iteration, self.folder)
        quiet_libraries()  # by now everything is imported
        self._view.close()
        self._view = choose_view(self.view_kind, LiveView)
        self._view.show(self.state)
        return bool(self.state.exams)

    def add_facts(self, **facts: str) -> None:
        """What turned out to stay the same while the parts were put together."""
        self.state = replace(self.state, facts={**self.state.facts, **facts})

    def busy(self, doing: str) -> None:
        """Shown until the next `observe`. From the first call on, others know that this process runs here."""
        if self._file is None and not self.state.busy:
            self._write_node_file(stopped=None)
        self.state = replace(self.state, busy=doing)
        self._view.busy(self.state)

    def part(self, doing: str, what: str, done: int, of: int) -> None:
        """So much of one call is done: shown from time to time, with the time that may be left."""
        now, busy = time.monotonic(), self.state.busy
        began, shown, before = self._begun or (now, now, "" if isinstance(busy, Share) else busy)  # a part that ended
        if done == of:
            if shown > began:
                self.state = replace(self.state, busy=before)
                self._view.show(self.state)
            self._begun = None
            return
        if done and now - shown >= SHOWN_EVERY:
            left = duration((now - began) / done * (of - done))
            self.busy(f"{before or doing}: {done} of {of} {what}, about {left} left")
            shown = now
        self._begun = began, shown, before

    def observe(self, iteration: int, metrics: Metrics, judged: Sequence[ScoredGroup]) -> None:
        """One row and some of the groups on disk, one picture on the screen."""
        row = self._usage() | metrics | {"iteration": iteration}
        if row.get("eval/set"):  # an exam's figures mean little without what they are of
            row |= {f"run/{name}": value for name, value in self.state.facts.items()}
        if self._file is not None:
            self._file.append(row)
            self._rollouts.add(iteration, judged)
        for sink in self._sinks:
            sink.observe(row)
        own = [scored for scored in judged if scored.group.peer_id == self.state.identity]
        try:
            fold = self._history.read()
        except OSError as error:  # the row is written: what is shown may be older, and the run goes on
            logger.warning("%s cannot be read, so older figures are shown: %s", self.folder / FILE_NAME, error.strerror)
            fold = self._history.fold
        for found, words in fold.obstacles.values():
            if found == iteration:
                logger.warning("what keeps this run from learning: %s", words)
        self.state = self.state.after(fold, own)
        self._view.show(self.state)

    def say(self, line: str) -> None:
        """Show a line at once, and until the end. From any thread."""
        logger.info("%s", line)
        self._view.say(line)

    def close(self, reason: str) -> None:
        """Give the terminal back, write the report and say where it is. Nothing to do before `started`."""
        if self._file is None:
            return
        self._reason = reason
        self._view.close()
        self._file.close()
        self._file = None
        self._rollouts.close()
        close_all(self._sinks)
        page = self.folder
        try:
            self._write_node_file(stopped=reason)
            page = write_report(self.folder, self._history.read(), self.state, reason)
            save_picture(self.folder / "view.svg", self.state)
        except OSError as error:  # a full disk: it must not hide why the run ended
            logger.warning("the end of the run cannot be written to %s: %s", self.folder, error.strerror)
        self._say_farewell(reason, page)

    def cut(self, reason: str) -> None:
        """Record, from any thread, that the process ends now: `close` without what takes long."""
        if self._stage == "ended":
            return
        self._view.close()
        reason, page = self._reason or reason, self.folder
        with contextlib.suppress(OSError):  # a full disk
            if self._stage == "running" or self.state.busy:  # else nobody was told of this process
                self._write_node_file(stopped=reason)
            if self._stage == "running":
                fold = History(self.folder).read()  # the other one may be in use by its thread
                page = write_report(self.folder, fold, self.state, reason, picture=False)
        if self._stage == "running":
            self._say_farewell(reason, page)
        elif self.view_kind != "off":
            print_flushed(f"codezero: {reason}")

    def _say_farewell(self, reason: str, page: Path) -> None:
        self._stage = "ended"
        logger.info("ended after iteration %d: %s", self.state.iteration, reason)
        if self.view_kind != "off":
            print_flushed(f"codezero: {reason}, after iteration {self.state.iteration}")
            print_flushed(f"  {headline(self.state.exams)}")
            print_flushed(f"  report: {page}")
            print_flushed(f"  next: the same command goes on from here; with peers: {command()} swarm up --nodes 3")

    def _write_node_file(self, stopped: str | None) -> None:
        state, stand_ins = self.state, self.stand_ins[:MAX_FACT]
        facts = {"swarm": state.swarm_kind} | {name: value[:MAX_FACT] for name, value in state.facts.items()}
        report = {"peer_id": state.identity, "began": state.began, "stopped": stopped, "stand_ins": stand_ins}
        write_process(self.folder / NODE_FILE, {**report, "facts": facts})
