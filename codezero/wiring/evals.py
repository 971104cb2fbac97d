"""`codezero eval SET`: which policy attempts which tasks, who grades them, where that is kept, and the report.

Puts the parts of an eval together: `evals/` knows no model and no judge.
"""

import dataclasses
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from codezero.config import EvalsConfig, NodeConfig
from codezero.environment import Environment
from codezero.environments.tasks import TaskEnvironment
from codezero.errors import ConfigError, ProblemError
from codezero.evals.figures import Choices, Report, Result, TaskOutcome, compare, figures_of
from codezero.evals.grading import EXECUTED, JUDGED, SCORED, Grader, JudgeGrader, SandboxGrader, ScoreGrader, problem_of
from codezero.evals.rows import digest_files
from codezero.evals.run import EvalRequest, EvalRun, EvaluationLog
from codezero.evals.sets import HELD_OUT, NO_PRELUDE, PUBLISHED, find_set, read_tasks
from codezero.evals.task import EvalTask, task_of
from codezero.evaluator.scored import ScoredEvaluator
from codezero.problems.dedup import Novelty
from codezero.problems.held_back import MAX_HELD_BACK, digest, exam_problems
from codezero.problems.hub import SETS
from codezero.system.lines import BadRows
from codezero.system.signals import Share
from codezero.types import REHEARSAL
from codezero.wiring.environment import build_environment, fitted
from codezero.wiring.evaluator import build_canaries, build_evaluator, build_sandbox
from codezero.wiring.models import Say, build_sampler, load
from codezero.wiring.policies import Policy, find_policy, load_found

if TYPE_CHECKING:
    from codezero.models.generation import Sampler
    from codezero.protocols import Evaluator, Exam
    from codezero.types import Metrics

SHOWN_REASONS = 8
"""Why attempts are undecided: the most frequent."""
FOLDER = "evals"  # of a run, or beside the runs for a model that belongs to none


@dataclass(frozen=True, slots=True)
class ExamTasks:
    """What the exam asks, and what it is called."""

    name: str
    tasks: list[EvalTask]
    control: list[EvalTask]


@dataclass(frozen=True, slots=True)
class Asked:
    """The tasks that are asked, of those of a set."""

    read: Callable[[], Iterable[EvalTask]]
    digest: str
    """Of what is read."""
    count: int
    of: int
    bad_rows: int
    rule: str
    """What an answer need not import, and how output is compared."""


def measure(config: NodeConfig, request: EvalRequest, say: Say) -> Report:
    """Raises ConfigError before anything is loaded where it can, then ProblemError, ModelError and CheckpointError."""
    request = request.checked(config.evals)
    environment = build_environment(config)
    if request.judged and config.reward.mode != "judge":
        raise ConfigError(f"--judged with reward.mode={config.reward.mode} would execute; drop one of them")
    config, rule = fitted(config, environment), environment if isinstance(environment, TaskEnvironment) else None
    rule = rule if request.set == HELD_OUT else None
    if request.judged and rule is not None:
        raise ConfigError(f"--judged with environment={config.environment}: its own rule scores; drop --judged")
    asked = _asked(environment, config, request, say)  # a wrong file is known before a model is loaded
    policies, block = [find_policy(config, name) for name in request.policies], config.answer.block
    with ExitStack() as stack:

        @functools.cache
        def grader() -> Grader:
            if rule is not None:
                return ScoreGrader(ScoredEvaluator(rule))
            if request.judged:
                canaries = build_canaries(config, Novelty(), stack, say)
                return JudgeGrader(build_evaluator(config, canaries, stack, say), block)
            return SandboxGrader(build_sandbox(config, stack), block)

        evals = [_evaluate(config, request, policy, asked, grader, say, rule) for policy in policies]
    results = [result for result, _ in evals]
    if len(results) == 1:
        return Report(results)
    (first, a), (_, b) = evals
    return Report(results, compare(a, b, samples=first.samples, label=first.label, seed=config.evals.seed))


