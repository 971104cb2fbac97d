"""The held-out exam: sample attempts, execute them in the sandbox, and ask the judge about the very same attempts.

Executed truth stands beside the reward and never in it: nothing measured here reaches the learner. An attempt whose
execution could not be decided is left out and shown, never counted as wrong.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codezero.code.parsing import extract_code
from codezero.config import EvalsConfig, SolverConfig
from codezero.errors import ProblemError
from codezero.evals.pass_at_k import average_at_k, bootstrap_interval, pass_at_k
from codezero.protocols import Evaluator, GroupSampler
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.stats import auroc
from codezero.types import BELIEF, Metrics, Problem, RolloutGroup, Style

LEVELS = (1, 2, 3, 4, 5)
EXAMINED = "exam"
"""Peer id of the exam's rollout groups: they belong to no peer and are never published."""


@dataclass(frozen=True, slots=True)
class ExamAttempt:
    """What execution and the judge say of one completion."""

    problem: int
    """Index of its problem."""
    passed: bool | None
    """None: the sandbox could not tell."""
    judged: float | None
    """Judged correctness; None: the judge could not tell."""


@dataclass(frozen=True, slots=True)
class HeldOutExam:
    """Implements `protocols.Exam` on a fixed set of problems with fixed sampling noise, so that exams compare.

    Raises ProblemError when there is no problem.
    """

    settings: EvalsConfig
    solver: SolverConfig
    problems: Sequence[Problem]
    prompt: Callable[[Problem], str]
    sampler: GroupSampler
    sandbox: Sandbox
    evaluator: Evaluator

    def __post_init__(self) -> None:
        if not self.problems:
            raise ProblemError("the held-out exam has no problem")

    def due(self, iteration: int) -> bool:
        """Before the first iteration and after every `every`-th; and after one and two fifths of the first `every`.

        The first curve so begins early, in proportion to how fast the model is expected to move, for two exams a run.
        """
        every = self.settings.every
        return every > 0 and (iteration % every == 0 or iteration in (every // 5, 2 * (every // 5)))

    def sit(self) -> Metrics:
        """Attempt, execute, judge; returns `eval/...` and `judge/...`. Raises SandboxError and EvaluatorError."""
        began = time.monotonic()
        attempts = self._attempts()
        self.evaluator.witness(compared(attempts))
        measured = executed_metrics(attempts, self.problems, self.settings)
        measured |= judge_metrics(attempts)
        return measured | {"eval/seconds": time.monotonic() - began}

    def _attempts(self) -> list[ExamAttempt]:
        """[P * G], by problem."""
        sampled = self.sampler.sample(
            [self.prompt(problem) for problem in self.problems],
            group_size=self.settings.samples,
            max_new_tokens=self.solver.max_new_tokens,
            temperature=self.solver.temperature,
            generator_seed=self.settings.seed,
        )
        groups = [
            RolloutGroup(problem, tuple(completions), peer_id=EXAMINED, round=0, policy_step=0)
            for problem, completions in zip(self.problems, sampled, strict=True)
        ]
        passed = self._execute(groups)
        judged = [
            verdict.correctness if verdict.trainable else None
            for scored in self.evaluator.score(groups)
            for verdict in scored.verdicts
        ]
        owners = [index for index, group in enumerate(groups) for _ in group.completions]
        return [ExamAttempt(*facts) for facts in zip(owners, passed, judged, strict=True)]

    def _execute(self, groups: Sequence[RolloutGroup]) -> list[bool | None]:
        """[P * G]; a completion without code fails without being run."""
        jobs = [
            Job(code, group.problem.tests, group.problem.style is Style.STDIO)
            if (code := extract_code(completion.text).code) is not None
            else None
            for group in groups
            for completion in group.completions
        ]
        distinct = list(dict.fromkeys(job for job in jobs if job is not None))  # execution is deterministic
        executions = dict(zip(distinct, self.sandbox.run_many(distinct), strict=True))
        return [False if job is None else TRUTH[executions[job].outcome] for job in jobs]


def executed_metrics(attempts: Sequence[ExamAttempt], problems: Sequence[Problem], settings: EvalsConfig) -> Metrics:
    """average@n and pass@n over the problems with at least one decided attempt, with 95 % bootstrap intervals."""
    decided: list[list[bool]] = [[] for _ in problems]
    for attempt in attempts:
        if attempt.passed is not None:
            decided[attempt.problem].append(attempt.passed)
    averages = [average_at_k(passed) for passed in decided if passed]
    # Undecided attempts shrink n: the problem then stands for pass@(what is left).
    passes = [pass_at_k(len(passed), sum(passed), len(passed)) for passed in decided if passed]
    average_low, average_high = bootstrap_interval(averages, seed=settings.seed) if averages else (None, None)
    pass_low, pass_high = bootstrap_interval(passes, seed=settings.seed) if passes else (None, None)
    unknown = sum(attempt.passed is None for attempt in attempts)
    measured: Metrics = {
        f"eval/average_at_{settings.samples}": _mean(averages),
        "eval/ci_low": average_low,
        "eval/ci_high": average_high,
        f"eval/pass_at_{settings.samples}": _mean(passes),
        "eval/pass_ci_low": pass_low,
        "eval/pass_ci_high": pass_high,
        "eval/source": "executed",
        "eval/unknown_share": unknown / len(attempts) if attempts else None,
        "eval/problems": len(averages),
    }
    for level in LEVELS:
        at_level = [
            average_at_k(passed)
            for problem, passed in zip(problems, decided, strict=True)
            if passed and problem.level == level
        ]
        measured[f"eval/level_{level}"] = _mean(at_level)
    return measured


def compared(attempts: Sequence[ExamAttempt]) -> list[tuple[float, bool]]:
    """(judged correctness, passed) of the attempts that both the judge and the sandbox could decide."""
    return [(a.judged, a.passed) for a in attempts if a.judged is not None and a.passed is not None]


def judge_metrics(attempts: Sequence[ExamAttempt]) -> Metrics:
    """How far the judge can be believed on the attempts that both it and the sandbox could decide.

    `judge/false_positive_share` is the share of failed attempts it believes, `judge/false_negative_share` the share
    of passed attempts it does not believe, both at 0.5.
    """
    pairs = compared(attempts)
    scores, truths = [score for score, _ in pairs], [truth for _, truth in pairs]
    return {
        "judge/auroc": auroc(scores, truths) if 0 < sum(truths) < len(truths) else None,
        "judge/believed": _mean(scores),
        "judge/false_positive_share": _mean([score >= BELIEF for score, truth in pairs if not truth]),
        "judge/false_negative_share": _mean([score < BELIEF for score, truth in pairs if truth]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
