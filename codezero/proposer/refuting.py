"""Own problems that attempts show to be broken after they were offered: by the judge, or by execution where it is on.

The attempts are those that the node makes anyway. Only what the judge believes from the question alone speaks against
a test, and only when different programs agree: a solver that cannot do it proves nothing.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from codezero.code.parsing import extract_code
from codezero.proposer.vetting import AGREEING, MIN_TESTS, contradicted
from codezero.protocols import Evaluator
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.types import BELIEF, Problem, ScoredGroup, Standing

PROGRAMS = 8
"""Most different programs that are executed for one problem."""


class Refuting(Protocol):
    """Says which of some attempted problems are broken."""

    @property
    def reason(self) -> str:
        """One word, for the counters."""
        ...

    def broken(self, scored: Sequence[ScoredGroup]) -> list[Problem]: ...


class JudgedRefuting:
    """By the judge, asked about the same attempts again with the tests shown. Nothing is run."""

    reason = "contradicted"

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def broken(self, scored: Sequence[ScoredGroup]) -> list[Problem]:
        """Raises EvaluatorError."""
        claims = [one for one in scored if one.group.problem.standing is Standing.CLAIMED]
        shown = [replace(one.group, problem=replace(one.group.problem, standing=Standing.CONFIRMED)) for one in claims]
        again = self._evaluator.score(shown) if shown else []
        return [
            before.group.problem
            for before, after in zip(claims, again, strict=True)
            if contradicted(before.verdicts, after.verdicts)
        ]


class Values:
    """How many expected values of proposals execution found right and wrong.

    known: the program that a question itself describes, where it is of a family whose programs are known; else a value
    is what the believed attempts agree on.
    """

    def __init__(self, sandbox: Sandbox, known: Callable[[Problem], str | None]) -> None:
        self._sandbox = sandbox
        self._known = known
        self.counts: Counter[bool] = Counter()
        """True: right ones."""

    def look(self, written: Sequence[Problem]) -> None:
        """Count those of the problems whose program is known. Raises SandboxError."""
        programs = [(problem, self._known(problem)) for problem in written]
        jobs = [Job(code, (test,)) for problem, code in programs if code is not None for test in problem.tests]
        shown = (TRUTH[one.outcome] for one in self._sandbox.run_many(jobs))
        self.counts.update(right for right in shown if right is not None)

    def attempted(self, problem: Problem, codes: Sequence[str]) -> list[bool | None]:
        """[tests] what these different programs agree on: is the expected value right? Raises SandboxError."""
        jobs = [Job(code, (test,)) for test in problem.tests for code in codes]
        shown = [TRUTH[one.outcome] for one in self._sandbox.run_many(jobs)]
        each = len(codes)
        told = [_agreed(shown[at : at + each]) for at in range(0, len(shown), each)] if each else []
        if self._known(problem) is None:
            self.counts.update(right for right in told if right is not None)
        return told


def _agreed(shown: Sequence[bool | None]) -> bool | None:
    """Wrong when AGREEING programs fail and none passes, right when AGREEING pass; else nobody can tell."""
    if shown.count(True) >= AGREEING:
        return True
    return False if shown.count(False) >= AGREEING and True not in shown else None


class ExecutedRefuting:
    """By execution: broken is what has fewer than MIN_TESTS tests that the believed attempts do not refute."""

    reason = "refuted"

    def __init__(self, values: Values) -> None:
        self._values = values

    def broken(self, scored: Sequence[ScoredGroup]) -> list[Problem]:
        """Raises SandboxError."""
        found: list[Problem] = []
        for one in scored:
            problem, codes = one.group.problem, _believed(one)
            if len(codes) < AGREEING:
                continue
            told = self._values.attempted(problem, codes)
            if len(told) - told.count(False) < MIN_TESTS:
                found.append(problem)
        return found


def _believed(scored: ScoredGroup) -> list[str]:
    """Different programs that the judge believes, at most PROGRAMS."""
    pairs = zip(scored.group.completions, scored.verdicts, strict=True)
    codes = (extract_code(one.text).code for one, said in pairs if said.trainable and said.correctness >= BELIEF)
    return list(dict.fromkeys(filter(None, codes)))[:PROGRAMS]