def _asked(environment: Environment, config: NodeConfig, request: EvalRequest, say: Say) -> Asked:
    """Every row is read and checked. Raises ConfigError and ProblemError."""
    files, evals, bad = find_set(request.set, request.files), config.evals, BadRows()
    if request.set == HELD_OUT:
        held_out = environment.held_out(evals.problems, evals.seed)
        tasks = [task_of(problem, environment.prompt) for problem in held_out]
        digest, of = hashlib.sha256(msgspec.json.encode(tasks)).hexdigest(), len(tasks)

        def read() -> Iterable[EvalTask]:
            return tasks

        rule = NO_PRELUDE
    else:
        say(Share(f"reading and checking {request.set}"))
        digest, of = digest_files(files), sum(1 for _ in read_tasks(request.set, files, bad))
        bad.refuse(request.skip_bad)

        def read() -> Iterable[EvalTask]:
            for task in read_tasks(request.set, files, BadRows() if request.skip_bad else None):
                yield dataclasses.replace(task, prelude=request.prelude) if request.prelude else task

        rule = PUBLISHED[request.set].rule if request.prelude is None else f"--prelude {request.prelude}"

    start, end = request.start - 1, of if request.limit is None else min(of, request.start - 1 + request.limit)
    if start >= of:
        raise ConfigError(f"--start={request.start}: {request.set} has {of} problems")
    if (start, end) != (0, of):  # which problems share a batch depends on both
        digest = hashlib.sha256(f"{digest} {start} {end}".encode()).hexdigest()
    return Asked(lambda: islice(read(), start, end), digest, end - start, of, bad.count, rule)


def _evaluate(
    config: NodeConfig,
    request: EvalRequest,
    policy: Policy,
    asked: Asked,
    grader: Callable[[], Grader],
    say: Say,
    rule: TaskEnvironment | None,
) -> tuple[Result, list[TaskOutcome]]:
    """One policy's eval, done again only where its log has no entry. rule: whose score grades; None: nobody's."""
    samples = request.samples or config.evals.attempts
    choices = Choices(
        set=request.set,
        tasks=asked.digest,
        model=policy.digest,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.evals.temperature,
        seed=config.evals.seed,
    )
    label, by = _who_grades(config, request.judged, asked, rule)

    where = f"{request.set}, {policy.name}"

    @functools.cache
    def sampler() -> "Sampler":
        from codezero.models.generation import Sampler

        own = Sampler(load_found(config, policy, say))
        own.report_to(lambda ended, of: say(Share(f"{where}, attempting", ended, of, " attempts have ended")))
        return own

    scorer = grader() if label == EXECUTED else None
    refused = scorer.refusals(asked.read()) if isinstance(scorer, SandboxGrader) else {}
    for task, reason in islice(refused.items(), SHOWN_REASONS):
        say(f"{task} cannot be decided here, whatever the attempt: {reason}")
    folder = request.into or (policy.run or Path(config.run.directory)) / FOLDER
    with EvaluationLog(folder, choices, by) as log:
        totals = EvalRun(asked.read, asked.count, samples, choices, log, sampler, grader, say, where).run()
    result = Result(
        policy=policy.name,
        label=label,
        by=by,
        samples=samples,
        problems=len(totals.outcomes),
        first=request.start,
        of=asked.of,
        rule=asked.rule,
        undecidable=refused,
        skipped_rows=asked.bad_rows,
        figures=figures_of(totals.outcomes, samples=samples, ks=request.ks, label=label, seed=choices.seed),
        undecided_share=sum(totals.undecided.values()) / max(1, totals.attempts),
        truncated_share=totals.truncated / max(1, totals.attempts),
        without_code_share=totals.without_code / max(1, totals.attempts),
        undecided=dict(totals.undecided.most_common(SHOWN_REASONS)),
        kept_in=str(log.path),
        **msgspec.structs.asdict(choices),
    )
    return result, totals.outcomes


