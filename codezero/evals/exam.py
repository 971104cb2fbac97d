"""The held-out exam: sample attempts, execute or score them, and ask the judge about the very same attempts.

Executed truth stands beside the reward and never in it: nothing measured here reaches the learner. An attempt whose
execution could not be decided is left out and shown, never counted as wrong."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from statistics import fmean

from codezero.config import EvalsConfig, SolverConfig
from codezero.errors import ProblemError
from codezero.evals.grading import Grader, codes_of, judged_group
from codezero.evals.task import EvalTask
from codezero.evaluator.base import Evaluator
from codezero.models.base import GroupSampler
from codezero.stats import bounded_interval
from codezero.types import Completion, Metrics, mean

Truths = Sequence[Sequence[bool | None]]  # [tasks, samples]; None: undecided
Executed = tuple[list[list[Completion]], Truths, Metrics]  # attempts and what passed, and the control's figures


@dataclass(slots=True)
class HeldOutExam:
    """The exam on fixed tasks with fixed sampling noise, so that exams compare.

    `control`: tasks of the embedded family, beside those of a real set: they tell a change of the model from one of
    the set. Raises ProblemError when there is no task."""

    settings: EvalsConfig
    solver: SolverConfig
    name: str  # of the set, its size and its digest; figures under another name do not compare
    tasks: Sequence[EvalTask]
    control: Sequence[EvalTask]
    sampler: GroupSampler
    grader: Grader  # whose sandbox is nobody else's: a thread of this may be using it
    evaluator: Evaluator | None  # the judge that is held against execution; None: there is none
    block: str = "best"  # how the judge is shown an answer; see `answer.BLOCKS`
    # called with the attempts at a task as they end, while others are sampled
    ended: Callable[[EvalTask, Sequence[Completion]], object] | None = None
    pool: Executor | None = None  # attempts beside training, for a `sampler` of any thread; None: training waits
    _begun: tuple[int, float] | None = None  # the iteration, and the time in seconds
    _under_way: Future[Executed] | None = None

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ProblemError("the held-out exam has no problem")

    def due(self, iteration: int) -> bool:
        """Before the first iteration and after every `every`-th; and after one and two fifths of the first `every`. The
        first curve so begins early, in proportion to how fast the model is expected to move, for two exams a run."""
        every = self.settings.every
        return every > 0 and (iteration % every == 0 or iteration in (every // 5, 2 * (every // 5)))

    def begin(self, iteration: int) -> bool:
        """Begin one of the policy as it is; False while another is under way."""
        if self._begun is not None:
            return False
        self._begun = iteration, time.monotonic()
        self._under_way = self.pool.submit(self._execute) if self.pool else None
        return True

    def results(self, *, wait: bool) -> Metrics:
        """`eval/...` and `judge/...` of an exam that has ended, once; empty where none has.

        wait: for the one that is under way. Raises SandboxError, RolloutError and EvaluatorError."""
        begun, under_way = self._begun, self._under_way
        if begun is None or (under_way and not (wait or under_way.done())):
            return {}
        self._begun = self._under_way = None
        attempts, passed, control = under_way.result() if under_way else self._execute()
        drew, judged = {draw.version for row in attempts for draw in row}, Metrics()
        if self.evaluator is not None:
            pairs = zip(self.tasks, attempts, strict=True)
            groups = [judged_group(task, tried, codes_of(task, tried, self.block)) for task, tried in pairs]
            judged = self.evaluator.witness(self.evaluator.score(groups), passed)
        rows = zip(attempts, passed, strict=True)
        # different texts among the attempts at a problem that passed; the mean is over the problems that were solved
        solutions = [{each.text for each, truth in zip(*row, strict=True) if truth} for row in rows]
        return (
            executed_metrics(passed, self.tasks, self.settings, self.grader.label)
            | {"eval/set": self.name, "eval/iteration": begun[0], "eval/versions": len(drew)}
            | {"eval/distinct_solutions": mean(len(texts) for texts in solutions if texts)}
            | control
            | judged
            | {"eval/seconds": time.monotonic() - begun[1]}
        )

    def _execute(self) -> Executed:
        attempts, control = self._attempt(self.tasks), Metrics()
        graded = self.grader.grade(self.tasks, attempts)
        passed = [[grade.passed for grade in row] for row in graded]
        for kind in ("cheats", "unguarded"):
            control[f"eval/{kind}_share"] = mean(getattr(grade, kind) for row in graded for grade in row)
        if self.control:
            grades = self.grader.grade(self.control, self._attempt(self.control))
            control["eval/control"] = mean(grade.passed for row in grades for grade in row if grade.passed is not None)
        return attempts, passed, control

    def _attempt(self, tasks: Sequence[EvalTask]) -> list[list[Completion]]:
        """[tasks, samples]"""
        ended = self.ended
        return self.sampler.sample(
            [task.prompt for task in tasks],
            group_size=self.settings.attempts,
            max_new_tokens=self.solver.max_new_tokens,
            temperature=self.settings.temperature,
            generator_seed=self.settings.seed,
            ended=None if ended is None else lambda at, tried: ended(tasks[at], tried),
        )


def executed_metrics(passed: Truths, tasks: Sequence[EvalTask], settings: EvalsConfig, label: str) -> Metrics:
    """average@n and pass@n over the problems with at least one decided attempt, with 95 % intervals.

    passed: [P, G], None where execution could not tell."""
    decided = [[truth for truth in truths if truth is not None] for truths in passed]
    known = [truths for truths in decided if truths]
    averages, n = [fmean(truths) for truths in known], settings.attempts
    # Undecided attempts shrink n: the problem then stands for pass@(what is left).
    passes = [float(any(truths)) for truths in known]
    attempts = sum(map(len, passed))
    measured: Metrics = {
        f"eval/average_at_{n}": mean(averages),
        f"eval/pass_at_{n}": mean(passes),
        "eval/source": label,
        "eval/unknown_share": (attempts - sum(map(len, decided))) / attempts if attempts else None,
        "eval/problems": len(averages),
        "eval/shares": packed_shares([mean(truths) for truths in decided]),
    }
    ends = (("eval/ci_low", "eval/ci_high"), averages), (("eval/pass_ci_low", "eval/pass_ci_high"), passes)
    for names, shares in ends:
        interval = bounded_interval(shares, seed=settings.seed) if shares else (None, None)
        measured |= dict(zip(names, interval, strict=True))
    by_task = list(zip(tasks, decided, strict=True))
    return measured | {
        f"eval/level_{level}": mean(fmean(row) for task, row in by_task if row and task.level == level)
        for level in range(1, 6)
    }


def packed_shares(shares: Sequence[float | None]) -> str:
    """A byte of each share, in hex: 254ths, or ff where there is none. Empty: more than a row of metrics holds."""
    if len(shares) > 500:  # two characters each of the 1,000 that a text in metrics.jsonl may have
        return ""
    return bytes(255 if share is None else round(254 * share) for share in shares).hex()
