"""Both sandboxes beside each other, test by test."""

from contextlib import ExitStack
from dataclasses import dataclass

from codezero.errors import SandboxError
from codezero.evals.task import EvalTask, jobs
from codezero.sandbox.base import Execution, Job, Outcome, Sandbox
from codezero.sandbox.bubblewrap import BubblewrapSandbox, TieredSandbox
from codezero.sandbox.monty import MontySandbox

MUTANT_SECONDS = 1.0  # a slip may never end; what takes longer than this counts as failed


@dataclass(frozen=True)
class Tiers:
    """The sandboxes of this machine."""

    monty: Sandbox
    bubblewrap: Sandbox | None  # None: this machine allows none
    quick: Sandbox  # both, with little time: for mutants

    def examine(self, task: EvalTask, code: str) -> list["Finding"]:
        first = executions(self.monty, task, code)
        second = executions(self.bubblewrap, task, code) if self.bubblewrap else [None] * len(first)
        return [Finding(*pair) for pair in zip(first, second, strict=True)]


@dataclass(frozen=True)
class Finding:
    """What both tiers say of one test."""

    monty: Execution
    bubblewrap: Execution | None

    @property
    def by_monty(self) -> bool:
        return self.monty.outcome is not Outcome.UNKNOWN and not self.monty.provisional

    @property
    def by_bubblewrap(self) -> bool:
        return self.bubblewrap is not None and self.bubblewrap.outcome is not Outcome.UNKNOWN

    @property
    def final(self) -> Execution:
        """As `TieredSandbox` decides."""
        if self.by_monty or self.bubblewrap is None:
            return self.monty
        return self.monty if not self.by_bubblewrap and self.monty.provisional else self.bubblewrap

    @property
    def decided(self) -> bool:
        return self.by_monty or self.by_bubblewrap

    @property
    def holds(self) -> bool:
        return self.final.outcome is Outcome.PASS

    @property
    def disagree(self) -> bool:
        """Are both sure, of different things?"""
        second = self.bubblewrap.outcome if self.bubblewrap and self.by_bubblewrap else self.monty.outcome
        return self.by_monty and second is not self.monty.outcome

    @property
    def undecided(self) -> str:
        """Why neither tier knows."""
        second = self.bubblewrap.reason if self.bubblewrap else "there is none here"
        return f"Monty: {self.monty.reason}; bubblewrap: {second}"


def executions(sandbox: Sandbox, task: EvalTask, code: str) -> list[Execution]:
    """One for each test. Tests go together where they all hold, one by one where they do not."""
    found: list[Execution] = []
    for job in jobs(task, code):
        whole = sandbox.run(job)
        alone = whole.outcome is Outcome.PASS or len(job.tests) == 1
        found += [whole] * len(job.tests) if alone else [sandbox.run(Job(job.code, (test,))) for test in job.tests]
    return found


def run_all(sandbox: Sandbox, task: EvalTask, code: str) -> Outcome:
    ended = {Outcome.PASS}
    for job in jobs(task, code):
        ended.add(sandbox.run(job).outcome)
        if Outcome.FAIL in ended:
            return Outcome.FAIL
    return Outcome.UNKNOWN if Outcome.UNKNOWN in ended else Outcome.PASS


def open_tiers(stack: ExitStack) -> tuple[Tiers, str]:
    """The sandboxes, and why there is no second one."""
    monty, quick = (stack.enter_context(MontySandbox(seconds=s)) for s in (2.0, MUTANT_SECONDS / 2))
    try:
        second = stack.enter_context(BubblewrapSandbox())
        behind = stack.enter_context(BubblewrapSandbox(seconds=MUTANT_SECONDS))
    except SandboxError as reason:
        return Tiers(monty, None, quick), str(reason)
    return Tiers(monty, second, TieredSandbox(quick, behind)), ""