def _who_grades(config: NodeConfig, judged: bool, asked: Asked, rule: TaskEnvironment | None) -> tuple[str, str]:
    """The figures' label, and all that another grade could come from."""
    block, settings = config.answer.block, {"evaluator": dataclasses.asdict(config.evaluator), "seed": config.seed}
    if rule is not None:
        return SCORED, f"{SCORED}: rule of {rule.name} {rule.digest[:12]}"
    if judged:
        judge = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:8]
        return JUDGED, f"{JUDGED}: {config.evaluator.kind} {config.evaluator.model} {judge}, {block} block"
    lent = "".join(f", {name}" for name in config.audit.packages)
    return EXECUTED, f"{EXECUTED}: {config.audit.sandbox}{lent}, {block} block, {asked.rule}"


def examine(config: NodeConfig, say: Say) -> "Metrics":
    """One exam of the solver named in the config, without training. Writes nothing."""
    with ExitStack() as stack:
        environment = build_environment(config)
        config = fitted(config, environment)
        sampler = build_sampler(config, load(config, config.model.solver, "solver", say), say, stack)
        withheld = Novelty(most=MAX_HELD_BACK)
        asked = build_exam_tasks(config, environment, withheld, say)
        canaries = build_canaries(config, withheld, stack, say, environment)
        evaluator = build_evaluator(config, canaries, stack, say, environment=environment)
        exam = build_exam(config, asked, sampler, evaluator, stack)
        say("attempting and executing the held-out problems")
        exam.begin(0)
        return exam.results(wait=True)


def build_exam_tasks(config: NodeConfig, environment: Environment, withheld: Novelty, say: Say) -> ExamTasks:
    """The tasks of `evals.sources`, or of the environment, go to `withheld`; embedded ones where the hub has no set.
    Raises ProblemError and ConfigError for a file that cannot be used."""
    evals, tasks, names, lost = config.evals, list[EvalTask](), list[str](), list[str]()
    for source in evals.sources:
        if source != HELD_OUT:
            say(f"reading the exam: {source}")
        try:
            added = list(_read_source(source, evals, -(-evals.problems // len(evals.sources)), config, environment))
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


def _read_source(
    source: str, evals: EvalsConfig, count: int, config: NodeConfig, environment: Environment
) -> Iterator[EvalTask]:
    name, colon, path = source.partition(":")
    if source == HELD_OUT:
        yield from (task_of(problem, environment.prompt) for problem in environment.held_out(count, evals.seed))
    elif colon and name in PUBLISHED:
        read = list(read_tasks(name, find_set(name, [Path(os.path.expanduser(path))])))
        yield from read if count >= len(read) else Random(f"exam {evals.seed}").sample(read, count)
    else:
        problems = exam_problems(source, count, seed=evals.seed, seconds=config.data.wait_seconds)
        yield from (task_of(problem, environment.prompt) for problem in problems)


def build_exam(
    config: NodeConfig, asked: ExamTasks, sampler: "Sampler", evaluator: "Evaluator", stack: ExitStack
) -> "Exam":
    """Embedded tasks are executed by Monty, which decides all, others by both tiers or their environment's rule."""
    from codezero.evals.exam import HeldOutExam
    from codezero.evaluator.evaluator import FrozenEvaluator
    from codezero.evaluator.executed import ExecutedEvaluator
    from codezero.rollout.client import RolloutServers
    from codezero.sandbox.monty import MontySandbox

    real, block = bool(asked.control) or config.evals.sources != [HELD_OUT], config.answer.block
    if isinstance(evaluator, ScoredEvaluator):
        grader = ScoreGrader(evaluator)
    else:
        sandbox = build_sandbox(config, stack) if real else stack.enter_context(MontySandbox())
        grader = SandboxGrader(sandbox, block)
    pool = None
    if isinstance(sampler.backend, RolloutServers):
        pool = ThreadPoolExecutor(1, thread_name_prefix="exam")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    if isinstance(evaluator, FrozenEvaluator):  # the judge alone, whatever it counts for
        evaluator = FrozenEvaluator(evaluator.watch, block=block, gated=False)
    return HeldOutExam(
        config.evals,
        config.solver,
        asked.name,
        asked.tasks,
        asked.control,
        sampler,
        grader,
        # execution, or a rule, says nothing of itself
        evaluator=None if isinstance(evaluator, ExecutedEvaluator | ScoredEvaluator) else evaluator,
        block=block,
        pool=pool,
    )
