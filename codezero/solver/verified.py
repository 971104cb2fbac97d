"""A solver with a verifier beside it: a second policy that writes test cases for each attempt and learns their worth.

An attempt that fails one of its cases is made again with that as feedback; so is one whose cases cannot be used. All
attempts at a problem are one group of the solver's, all that the verifier wrote for it are one of the verifier's.
AstraFlow's `code_actor_and_verify_v2`, with one of two rewards for the cases:

astra   [the last attempt passes the true tests] + [the reference passes the cases], as published. A dull case earns as
        much as a sharp one, unless a second attempt succeeds through it.
margin  [the reference passes the cases] x the share of the group's wrong first attempts that fail one of them.
"""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codezero.code.report import StaticRequest
from codezero.code.worker import StaticGuard
from codezero.config import VerifierConfig
from codezero.errors import CheckpointError, ProblemError
from codezero.models.chat import encode_prompts
from codezero.protocols import GroupSampler
from codezero.sandbox.base import TRUTH, Execution, Job, Outcome, Sandbox, failed
from codezero.solver.batch import Batch, TrainingRow, rewarded_rows
from codezero.solver.cases import feedback, printing, read_cases, untested, verifier_prompt
from codezero.solver.solver import GrpoSolver, sample
from codezero.solver.updater import Updater
from codezero.system.state import StateFile
from codezero.types import (
    BELIEF,
    Completion,
    Metrics,
    Problem,
    RolloutGroup,
    ScoredGroup,
    Style,
    Verification,
    mean,
)

VERIFIER = "verifier"
"""Folder of its policy within the solver's."""
Attempt = tuple[Problem, str | None]
"""A problem and a program for it; None: there was none in what the solver wrote."""
Trial = tuple[Attempt, tuple[str, ...]]
"""And the cases it is held against."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A first attempt, the cases written for it, and what came of them. None: not known."""

    prompt: str
    check: Verification
    tests: tuple[str, ...] | str
    """The cases; or why they cannot be used."""
    first: bool | None
    final: bool | None
    """Do the first attempt and the last pass the true tests?"""
    valid: bool | None
    """Does the reference pass the cases?"""
    caught: float | None
    """Share of the group's wrong first attempts that fail one of the cases; None without a wrong one."""
    reward: float | None


