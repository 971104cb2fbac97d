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
from codezero.evals.grading import EXAMINED
from codezero.evals.pass_at_k import average_at_k, bootstrap_interval, pass_at_k
from codezero.protocols import Evaluator, GroupSampler
from codezero.sandbox.base import TRUTH, Job, Sandbox
from codezero.stats import auroc
from codezero.types import BELIEF, Metrics, Problem, RolloutGroup, Style, mean

LEVELS = (1, 2, 3, 4, 5)


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
        groups = self._attempts()
        passed = self._execute(groups)
        judged = [scored.verdicts for scored in self.evaluator.score(groups)]
        compared = [
            (verdict.correctness, truth)
            for verdicts, truths in zip(judged, passed, strict=True)
            for verdict, truth in zip(verdicts, truths, strict=True)
            if verdict.trainable and truth is not None
        ]
        self.evaluator.witness(compared)
        measured = executed_metrics(passed, self.problems, self.settings)
        return measured | judge_metrics(compared) | {"eval/seconds": time.monotonic() - began}

    def _attempts(self) -> list[RolloutGroup]:
        sampled = self.sampler.sample(
            [self.prompt(problem) for problem in self.problems],
            group_size=self.settings.samples,
            max_new_tokens=self.solver.max_new_tokens,
            temperature=self.solver.temperature,
            generator_seed=self.settings.seed,
        )
        return [
            RolloutGroup(problem, tuple(completions), peer_id=EXAMINED, round=0, policy_step=0)
            for problem, completions in zip(self.problems, sampled, strict=True)
        ]

    def _execute(self, groups: Sequence[RolloutGroup]) -> list[list[bool | None]]:
        """[P, G] None: the sandbox could not tell. A completion without code fails without being run."""
        jobs = [
            [
                Job(code, group.problem.tests, group.problem.style is Style.STDIO)
                if (code := extract_code(completion.text).code) is not None
                else None
                for completion in group.completions
            ]
            for group in groups
        ]
        executed = self.sandbox.run_distinct(job for row in jobs for job in row if job is not None)
        return [[False if job is None else TRUTH[executed[job].outcome] for job in row] for row in jobs]


def executed_metrics(
    passed: Sequence[Sequence[bool | None]], problems: Sequence[Problem], settings: EvalsConfig
) -> Metrics:
    """average@n and pass@n over the problems with at least one decided attempt, with 95 % bootstrap intervals.

    passed: [P, G], None where execution could not tell.
    """
    decided = [[truth for truth in truths if truth is not None] for truths in passed]
    known = [truths for truths in decided if truths]
    averages = [average_at_k(truths) for truths in known]
    # Undecided attempts shrink n: the problem then stands for pass@(what is left).
    passes = [pass_at_k(len(truths), sum(truths), len(truths)) for truths in known]
    average_low, average_high = bootstrap_interval(averages, seed=settings.seed) if averages else (None, None)
    pass_low, pass_high = bootstrap_interval(passes, seed=settings.seed) if passes else (None, None)
    attempts = sum(map(len, passed))
    measured: Metrics = {
        f"eval/average_at_{settings.samples}": mean(averages),
        "eval/ci_low": average_low,
        "eval/ci_high": average_high,
        f"eval/pass_at_{settings.samples}": mean(passes),
        "eval/pass_ci_low": pass_low,
        "eval/pass_ci_high": pass_high,
        "eval/source": "executed",
        "eval/unknown_share": (attempts - sum(map(len, decided))) / attempts if attempts else None,
        "eval/problems": len(averages),
    }
    by_problem = list(zip(problems, decided, strict=True))
    return measured | {
        f"eval/level_{level}": mean(average_at_k(row) for problem, row in by_problem if row and problem.level == level)
        for level in LEVELS
    }


def judge_metrics(compared: Sequence[tuple[float, bool]]) -> Metrics:
    """How far the judge can be believed: (judged correctness, passed) of what both it and the sandbox could decide.

    `judge/false_positive_share` is the share of failed attempts it believes, `judge/false_negative_share` the share
    of passed attempts it does not believe, both at 0.5.
    """
    scores, truths = [score for score, _ in compared], [truth for _, truth in compared]
    return {
        "judge/auroc": auroc(scores, truths) if 0 < sum(truths) < len(truths) else None,
        "judge/believed": mean(scores),
        "judge/false_positive_share": mean(score >= BELIEF for score, truth in compared if not truth),
        "judge/false_negative_share": mean(score < BELIEF for score, truth in compared if truth),
    }
