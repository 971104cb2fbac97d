"""Where an iteration's judged groups come from: in step with the update that they serve, or ahead of it.

Ahead, servers go on sampling while the learner takes its step. As many groups wait or are under way as keep the servers
busy through an update, and never more than `max_staleness` updates can use (Fu et al. 2025, "AReaL", equation 3).
Without servers a thread samples the next batch meanwhile, from the policy before the step. Judging stays in the node's
own thread."""

import dataclasses
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from codezero.config import NodeConfig
from codezero.errors import RolloutError
from codezero.system.state import StateFile
from codezero.types import Metrics, Problem, RolloutGroup, ScoredGroup, mean

if TYPE_CHECKING:
    from codezero.evaluator.base import Evaluator
    from codezero.models.generation import Sampler, TrailingSampler
    from codezero.problems.stream import MixedStream
    from codezero.solver.solver import GrpoSolver
    from codezero.solver.updater import Learner

logger = logging.getLogger(__name__)


class Attempts(ABC):
    """Its state is that of the problem stream, and what it holds back."""

    def __init__(
        self,
        problems: "MixedStream",
        solver: "GrpoSolver",
        evaluator: "Evaluator",
        servers: Callable[[], Metrics] = dict,
    ) -> None:
        """servers: metrics of those that decode."""
        self.problems, self.solver, self.evaluator, self.servers = problems, solver, evaluator, servers

    @abstractmethod
    def take(self, proposals: Sequence[Problem], round_number: int) -> Iterator[list[ScoredGroup]]:
        """Judged groups of own attempts, as they come. Raises EvaluatorError, RolloutError, and SandboxError where
        rewards are executed: what came before is kept."""

    @abstractmethod
    def metrics(self) -> Metrics:
        """`tokens/...`, and `rollout/...` where attempts are made ahead."""

    def save(self, folder: Path) -> None:
        self.problems.save(folder)

    def load(self, folder: Path) -> None:
        self.problems.load(folder)


def build_attempts(
    config: NodeConfig,
    problems: "MixedStream",
    solver: "GrpoSolver",
    evaluator: "Evaluator",
    learner: "Learner",
    sampler: "Sampler",
    stack: ExitStack,
) -> Attempts:
    """Attempts ahead of the update that they serve where the settings ask for it, else in step with it."""
    from codezero.models.generation import TrailingSampler
    from codezero.rollout.client import RolloutServers

    servers: Callable[[], Metrics] = sampler.backend.metrics if isinstance(sampler.backend, RolloutServers) else dict
    if not config.rollout.in_flight:
        return InStep(problems, solver, evaluator, servers)
    trailing = solver.sampler if isinstance(solver.sampler, TrailingSampler) else None
    ahead = Ahead(config, problems, solver, evaluator, lambda: learner.updates, servers, trailing)
    stack.callback(ahead.close)
    return ahead


class InStep(Attempts):
    """Attempts are sampled and judged while nobody learns, with the newest policy."""

    _tokens, _seconds = 0, 0.0

    def take(self, proposals: Sequence[Problem], round_number: int) -> Iterator[list[ScoredGroup]]:
        """A batch, then further problems for the groups that teach nothing."""
        self._tokens, self._seconds = 0, 0.0
        scored: list[ScoredGroup] = []
        problems = self.problems.next_batch(proposals)
        while problems:
            began = time.monotonic()
            groups = self.solver.rollout(problems, round_number)
            self._seconds += time.monotonic() - began
            self._tokens += sum(len(completion.token_ids) for group in groups for completion in group.completions)
            scored += (judged := self.evaluator.score(groups))
            yield judged
            problems = self.problems.next_batch([], self.solver.short_of(scored))

    def metrics(self) -> Metrics:
        speed = self._tokens / max(self._seconds, 1e-9)
        sampled: Metrics = {"tokens/sampled": self._tokens, "seconds/sampling": self._seconds}
        return self.servers() | {"tokens/sampled_per_second": speed} | sampled


class _Held(msgspec.Struct):
    """Empty by default, as for a run that sampled in step so far."""

    drawn: list[RolloutGroup] = []
    under_way: list[Problem] = []  # they are sampled again


