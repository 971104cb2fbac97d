"""The runner of every role: resume, limits, signals, records, checkpoints; the only place that survives errors."""

import contextlib
import logging
import signal
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

from codezero.config import NodeConfig
from codezero.errors import ChainError, CodeZeroError, DiskFullError, FailedRunError, RankError
from codezero.monitor.logs import log_survived
from codezero.protocols import Checkpoints, Coordinator, Difficulty, Monitor, Proposer, Swarm
from codezero.system.signals import ASKED, CUT, FAILED, FINISHING_SECONDS, INTERRUPTED, Overdue, Stop, again, leave
from codezero.system.state import KnownRound, Persistent
from codezero.types import Metrics, ScoredGroup

logger = logging.getLogger(__name__)

ROOM_SECONDS = 2.0
"""Between two checks whether a full disk has room again."""
MOST_REPEATS = 3
"""From one checkpoint, before the trainer's end is the node's."""
LIMITS = ("max_iterations reached", "max_minutes reached")
BEGUN = "begun"
"""Why something is measured before a run's first iteration."""


class Laps:
    """Where the time of an iteration goes, in seconds by step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def end(self, step: str) -> None:
        """What has passed since the last one is of this step."""
        now = time.monotonic()
        self.seconds[f"seconds/{step}"], self._since = now - self._since, now


@dataclass(kw_only=True)
class Iterating:
    """What every role has; the role says what one iteration is."""

    config: NodeConfig
    swarm: Swarm
    difficulty: Difficulty
    proposer: Proposer
    coordinator: Coordinator
    monitor: Monitor
    checkpoints: Checkpoints
    finishing_seconds: float = FINISHING_SECONDS
    """After a signal, for the iteration in flight and its checkpoint; a longer one is left out."""
    kept: int = 0
    """The iteration of the newest checkpoint."""
    measured: bool = False
    """Has this run figures of an exam? One that begins with another run's checkpoint has none."""
    in_flight: int = 0
    """The iteration that is under way; 0: none has begun."""
    known_round: KnownRound = field(default_factory=KnownRound)
    stop: Stop = field(default_factory=Stop)
    tolerated: Counter[str] = field(default_factory=Counter[str])
    failures: Counter[str] = field(default_factory=Counter[str])
    """In a row, by the step's consequence."""
    survived: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """In this process, by the step's consequence and the kind of error."""
    barren: int = 0
    """Iterations of this process, none with a verdict or a proposal, so not saved; -1: there was one that had some."""
    lost: dict[str, str] = field(default_factory=dict[str, str])
    """The first error of each step without which nothing comes of an iteration, by its consequence."""
    repeated: Counter[int] = field(default_factory=Counter[int])
    """How often the node went back to a checkpoint, because its trainer was gone."""

    def iterate(self, iteration: int, round_number: int) -> tuple[Metrics, list[ScoredGroup]]:
        """One pass; returns what was measured and the judged groups, own and peers'."""
        raise NotImplementedError

    def measure(self, iteration: int, reason: str) -> Metrics:
        """What is measured beside an iteration; `reason`: why it is the last one, or BEGUN, before the run's first."""
        return {}

    @property
    def parts(self) -> Mapping[str, Persistent]:
        """What a checkpoint holds."""
        shared = {"difficulty": self.difficulty, "proposer": self.proposer, "swarm": self.swarm}
        return {**shared, "round": self.known_round}

    def shared_metrics(self) -> Metrics:
        return self.swarm.metrics() | self.difficulty.metrics() | self.proposer.metrics()

    def run(self) -> str:
        """Iterate until a limit or a signal, finishing and saving the iteration in flight. Returns why.

        An iteration that is not saved in time after a signal is left out, as if the process had been killed. Raises
        FailedRunError when nothing came of any iteration.
        """
        iteration, reason = self.restore(), FAILED
        try:
            with self.stop.on_signals(self.finishing_seconds, self.answer):
                reason = self.loop(iteration)
        except Overdue:
            reason = CUT
            late = "the iteration in flight took over %g s after the signal; the next start goes on from iteration %d"
            logger.warning(late, self.finishing_seconds, self.kept)
        finally:
            self.monitor.close(FAILED if self.barren > 0 else reason)
        if self.barren > 0:
            parts = [
                f"{part} ({self.failures[part] or self.barren} times), first {why}" for part, why in self.lost.items()
            ]
            raise FailedRunError(f"nothing came of any of this start's iterations: {'; '.join(parts) or 'no attempts'}")
        return reason

    def restore(self) -> int:
        """Become the newest checkpoint; its iteration."""
        self.kept = self.checkpoints.restore(self.parts)
        self.measured = self.monitor.started(self.kept)
        return self.kept

    def answer(self, which: signal.Signals, before: int) -> None:
        """Say what a signal brings about; the second ends the process. Runs in a thread of its own."""
        if before:
            leave(which, lambda: self.monitor.cut(INTERRUPTED))
        doing = f"saving iteration {self.in_flight}" if self.in_flight else "finishing what was begun"
        self.monitor.say(f"stopping: {doing}, up to {self.finishing_seconds:g} s; {again(which)}")

    def loop(self, iteration: int) -> str:
        """From `iteration`, the number already done. Returns why it ended."""
        began = saved = time.monotonic()
        round_number = self.open_round()
        if not self.measured and (before := self.measure(iteration, BEGUN)):
            row = {"iteration": iteration, "round": round_number} | before
            self.write(self.monitor.observe, iteration, row, [])
        reason = self.reason_to_stop(iteration, began)
        while not reason:
            round_number = self.open_round()
            iteration = self.in_flight = iteration + 1
            final = not self.kept or self.repeated[self.kept] >= MOST_REPEATS
            with self.tolerate(RankError, "going on from the newest checkpoint", most=int(final)):
                row, judged = self.iterate(iteration, round_number)
                self.barren += self.barren >= 0
                if why := row.get("attempts/no_verdict_reason"):
                    self.lost.setdefault("attempts without a verdict", str(why))
                reason = self.reason_to_stop(iteration, began)
                row |= self.measure(iteration, reason)
                # Logged before saved: a crash between the two leaves a row too many, which a restart drops.
                self.write(self.monitor.observe, iteration, row | self.tolerated, judged)
                reason = reason or (ASKED if self.stop else "")
                if self.barren < 0 and (reason or time.monotonic() - saved >= self.config.run.checkpoint_seconds):
                    self.write(self.checkpoints.save, iteration, self.parts)
                    self.kept, saved = iteration, time.monotonic()
                continue
            self.repeated[self.kept] += 1
            iteration, reason = self.restore(), ASKED if self.stop else ""
        return reason

    def write(self, call: Callable[..., None], *given: object) -> None:
        """Call it; on a full disk wait until there is room. Raises DiskFullError when asked to stop meanwhile."""
        while not self.stop:
            with self.tolerate(DiskFullError, "waiting for room on the disk"):
                return call(*given)
            self.stop.wait(ROOM_SECONDS)
        call(*given)

    def reason_to_stop(self, iteration: int, began: float) -> str:
        """Empty while there is none."""
        if self.stop:
            return ASKED
        run = self.config.run
        if run.max_iterations and iteration >= run.max_iterations:
            return LIMITS[0]
        return LIMITS[1] if run.max_minutes and time.monotonic() - began >= 60 * run.max_minutes else ""

    def open_round(self) -> int:
        """The round that is open now; the last known one while the coordinator cannot be asked."""
        with self.tolerate(ChainError, "playing on in the last known round"):
            self.known_round.number = self.coordinator.current_round()
        return self.known_round.number

    @contextlib.contextmanager
    def tolerate(
        self, errors: type[CodeZeroError] | tuple[type[CodeZeroError], ...], consequence: str, *, most: int = 0
    ) -> Generator[None]:
        """The only place an error is survived: log it, count it, go on.

        most: failures in a row with this consequence, the last of which is raised; 0: all are survived.
        """
        try:
            yield
        except errors as error:
            kind = type(error).__name__
            self.tolerated[f"tolerated/{kind}"] += 1
            self.survived[consequence, kind] += 1
            self.failures[consequence] += 1
            if most:
                self.lost.setdefault(consequence, f"{kind}: {error}")
            if most and self.failures[consequence] >= most:
                logger.error("%s, %d times in a row: the node stops", consequence, most, exc_info=True)
                raise
            log_survived(consequence, error, self.survived[consequence, kind])
        else:
            self.failures[consequence] = 0
