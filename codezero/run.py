"""One run: the signals, limits, rows and checkpoints of a node's iterations, and the only place that survives errors.

`node.py` and `propose.py` compose a `Run` and write what an iteration is."""

import contextlib
import logging
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from codezero.config import NodeConfig, RunConfig
from codezero.errors import ChainError, CodeZeroError, ConfigError, DiskFullError, FailedRunError, RankError, translated
from codezero.monitor.build import build_monitor, secrets_of
from codezero.monitor.logs import log_survived, setup_logging
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.terminal import Screen, choose_view
from codezero.swarm.identity import Identity
from codezero.system import signals
from codezero.system.state import KnownRound, Persistent
from codezero.types import Metrics, ScoredGroup

if TYPE_CHECKING:
    from codezero.chain.base import Coordinator
    from codezero.monitor.hub import HubPushes
    from codezero.solver.checkpoint import CheckpointStore

logger = logging.getLogger(__name__)

ROOM_SECONDS = 2.0  # between two checks whether a full disk has room again
MOST_REPEATS = 3  # from one checkpoint, before the trainer's end is the node's
NO_VERDICT = "attempts without a verdict"
NOT_BEGUN = "stopped while starting, with nothing to save"


Kinds = type[CodeZeroError] | tuple[type[CodeZeroError], ...]


class Step(NamedTuple):
    """One iteration: its number, and the round that it is played in."""

    iteration: int
    round: int


@dataclass(slots=True)
class Failures:
    """The errors of one step of an iteration, in this process."""

    in_a_row: int = 0
    kinds: Counter[str] = field(default_factory=Counter[str])
    first: str = ""  # of a step without which nothing comes of an iteration


