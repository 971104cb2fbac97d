"""Before a problem is offered: do some attempts at it find its tests contradictory? A proposer's tests are claims.

By the judge: a problem whose believed attempts are all disbelieved once the tests are shown is dropped. Where execution
is the reward, by execution: what two different programs do not pass is left out, and a problem of which too little
remains is dropped. Where anything is executed, wrong expected values are counted besides."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

import msgspec

from codezero.code.answer import read_answer
from codezero.config import NodeConfig
from codezero.evaluator.base import Evaluator
from codezero.models.base import GroupSampler
from codezero.proposer.base import Proposer
from codezero.sandbox.base import TRUTH, Job, Outcome, Sandbox
from codezero.system.state import StateFile
from codezero.types import BELIEF, Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Standing, problem_id

AGREEING = 2  # attempts that have to agree before they say anything of a test
MIN_TESTS = 2  # confirmed tests without which a problem is dropped
PROGRAMS = 8  # most different programs that are executed for one problem
Vetting = Callable[[Sequence[RolloutGroup]], list[Problem | None]]


def judged(groups: Sequence[RolloutGroup], evaluator: Evaluator) -> list[Problem | None]:
    """Drop, by the judge alone, the problem of a group whose believed attempts are all disbelieved once it sees the
    tests. Raises EvaluatorError."""
    shown = [
        dataclasses.replace(group, problem=dataclasses.replace(group.problem, standing=Standing.CONFIRMED))
        for group in groups
    ]
    result: list[Problem | None] = []
    for before, after in zip(evaluator.score(groups), evaluator.score(shown), strict=True):
        pairs = zip(before.verdicts, after.verdicts, strict=True)
        both = [(first, later) for first, later in pairs if first.trainable and later.trainable]
        believed = [later for first, later in both if first.correctness >= BELIEF]
        contradicted = len(believed) >= AGREEING and all(later.correctness < BELIEF for later in believed)
        result.append(None if contradicted else before.group.problem)
    return result


def executed(groups: Sequence[RolloutGroup], sandbox: Sandbox, block: str = "best") -> list[Problem | None]:
    """Reduce each problem to the tests that AGREEING programs pass, all of them together; None: too few are left.
    `block`: see `answer.BLOCKS`. Raises SandboxError."""
    tried = [(group.problem, _programs(group.problem, group.completions, block)) for group in groups]
    shown = sandbox.run_distinct(
        Job(code, (test,)) for problem, codes in tried for code in codes for test in problem.tests
    )
    passed = {job for job, execution in shown.items() if execution.outcome is Outcome.PASS}
    result: list[Problem | None] = []
    for problem, codes in tried:
        passes = [{test for test in problem.tests if Job(code, (test,)) in passed} for code in codes]
        counts = Counter(test for each in passes for test in each)
        tests = tuple(test for test in problem.tests if counts[test] >= AGREEING)
        agreed = len(tests) >= MIN_TESTS and sum(each >= set(tests) for each in passes) >= AGREEING
        confirmed = {"id": problem_id(problem.question, tests), "tests": tests, "standing": Standing.CONFIRMED}
        result.append(dataclasses.replace(problem, **confirmed) if agreed else None)
    return result


def _programs(problem: Problem, completions: Iterable[Completion], block: str) -> list[str]:
    read = (read_answer(completion.text, problem.entry_point, block).code for completion in completions)
    return list(dict.fromkeys(filter(None, read)))


_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Counts(msgspec.Struct):
    calls: _Count = 0
    dropped: _Count = 0
    confirmed: _Count = 0
    right: _Count = 0  # expected values, by execution
    wrong: _Count = 0


class VettedProposer(StateFile[_Counts], Proposer, file="vetting.json", schema=_Counts, optional=True):
    """Another proposer's problems, as far as they stand up to some attempts. vetting: the
    problem of each group as far as it can be believed; None: all are offered as they are. sandbox: counts right and
    wrong expected values; None: nothing is executed. known: the program that a question itself describes; None: the
    value is what the believed attempts agree on. sampler: of the solver. prompt: what it is asked."""

    def __init__(
        self,
        proposer: Proposer,
        vetting: Vetting | None,
        sampler: GroupSampler,
        config: NodeConfig,
        *,
        prompt: Callable[[Problem], str],
        peer_id: str,
        sandbox: Sandbox | None = None,
        known: Callable[[Problem], str | None] = lambda _: None,
    ) -> None:
        self._proposer, self._vetting, self._sampler, self._prompt = proposer, vetting, sampler, prompt
        self._config, self._peer_id, self._sandbox, self._known = config, peer_id, sandbox, known
        self.memory, self.nested = _Counts(), (proposer,)

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """Raises ProposalError; and EvaluatorError or SandboxError when they cannot be looked at: none is offered."""
        written = self._proposer.propose(levels)
        if self._sandbox is not None:
            programs = [(problem, self._known(problem)) for problem in written]
            jobs = [Job(code, (test,)) for problem, code in programs if code for test in problem.tests]
            self._count(TRUTH[execution.outcome] for execution in self._sandbox.run_many(jobs))
        if self._vetting is None or not written:
            return written
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
        """Count the values of own problems by what believed programs agree on. Raises SandboxError."""
        self._proposer.check(scored)
        if self._sandbox is None:
            return
        for group in scored:
            problem, pairs = group.group.problem, zip(group.group.completions, group.verdicts, strict=True)
            believed = [attempt for attempt, each in pairs if each.trainable and each.correctness >= BELIEF]
            codes = _programs(problem, believed, self._config.answer.block)[:PROGRAMS]
            if problem.proposer == self._peer_id and len(codes) >= AGREEING and self._known(problem) is None:
                shown = self._sandbox.run_many([Job(code, (test,)) for test in problem.tests for code in codes])
                passed = [TRUTH[execution.outcome] for execution in shown]
                self._count(_agreed(passed[at : at + len(codes)]) for at in range(0, len(passed), len(codes)))

    def metrics(self) -> Metrics:
        """Add, since the start, `proposer/contradicted` and `confirmed` (problems), `values_right`, `values_wrong` and
        `wrong_value_share`."""
        counts, measured = self.memory, dict(self._proposer.metrics())
        if self._vetting is not None:
            measured |= {"proposer/contradicted": counts.dropped, "proposer/confirmed": counts.confirmed}
        if self._sandbox is not None:
            known = counts.right + counts.wrong
            measured |= {
                "proposer/values_right": counts.right,
                "proposer/values_wrong": counts.wrong,
                "proposer/wrong_value_share": counts.wrong / known if known else None,
            }
        return measured

    def _count(self, values: Iterable[bool | None]) -> None:
        for right in values:
            self.memory.right += right is True
            self.memory.wrong += right is False


def _agreed(shown: Sequence[bool | None]) -> bool | None:
    """Wrong when AGREEING programs fail and none passes, right when AGREEING pass; else nobody can tell."""
    if shown.count(True) >= AGREEING:
        return True
    return False if shown.count(False) >= AGREEING and True not in shown else None
