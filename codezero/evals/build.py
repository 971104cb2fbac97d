"""Config -> the exam: which tasks it asks, and who grades the attempts."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.errors import ProblemError
from codezero.evals.grading import EvaluatorGrader, SandboxGrader, codes_of, judged_group, problem_of
from codezero.evals.sets import HELD_OUT, PUBLISHED, find_set, read_tasks
from codezero.evals.task import EvalTask, task_of
from codezero.evaluator.base import ScoredEvaluator
from codezero.models.build import Say
from codezero.problems.filters import Novelty
from codezero.problems.sources import SETS, digest, exam_problems
from codezero.sandbox.build import build_sandbox
from codezero.types import REHEARSAL, Completion

if TYPE_CHECKING:
    from codezero.evals.exam import HeldOutExam
    from codezero.evaluator.base import Evaluator
    from codezero.models.generation import Sampler


class ExamTasks(NamedTuple):
    name: str
    tasks: list[EvalTask]
    control: list[EvalTask]


def build_exam_tasks(config: NodeConfig, environment: Environment, withheld: Novelty, say: Say) -> ExamTasks:
    """The tasks of `evals.sources`, or of the environment, go to `withheld`; embedded ones where the hub has no set.
    Raises ProblemError and ConfigError for a file that cannot be used."""
    evals, tasks, names, lost = config.evals, list[EvalTask](), list[str](), list[str]()
    for source in evals.sources:
        if source != HELD_OUT:
            say(f"reading the exam: {source}")
        try:
            added = list(_read_source(source, -(-evals.problems // len(evals.sources)), config, environment))
        except ProblemError as error:
            if source not in SETS:
                raise
            lost.append(str(error))
            continue
        for task in added:
            withheld.add(problem_of(task))
        tasks += added
        name = environment.name if environment.digest else source
        names.append(f"{name}, {len(added)} problems, {digest([problem_of(task) for task in added])}")
    embedded = [task_of(each, environment.prompt) for each in environment.held_out(evals.problems, evals.seed)]
    if not tasks:
        return ExamTasks(f"{REHEARSAL}: {'; '.join(lost)}", embedded, [])
    control = [] if HELD_OUT in evals.sources else embedded[: evals.controls]
    return ExamTasks("; ".join(names + lost), tasks, control)


def _read_source(source: str, count: int, config: NodeConfig, environment: Environment) -> Iterator[EvalTask]:
    (name, colon, path), evals = source.partition(":"), config.evals
    if source == HELD_OUT:
        yield from (task_of(problem, environment.prompt) for problem in environment.held_out(count, evals.seed))
    elif colon and name in PUBLISHED:
        read = list(read_tasks(name, find_set(name, [Path(os.path.expanduser(path))])))
        yield from read if count >= len(read) else Random(f"exam {evals.seed}").sample(read, count)
    else:
        problems = exam_problems(source, count, seed=evals.seed, seconds=config.data.wait_seconds)
        yield from (task_of(problem, environment.prompt) for problem in problems)


def build_exam(
    config: NodeConfig, exam: ExamTasks, sampler: "Sampler", evaluator: "Evaluator", stack: ExitStack
) -> "HeldOutExam":
    """Embedded tasks are executed by Monty, which decides all, others by both tiers or their environment's rule."""
    from codezero.evals.exam import HeldOutExam
    from codezero.rollout.client import RolloutServers
    from codezero.sandbox.monty import MontySandbox

    real, block = bool(exam.control) or config.evals.sources != [HELD_OUT], config.answer.block
    if isinstance(evaluator, ScoredEvaluator):
        grader = EvaluatorGrader(evaluator)
    else:
        sandbox = build_sandbox(config, stack) if real else stack.enter_context(MontySandbox())
        grader = SandboxGrader(sandbox, block)
    judge, pool = evaluator.examined(), None

    def begin(task: EvalTask, tried: Sequence[Completion]) -> None:
        if isinstance(grader, SandboxGrader):
            grader.begin(task, tried)
        if judge is not None:
            judge.begin(judged_group(task, tried, codes_of(task, tried, block)))

    if isinstance(sampler.backend, RolloutServers):
        pool = ThreadPoolExecutor(1, thread_name_prefix="exam")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    parts = exam.name, exam.tasks, exam.control, sampler, grader
    return HeldOutExam(config.evals, config.solver, *parts, evaluator=judge, block=block, ended=begin, pool=pool)