class VerifiedSolver(StateFile[int], file="verifier.json", schema=int):
    """See `protocols.Solver`. Its memory: calls of the verifier's sampler so far."""

    def __init__(
        self,
        config: VerifierConfig,
        solver: GrpoSolver,
        *,
        sampler: GroupSampler,
        updater: Updater,
        guard: StaticGuard,
        sandbox: Sandbox,
        block: str,
    ) -> None:
        """sampler, updater: of the verifier. guard, sandbox: nobody else's. block: how answers are read."""
        self.config, self.solver, self.sampler, self.updater = config, solver, sampler, updater
        self._guard, self._sandbox, self._block = guard, sandbox, block
        self.memory, self.nested, self._lock = 0, (solver,), threading.Lock()
        self.short_of = solver.short_of

    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        """A group with second attempts behind the first ones for each problem. For any thread, as the solver's."""
        groups = self.solver.rollout(problems, round_number)
        firsts = [(group.problem, completion) for group in groups for completion in group.completions]
        with self._lock:
            attempts = self._attempts(firsts)
            noise = f"verifier {self.solver.seed} {self.memory}"
            self.memory += 1
        prompts = [self._prompt(attempt) for attempt in attempts]
        written = sample(self.sampler, prompts, 1, self.updater.config, noise)
        with self._lock:
            checks = iter(self._checks(attempts, [completion for (completion,) in written]))
        checked = [(group, tuple(next(checks) for _ in group.completions)) for group in groups]
        tries = [(group.problem, each.feedback) for group, own in checked for each in own if each.feedback]
        again = iter(self.solver.retry(tries) if tries else [])
        seconds = [[next(again) for each in own if each.feedback] for _, own in checked]
        return [
            replace(group, completions=(*group.completions, *more), checks=own)
            for (group, own), more in zip(checked, seconds, strict=True)
        ]

    def step(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> Metrics:
        """An update of each of the two policies."""
        return self.solver.step(local, peers) | self._learn([group for group in local if group.group.checks])

    def save(self, folder: Path) -> None:
        super().save(folder)
        (folder / VERIFIER).mkdir()
        self.updater.learner.save(folder / VERIFIER)

    def load(self, folder: Path) -> None:
        if not (folder / VERIFIER).is_dir():
            raise CheckpointError(f"{folder} was saved without a verifier; begin anew with --fresh")
        super().load(folder)
        self.updater.learner.load(folder / VERIFIER)

    def _prompt(self, attempt: Attempt) -> str:
        problem, program = attempt
        return verifier_prompt(problem, program or "(none)", self.config.cases)

    def _attempts(self, completions: Sequence[tuple[Problem, Completion]]) -> list[Attempt]:
        requests = [
            StaticRequest(completion.text, problem.tests, problem.entry_point, problem.question, self._block)
            for problem, completion in completions
        ]
        reports = self._guard.check_many(requests)
        return [(problem, report.code) for (problem, _), report in zip(completions, reports, strict=True)]

    def _cases(self, problem: Problem, completion: Completion) -> tuple[str, ...] | str:
        """As tests; or why they cannot be used."""
        try:
            return read_cases(problem, completion.text, self.config.cases)
        except ProblemError as error:
            return str(error)

    def _checks(self, attempts: Sequence[Attempt], written: Sequence[Completion]) -> list[Verification]:
        read = [self._cases(problem, text) for (problem, _), text in zip(attempts, written, strict=True)]
        pairs = list(zip(attempts, read, strict=True))
        single = [(attempt, (test,)) for attempt, tests in pairs if isinstance(tests, tuple) for test in tests]
        executed = self._execute(single)
        failing = {trial: done for trial, done in executed.items() if trial[0][1] and done.outcome is Outcome.FAIL}
        shown = {
            trial: printing(trial[0][1] or "", trial[1][0]) for trial in failing if trial[0][0].style is Style.CALL
        }
        printed = self._sandbox.run_distinct(shown.values())
        executed |= {trial: replace(failing[trial], printed=printed[job].printed) for trial, job in shown.items()}
        return [
            Verification(
                completion,
                untested(tests)
                if isinstance(tests, str)
                else feedback(tests, [executed[attempt, (test,)] for test in tests]),
            )
            for (attempt, tests), completion in zip(pairs, written, strict=True)
        ]

    def _execute(self, trials: Collection[Trial]) -> dict[Trial, Execution]:
        jobs = {
            trial: Job(program, trial[1], problem.style is Style.STDIO)
            for trial in trials
            for (problem, program) in trial[:1]
            if program
        }
        done = self._sandbox.run_distinct(jobs.values())
        lost = failed("there is no program in it")
        return {trial: done[jobs[trial]] if trial in jobs else lost for trial in trials}

    def _learn(self, local: Sequence[ScoredGroup]) -> Metrics:
        with self._lock:
            trajectories = [self._trajectories(scored) for scored in local]
        rows = [self._rows(some) for some in trajectories]
        agreed, stale, pairs = self.updater.told_apart([row for some in rows for row in some])
        update = self.updater.learner.update(Batch((*agreed, *stale)))
        every = [each for some in trajectories for each in some]
        valid = [each.caught for each in every if each.valid]
        figures: Metrics = {
            "first": mean(each.first for each in every if each.first is not None),
            "final": mean(each.final for each in every if each.final is not None),
            "readable": mean(isinstance(each.tests, tuple) for each in every),
            "valid": mean(each.valid for each in every if each.valid is not None),
            "caught": mean(share for share in valid if share is not None),
            "sent_back": mean(bool(each.check.feedback) for each in every if each.first),
            "let_through": mean(not each.check.feedback for each in every if each.first is False),
            "reward": mean(each.reward for each in every if each.reward is not None),
            "spread": mean(map(bool, rows)),
            "rows": update.rows,
            "loss": update.loss,
            "grad_norm": update.grad_norm,
            "stale_rows": len(stale),
            "policy_step": self.updater.learner.steps,
        }
        figures |= self.updater.mismatch(pairs or update.compared)
        return {f"verifier/{name}": value for name, value in figures.items()}

    def _trajectories(self, scored: ScoredGroup) -> list[Trajectory]:
        group, first, problem = scored.group, scored.first, scored.group.problem
        known = [each.correctness >= BELIEF if each.trainable else None for each in scored.verdicts]
        again = iter(known[len(group.checks) :])
        attempts = self._attempts([(problem, completion) for completion in first.group.completions])
        wrong = [attempt for attempt, passed in zip(attempts, known, strict=False) if passed is False]
        read = [self._cases(problem, check.completion) for check in group.checks]
        usable = {tests for tests in read if isinstance(tests, tuple)}
        reference = (problem, problem.reference)
        executed = self._execute([(attempt, tests) for tests in usable for attempt in {reference, *wrong}])
        trajectories: list[Trajectory] = []
        for attempt, check, tests, passed in zip(attempts, group.checks, read, known, strict=False):
            valid: bool | None = False
            caught: float | None = None
            if isinstance(tests, tuple):
                valid = TRUTH[executed[reference, tests].outcome] if problem.reference else False
                caught = mean(executed[other, tests].outcome is Outcome.FAIL for other in wrong)
            final = next(again) if check.feedback else passed
            reward = _reward(self.config.reward, valid, final, caught)
            prompt = self._prompt(attempt)
            trajectories.append(Trajectory(prompt, check, tests, passed, final, valid, caught, reward))
        return trajectories

    def _rows(self, trajectories: Sequence[Trajectory]) -> list[TrainingRow]:
        learner, settings = self.updater.learner, self.updater.config
        texts = [each.prompt for each in trajectories]
        prompts = encode_prompts(learner.policy.tokenizer, texts, settings.max_prompt_tokens)
        completions = [each.check.completion for each in trajectories]
        rewards = [each.reward for each in trajectories]
        return rewarded_rows(prompts, completions, rewards, settings.scale_rewards, learner.updates)


def _reward(kind: str, valid: bool | None, final: bool | None, caught: float | None) -> float | None:
    """None: not known."""
    if kind == "off":
        return None
    if kind == "margin":
        return None if valid is None else valid * (caught or 0.0)
    return None if valid is None or final is None else float(valid + final)
