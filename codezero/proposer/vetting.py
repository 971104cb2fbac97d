"""Before a problem is offered: do some attempts at it find its tests contradictory? A proposer's tests are claims.

By the judge: a problem whose believed attempts are all disbelieved once the tests are shown is dropped. Where execution
is the reward, by execution: what two different programs do not pass is left out, and a problem of which too little
remains is dropped. Where anything is executed, wrong expected values are counted besides.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import msgspec

from codezero.code.answer import read_answer
from codezero.config import NodeConfig
from codezero.protocols import Evaluator, GroupSampler, Proposer
from codezero.sandbox.base import TRUTH, Job, Outcome, Sandbox
from codezero.system.state import StateFile
from codezero.types import BELIEF, Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Standing, problem_id

AGREEING = 2
"""Attempts that have to agree before they say anything of a test."""
MIN_TESTS = 2
"""Confirmed tests without which a problem is dropped."""
PROGRAMS = 8
"""Most different programs that are executed for one problem."""
Vetting = Callable[[Sequence[RolloutGroup]], list[Problem | None]]
"""For the attempts at each problem: it, as far as it can be believed; None when it is not to be offered."""


def judged(groups: Sequence[RolloutGroup], evaluator: Evaluator) -> list[Problem | None]:
    """By the judge alone: nothing is run. Raises EvaluatorError."""
    shown = [
        dataclasses.replace(group, problem=dataclasses.replace(group.problem, standing=Standing.CONFIRMED))
        for group in groups
    ]
    pairs = zip(evaluator.score(groups), evaluator.score(shown), strict=True)
    return [None if _contradicted(before, after) else before.group.problem for before, after in pairs]


def _contradicted(before: ScoredGroup, after: ScoredGroup) -> bool:
    """Are enough attempts believed until the tests are shown, and none of them after?"""
    believed = [
        later
        for first, later in zip(before.verdicts, after.verdicts, strict=True)
        if first.trainable and later.trainable and first.correctness >= BELIEF
    ]
    return len(believed) >= AGREEING and all(later.correctness < BELIEF for later in believed)


def executed(groups: Sequence[RolloutGroup], sandbox: Sandbox, block: str = "best") -> list[Problem | None]:
    """By execution, where that is what rewards are made of; `block`: see `answer.BLOCKS`. Raises SandboxError."""
    tried = [(group.problem, _programs(group.problem, group.completions, block)) for group in groups]
    shown = sandbox.run_distinct(
        Job(code, (test,)) for problem, codes in tried for code in codes for test in problem.tests
    )
    passed = {job for job, execution in shown.items() if execution.outcome is Outcome.PASS}
    return [
        _confirmed(problem, [{test for test in problem.tests if Job(code, (test,)) in passed} for code in codes])
        for problem, codes in tried
    ]


def _programs(problem: Problem, completions: Iterable[Completion], block: str) -> list[str]:
    read = (read_answer(completion.text, problem.entry_point, block).code for completion in completions)
    return list(dict.fromkeys(filter(None, read)))


def _confirmed(problem: Problem, passes: Sequence[set[str]]) -> Problem | None:
    """With the tests that AGREEING programs pass, all of them together; `passes`: of each program, what it passes."""
    counts = Counter(test for passed in passes for test in passed)
    tests = tuple(test for test in problem.tests if counts[test] >= AGREEING)
    if len(tests) < MIN_TESTS or sum(passed >= set(tests) for passed in passes) < AGREEING:
        return None
    return dataclasses.replace(
        problem, id=problem_id(problem.question, tests), tests=tests, standing=Standing.CONFIRMED
    )


class _Counts(msgspec.Struct):
    calls: int = 0
    dropped: int = 0
    confirmed: int = 0


class VettedProposer(StateFile[_Counts], file="vetting.json", schema=_Counts, optional=True):
    """Another proposer's problems, as far as they stand up to some attempts. See `protocols.Proposer`.

    sampler: of the solver. prompt: what it is asked.
    """

    def __init__(
        self,
        proposer: Proposer,
        vetting: Vetting,
        sampler: GroupSampler,
        config: NodeConfig,
        *,
        prompt: Callable[[Problem], str],
        peer_id: str,
    ) -> None:
        self._proposer, self._vetting, self._sampler, self._prompt = proposer, vetting, sampler, prompt
        self._config, self._peer_id = config, peer_id
        self.memory, self.nested = _Counts(), (proposer,)

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """Raises ProposalError; and EvaluatorError or SandboxError when they cannot be looked at: none is offered."""
        written = self._proposer.propose(levels)
        if not written:
            return []
        self.memory.calls += 1
        sampled = self._sampler.sample(
            [self._prompt(problem) for problem in written],
            group_size=self._config.proposer.vetting,
            max_new_tokens=self._config.solver.max_new_tokens,
            temperature=self._config.solver.temperature,
            generator_seed=1_000_003 * self._config.seed + self.memory.calls,
        )
        groups = [
            RolloutGroup(problem, tuple(completions), self._peer_id, round=0, policy_step=0)
            for problem, completions in zip(written, sampled, strict=True)
        ]
        kept = [problem for problem in self._vetting(groups) if problem is not None]
        self.memory.dropped += len(groups) - len(kept)
        self.memory.confirmed += sum(problem.standing is Standing.CONFIRMED for problem in kept)
        return kept

    def check(self, scored: Sequence[ScoredGroup]) -> None:
        self._proposer.check(scored)

    def metrics(self) -> Metrics:
        """`proposer/contradicted` and `proposer/confirmed` beside those of the proposer: problems since the start."""
        return self._proposer.metrics() | {
            "proposer/contradicted": self.memory.dropped,
            "proposer/confirmed": self.memory.confirmed,
        }


class _Values(msgspec.Struct):
    right: Annotated[int, msgspec.Meta(ge=0)] = 0
    wrong: Annotated[int, msgspec.Meta(ge=0)] = 0


class CountedProposer(StateFile[_Values], file="recall.json", schema=_Values, optional=True):
    """Another proposer, whose expected values are counted right or wrong by execution. See `protocols.Proposer`.

    known: the program that a question itself describes; None: the value is what the believed attempts agree on. The
    file's name is of an earlier version, which kept more in it.
    """

    def __init__(
        self,
        proposer: Proposer,
        sandbox: Sandbox,
        known: Callable[[Problem], str | None],
        *,
        peer_id: str,
        block: str = "best",
    ) -> None:
        self._proposer, self._sandbox, self._known = proposer, sandbox, known
        self._peer_id, self._block = peer_id, block
        self.memory, self.nested = _Values(), (proposer,)

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """Raises SandboxError."""
        written = self._proposer.propose(levels)
        programs = [(problem, self._known(problem)) for problem in written]
        self._count(self._run([Job(code, (test,)) for problem, code in programs if code for test in problem.tests]))
        return written

    def check(self, scored: Sequence[ScoredGroup]) -> None:
        """Raises SandboxError."""
        for group in scored:
            problem, codes = group.group.problem, _believed(group, self._block)
            if problem.proposer == self._peer_id and len(codes) >= AGREEING and self._known(problem) is None:
                shown = self._run([Job(code, (test,)) for test in problem.tests for code in codes])
                self._count(_agreed(shown[at : at + len(codes)]) for at in range(0, len(shown), len(codes)))

    def metrics(self) -> Metrics:
        """`proposer/values_right`, `values_wrong` and `wrong_value_share` besides: since the start."""
        right, wrong = self.memory.right, self.memory.wrong
        return self._proposer.metrics() | {
            "proposer/values_right": right,
            "proposer/values_wrong": wrong,
            "proposer/wrong_value_share": wrong / (right + wrong) if right + wrong else None,
        }

    def _run(self, jobs: Sequence[Job]) -> list[bool | None]:
        return [TRUTH[execution.outcome] for execution in self._sandbox.run_many(jobs)]

    def _count(self, values: Iterable[bool | None]) -> None:
        for right in values:
            self.memory.right += right is True
            self.memory.wrong += right is False


def _agreed(shown: Sequence[bool | None]) -> bool | None:
    """Wrong when AGREEING programs fail and none passes, right when AGREEING pass; else nobody can tell."""
    if shown.count(True) >= AGREEING:
        return True
    return False if shown.count(False) >= AGREEING and True not in shown else None


def _believed(scored: ScoredGroup, block: str) -> list[str]:
    """Different programs that the judge believes, at most PROGRAMS."""
    pairs = zip(scored.group.completions, scored.verdicts, strict=True)
    believed = (attempt for attempt, verdict in pairs if verdict.trainable and verdict.correctness >= BELIEF)
    return _programs(scored.group.problem, believed, block)[:PROGRAMS]