class Ahead(StateFile[_Held], Attempts, file="harvest.json", schema=_Held, optional=True):
    """Not reproducible bit for bit: which policy samples a group depends on time."""

    def __init__(
        self,
        config: NodeConfig,
        problems: "MixedStream",
        solver: "GrpoSolver",
        evaluator: "Evaluator",
        version: Callable[[], int],
        servers: Callable[[], Metrics],
        trailing: "TrailingSampler | None" = None,
    ) -> None:
        """version: of the policy, now. trailing: the solver's sampler, where there are no servers."""
        super().__init__(problems, solver, evaluator, servers)
        batch = config.solver.problems_per_iteration
        groups = 0 if trailing else max(1, config.rollout.in_flight // config.solver.group_size)
        self._trailing = trailing
        self._version, self._max_staleness, self.nested = version, config.rollout.max_staleness, (problems,)
        self._most = min(batch + groups, batch * (self._max_staleness + 1))
        self._pool = ThreadPoolExecutor(groups or 1, thread_name_prefix="rollout")
        self._under_way: dict[Future[list[RolloutGroup]], list[Problem]] = {}
        self._drawn: list[RolloutGroup] = []
        self._again: list[Problem] = []
        self._expired = self._failed = self._tokens = 0
        self._staleness: list[int] = []
        self._since = time.monotonic()

    def take(self, proposals: Sequence[Problem], round_number: int) -> Iterator[list[ScoredGroup]]:
        """A batch of groups that teach, those of the oldest version first, and on the way those that do not. None is
        older than `rollout.max_staleness` versions. Raises RolloutError when no group could be drawn."""
        scored: list[ScoredGroup] = []
        self._begin(proposals, round_number)
        while short := self.solver.short_of(scored):
            groups = self._oldest(short)
            self._begin([], round_number)
            if groups:
                judged = self.evaluator.score([dataclasses.replace(group, round=round_number) for group in groups])
                scored += judged
                yield judged
            if self._trailing or not (groups or self._under_way):  # the next batch is for the next iteration
                return

    def metrics(self) -> Metrics:
        """`rollout/expired` and `rollout/failed_groups` since the start, the others since the last call."""
        tokens, staleness, since = self._tokens, self._staleness, self._since
        self._tokens, self._staleness, self._since = 0, [], time.monotonic()
        return self.servers() | {
            "tokens/sampled_per_second": tokens / max(self._since - since, 1e-9),
            "tokens/sampled": tokens,
            "rollout/staleness": mean(staleness),
            "rollout/groups_ahead": len(self._drawn) + len(self._under_way),
            "rollout/expired": self._expired,
            "rollout/failed_groups": self._failed,
        }

    def state(self) -> _Held:
        return _Held(self._drawn, [*self._again, *chain.from_iterable(self._under_way.values())])

    def restore(self, state: _Held) -> None:
        for future in self._under_way:
            future.cancel()
        self._under_way, self._drawn, self._again = {}, state.drawn, state.under_way

    def close(self) -> None:
        """End once the groups under way are drawn."""
        self._pool.shutdown(cancel_futures=True)

    def _begin(self, proposals: Sequence[Problem], round_number: int) -> None:
        """Draw as many more groups as may wait; a trailing sampler a whole batch, once it has nothing to do."""
        if self._trailing and (self._under_way or self._drawn):
            return
        room = self._most - len(self._drawn) - len(self._under_way)
        problems, self._again = self._again[: max(0, room)], self._again[max(0, room) :]
        problems += self.problems.next_batch(proposals, room - len(problems)) if room > len(problems) else []
        if self._trailing:
            self._trailing.catch_up(self._version())
        for some in filter(None, [problems] if self._trailing else [[problem] for problem in problems]):
            self._under_way[self._pool.submit(self.solver.rollout, some, round_number)] = some

    def _oldest(self, count: int) -> list[RolloutGroup]:
        """Up to `count` groups, as soon as there are any; empty where all expired. Raises RolloutError."""
        failure = None
        while True:
            done, _ = wait(self._under_way, timeout=0 if self._drawn else None, return_when=FIRST_COMPLETED)
            for future in done:
                del self._under_way[future]
                if isinstance(error := future.exception(), RolloutError):
                    self._failed, failure = self._failed + 1, error
                else:
                    self._drawn += future.result()
                    self._tokens += sum(len(draw.token_ids) for group in future.result() for draw in group.completions)
            before, now = len(self._drawn), self._version()
            self._drawn = [group for group in self._drawn if now - self._oldest_version(group) <= self._max_staleness]
            self._expired += before - len(self._drawn)
            if self._drawn or not self._under_way:
                break
        if failure is not None:
            if not self._drawn:
                raise failure
            logger.warning("a group could not be drawn: %s", failure)
        ordered = sorted(self._drawn, key=self._oldest_version)  # of the same version: as they came
        taken, self._drawn = ordered[:count], ordered[count:]
        self._staleness += [now - self._oldest_version(group) for group in taken]
        return taken

    def _oldest_version(self, group: RolloutGroup) -> int:
        versions = [draw.version for draw in group.completions if draw.version is not None]
        return min(versions, default=self._version())