class Laps:
    """The seconds of an iteration by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def end(self, step: str) -> None:
        """Book the time since the last call on `step`."""
        now = time.monotonic()
        self.seconds[f"seconds/{step}"], self._since = now - self._since, now


@contextlib.contextmanager
def starting(
    config: NodeConfig, folder: Path, view: Screen | None = None
) -> Generator[tuple[RunMonitor, contextlib.ExitStack, str]]:
    """Log, show and answer signals while parts are made, until a `Run` does; the stack closes them.

    Yields the own peer id too. What ends the block stands in the log with its trace. Raises ConfigError and
    IdentityError."""
    signals.end_with_parent()
    unwritable = f"run.logs={config.run.logs} cannot be written"
    with translated(ConfigError, unwritable, OSError, mend="choose another folder"):
        setup_logging(Path(config.run.logs), secrets_of(config))
    peer_id = Identity.load_or_create(Path(config.swarm.identity)).peer_id
    monitor = build_monitor(config, folder, peer_id, view or choose_view("plain"))

    def answer(which: signal.Signals, _before: int) -> None:
        signals.leave(which, lambda: monitor.cut(NOT_BEGUN))

    with signals.Stop().on_signals(answer=answer), contextlib.ExitStack() as stack:
        try:
            yield monitor, stack, peer_id
        except Exception:
            logger.info(signals.FAILED, exc_info=True)
            raise


class Run:
    """Entering restores the newest checkpoint and answers signals; leaving closes the monitor.

    Leaving raises FailedRunError when nothing came of any iteration. An iteration that is not saved in time after a
    signal is left out, as if the process had been killed."""

    def __init__(
        self,
        settings: RunConfig,
        monitor: RunMonitor,
        checkpoints: "CheckpointStore",
        coordinator: "Coordinator",
        parts: Mapping[str, Persistent],
        *,
        pushes: "HubPushes | None" = None,
        finishing_seconds: float = signals.FINISHING_SECONDS,
    ) -> None:
        """parts: whose state a checkpoint holds. pushes: of checkpoints to the hub.

        finishing_seconds: after a signal, for the iteration in flight and its checkpoint."""
        self.stop = signals.Stop()
        self.reason = ""  # why the run ends; empty while it goes on
        self.kept = 0  # the iteration of the newest checkpoint
        self.measured = False  # it has figures of an exam; one that begins with another run's checkpoint has none
        self.examined: int | None = None  # the iteration whose exam was begun last, or is under way
        self.failures: defaultdict[str, Failures] = defaultdict(Failures)  # by what a failed step has for a consequence
        self._settings, self.monitor, self._checkpoints, self._coordinator = settings, monitor, checkpoints, coordinator
        self._known_round = KnownRound()
        self._parts = {**parts, "round": self._known_round}
        self._pushes, self._finishing_seconds = pushes, finishing_seconds
        self._signals = contextlib.ExitStack()
        self._in_flight = 0  # the iteration that is under way; 0: none has begun
        self._whole = True  # false: the iteration lost its trainer
        self._useful = False  # whether an iteration of this process had a verdict or a proposal
        self._useless = 0  # iterations until the first that had
        self._repeats: Counter[int] = Counter()  # by the checkpoint that the run went back to
        self._began = self._saved = time.monotonic()

    def __enter__(self) -> Self:
        self._restore()
        self._began = self._saved = time.monotonic()
        self._signals.enter_context(self.stop.on_signals(self._finishing_seconds, self._answer))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._signals.__exit__(kind, error, trace)
        useless = not self._useful and self._useless > 0
        if isinstance(error, signals.Overdue):
            self.reason = signals.CUT
            late = "the iteration in flight took over %g s after the signal; the next start goes on from iteration %d"
            logger.warning(late, self._finishing_seconds, self.kept)
        elif error is not None:
            self.reason = signals.FAILED
        self.monitor.close(signals.FAILED if useless else self.reason)
        if useless and (error is None or isinstance(error, signals.Overdue)):
            vital = ((then, failures) for then, failures in self.failures.items() if failures.first)
            why = [f"{then} ({each.in_a_row or self._useless} times), first {each.first}" for then, each in vital]
            failed = f"nothing came of any of this start's iterations: {'; '.join(why) or 'no attempts'}"
            if self.stop.received is not signal.SIGINT:
                raise FailedRunError(failed)
            logger.error("%s", failed)
        return isinstance(error, signals.Overdue)

    def steps(self) -> Iterator[Step]:
        """Iterations until a limit or a signal; from the newest checkpoint again after one that lost its trainer."""
        iteration = self.kept
        self.reason = self._reached(iteration)
        while not self.reason:
            iteration, self._whole = iteration + 1, True
            self._in_flight = iteration
            yield Step(iteration, self.open_round())
            if not self._whole:
                self._repeats[self.kept] += 1
                self._restore()
                iteration, self.reason = self.kept, signals.ASKED if self.stop else ""

    @contextlib.contextmanager
    def repeatable(self, step: Step) -> Generator[None]:
        """Lose the iteration with its trainer: the run goes back to its newest checkpoint, MOST_REPEATS times."""
        final = not self.kept or self._repeats[self.kept] >= MOST_REPEATS
        with self.tolerate(RankError, then="going on from the newest checkpoint", most=int(final)):
            self._whole = False
            yield
            self._whole = True

    @contextlib.contextmanager
    def tolerate(self, errors: Kinds, *, then: str, most: int = 0) -> Generator[None]:
        """Survive these errors, the only place that does: log, count, go on.

        then: the consequence for the iteration. most: failures in a row, the last of which is raised; 0: no limit."""
        failures = self.failures[then]
        try:
            yield
        except errors as error:
            kind = type(error).__name__
            failures.in_a_row, failures.kinds[kind] = failures.in_a_row + 1, failures.kinds[kind] + 1
            if most:
                failures.first = failures.first or f"{kind}: {error}"
            if most and failures.in_a_row >= most:
                logger.error("%s, %d times in a row: the node stops", then, most, exc_info=True)
                raise
            log_survived(then, error, failures.kinds[kind])
        else:
            failures.in_a_row = 0

    def open_round(self) -> int:
        """The round that is open now; the last known one while the coordinator cannot be asked."""
        with self.tolerate(ChainError, then="playing on in the last known round"):
            self._known_round.memory.round = self._coordinator.current_round()
        return self._known_round.memory.round

    def is_last(self, step: Step) -> bool:
        """A limit ends the run with this iteration; after a signal nothing is measured once more."""
        self.reason = self._reached(step.iteration)
        return bool(self.reason) and self.reason != signals.ASKED

    def record(self, step: Step, row: Metrics, judged: Sequence[ScoredGroup], *, useful: bool) -> None:
        """Write and show the row of an iteration. useful: whether anything came of it; else it is not saved."""
        self._useful, self._useless = self._useful or useful, self._useless + (not useful)
        if reason := row.get("attempts/no_verdict_reason"):
            self.failures[NO_VERDICT].first = self.failures[NO_VERDICT].first or str(reason)
        kinds = sum((failures.kinds for failures in self.failures.values()), Counter[str]())
        self.show(step, row | {f"tolerated/{kind}": count for kind, count in kinds.items()}, judged)

    def show(self, step: Step, row: Metrics, judged: Sequence[ScoredGroup] = ()) -> None:
        """Write and show a row that no iteration stands behind, as of an exam before the first."""
        self._on_disk(lambda: self.monitor.observe(step.iteration, row, judged))
        if "eval/iteration" in row:
            self._keep_best()

    def save(self, step: Step) -> None:
        """Write a checkpoint, if it is due or the run ends. A row without its checkpoint is dropped by a restart."""
        self.reason = self.reason or (signals.ASKED if self.stop else self._learned_enough())
        best = self._settings.keep == "best"
        due = self.reason or time.monotonic() - self._saved >= self._settings.checkpoint_seconds
        if not self._useful or not (due or (best and self.examined == step.iteration)):
            return
        self._on_disk(lambda: self._checkpoints.save(step.iteration, self._parts, self.examined if best else None))
        self.kept, self._saved = step.iteration, time.monotonic()
        self._keep_best()
        if self._pushes is not None:
            self._pushes.push(self._checkpoints.best_or_latest, self._known_round.memory.round)

    def _keep_best(self) -> None:
        if (exam := self.monitor.fold.best) is not None and self._settings.keep == "best":
            self._on_disk(lambda: self._checkpoints.keep_best(exam.iteration))

    def _restore(self) -> None:
        self.kept = self._checkpoints.restore(self._parts)
        self.measured = self.monitor.started(self.kept)

    def _reached(self, iteration: int) -> str:
        """Why the run ends here; empty: it does not."""
        limits = self._settings
        if self.stop:
            return signals.ASKED
        if limits.max_iterations and iteration >= limits.max_iterations:
            return "max_iterations reached"
        late = limits.max_minutes and time.monotonic() - self._began >= 60 * limits.max_minutes
        return "max_minutes reached" if late else self._learned_enough()

    def _learned_enough(self) -> str:
        """Why no more need be learned, by the exams so far; empty: more may be."""
        limits, best, since = self._settings, self.monitor.fold.best, self.monitor.fold.since_best
        if best is None:
            return ""
        if limits.stop_at and (best.low or 0.0) >= limits.stop_at:
            return f"stop_at reached by the policy of iteration {best.iteration}, {best.label} {best.interval}"
        better = f"no exam in {since} was better than that of iteration {best.iteration}, {best.label} {best.interval}"
        return f"patience reached: {better}" if 0 < limits.patience <= since else ""

    def _on_disk(self, write: Callable[[], None]) -> None:
        """Write; on a full disk wait for room. Raises DiskFullError when asked to stop meanwhile."""
        while not self.stop:
            with self.tolerate(DiskFullError, then="waiting for room on the disk"):
                return write()
            self.stop.wait(ROOM_SECONDS)
        write()

    def _answer(self, which: signal.Signals, before: int) -> None:
        """Say what a signal brings about; the second ends the process. Runs in a thread of its own."""
        if before:
            signals.leave(which, lambda: self.monitor.cut(signals.INTERRUPTED))
        doing = f"saving iteration {self._in_flight}" if self._in_flight else "finishing what was begun"
        self.monitor.say(f"stopping: {doing}, up to {self._finishing_seconds:g} s; {signals.again(which)}")
