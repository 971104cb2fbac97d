"""`codezero eval SET`: which policy attempts which tasks, who grades them, where that is kept, and the report.

Puts the parts of an eval together: `evals/` knows no model and no judge.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.environments.build import build_environment
from codezero.environments.tasks import TaskEnvironment
from codezero.errors import ConfigError
from codezero.evals.build import build_exam, build_exam_tasks
from codezero.evals.figures import Choices, Report, Result, TaskOutcome, compare, figures_of
from codezero.evals.grading import EXECUTED, JUDGED, SCORED, Grader, JudgeGrader, SandboxGrader, ScoreGrader
from codezero.evals.run import EvalRequest, EvalRun, EvaluationLog
from codezero.evals.sets import HELD_OUT, NO_PRELUDE, PUBLISHED, digest_files, find_set, read_tasks
from codezero.evals.task import EvalTask, task_of
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.evaluator.scored import ScoredEvaluator
from codezero.fitting import with_solver
from codezero.models.build import Say, load
from codezero.ops.policies import Policy, find_policy, load_found
from codezero.problems.filters import Novelty
from codezero.problems.sources import MAX_HELD_BACK
from codezero.sandbox.build import build_sandbox
from codezero.solver.build import build_sampler
from codezero.system.files import BadRows
from codezero.system.signals import Share

if TYPE_CHECKING:
    from codezero.models.generation import Sampler
    from codezero.types import Metrics

SHOWN_REASONS = 8  # why attempts are undecided: the most frequent
FOLDER = "evals"  # of a run, or beside the runs for a model that belongs to none


@dataclass(frozen=True, slots=True)
class TaskSource:
    read: Callable[[], Iterable[EvalTask]]
    digest: str  # of what is read
    count: int
    of: int
    bad_rows: int
    rule: str  # what an answer need not import, and how output is compared


def measure(config: NodeConfig, request: EvalRequest, say: Say) -> Report:
    """Raises ConfigError before anything is loaded where it can, then ProblemError, ModelError and CheckpointError."""
    request = request.checked(config.evals)
    environment = build_environment(config)
    if request.judged and config.reward.mode != "judge":
        raise ConfigError(f"--judged with reward.mode={config.reward.mode} would execute; drop one of them")
    config, rule = with_solver(config, environment), environment if isinstance(environment, TaskEnvironment) else None
    rule = rule if request.set == HELD_OUT else None
    if request.judged and rule is not None:
        raise ConfigError(f"--judged with environment={config.environment}: its own rule scores; drop --judged")
    tasks = _tasks_of(environment, config, request, say)  # a wrong file is known before a model is loaded
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

        evals = [_evaluate(config, request, policy, tasks, grader, say, rule) for policy in policies]
    results = [result for result, _ in evals]
    if len(results) == 1:
        return Report(results)
    (first, a), (_, b) = evals
    return Report(results, compare(a, b, samples=first.samples, label=first.label, seed=config.evals.seed))


def _tasks_of(environment: Environment, config: NodeConfig, request: EvalRequest, say: Say) -> TaskSource:
    """Every row is read and checked. Raises ConfigError and ProblemError."""
    files, evals, bad = find_set(request.set, request.files), config.evals, BadRows()
    if request.set == HELD_OUT:
        problems = environment.held_out(evals.problems, evals.seed)
        held_out = [task_of(problem, environment.prompt) for problem in problems]
        digest, of, rule = hashlib.sha256(msgspec.json.encode(held_out)).hexdigest(), len(held_out), NO_PRELUDE
    else:
        held_out = None
        say(Share(f"reading and checking {request.set}"))
        digest, of = digest_files(files), sum(1 for _ in read_tasks(request.set, files, bad))
        bad.refuse(request.skip_bad)
        rule = PUBLISHED[request.set].rule if request.prelude is None else f"--prelude {request.prelude}"

    def read() -> Iterable[EvalTask]:
        if held_out is not None:
            return held_out
        tasks = read_tasks(request.set, files, BadRows() if request.skip_bad else None)
        prelude = request.prelude
        return (dataclasses.replace(task, prelude=prelude) for task in tasks) if prelude else tasks

    start, end = request.start - 1, of if request.limit is None else min(of, request.start - 1 + request.limit)
    if start >= of:
        raise ConfigError(f"--start={request.start}: {request.set} has {of} problems")
    if (start, end) != (0, of):  # which problems share a batch depends on both
        digest = hashlib.sha256(f"{digest} {start} {end}".encode()).hexdigest()
    return TaskSource(lambda: islice(read(), start, end), digest, end - start, of, bad.count, rule)


def _evaluate(
    config: NodeConfig,
    request: EvalRequest,
    policy: Policy,
    tasks: TaskSource,
    grader: Callable[[], Grader],
    say: Say,
    rule: TaskEnvironment | None,
) -> tuple[Result, list[TaskOutcome]]:
    """One policy's eval, done again only where its log has no entry. rule: whose score grades; None: nobody's."""
    samples = request.samples or config.evals.attempts
    choices = Choices(
        set=request.set,
        tasks=tasks.digest,
        model=policy.digest,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.evals.temperature,
        seed=config.evals.seed,
    )
    label, by = _who_grades(config, request.judged, tasks, rule)

    where = f"{request.set}, {policy.name}"

    @functools.cache
    def sampler() -> "Sampler":
        from codezero.models.generation import Sampler

        def progress(ended: int, of: int) -> None:
            say(Share(f"{where}, attempting", ended, of, " attempts have ended"))

        return Sampler(load_found(config, policy, say), progress=progress)

    scorer = grader() if label == EXECUTED else None
    refused = scorer.refusals(tasks.read()) if isinstance(scorer, SandboxGrader) else {}
    for task, reason in islice(refused.items(), SHOWN_REASONS):
        say(f"{task} cannot be decided here, whatever the attempt: {reason}")
    folder = request.into or (policy.run or Path(config.run.directory)) / FOLDER
    with EvaluationLog(folder, choices, by) as log:
        totals = EvalRun(tasks.read, tasks.count, samples, choices, log, sampler, grader, say, where).run()
    result = Result(
        policy=policy.name,
        label=label,
        by=by,
        samples=samples,
        problems=len(totals.outcomes),
        first=request.start,
        of=tasks.of,
        rule=tasks.rule,
        undecidable=refused,
        skipped_rows=tasks.bad_rows,
        figures=figures_of(totals.outcomes, samples=samples, ks=request.ks, label=label, seed=choices.seed),
        undecided_share=sum(totals.undecided.values()) / max(1, totals.attempts),
        truncated_share=totals.truncated / max(1, totals.attempts),
        without_code_share=totals.without_code / max(1, totals.attempts),
        undecided=dict(totals.undecided.most_common(SHOWN_REASONS)),
        kept_in=str(log.path),
        **msgspec.structs.asdict(choices),
    )
    return result, totals.outcomes


def _who_grades(config: NodeConfig, judged: bool, tasks: TaskSource, rule: TaskEnvironment | None) -> tuple[str, str]:
    """The figures' label, and all that another grade could come from."""
    block, settings = config.answer.block, {"evaluator": dataclasses.asdict(config.evaluator), "seed": config.seed}
    if rule is not None:
        return SCORED, f"{SCORED}: rule of {rule.name} {rule.digest[:12]}"
    if judged:
        judge = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:8]
        return JUDGED, f"{JUDGED}: {config.evaluator.kind} {config.evaluator.model} {judge}, {block} block"
    lent = "".join(f", {name}" for name in config.audit.packages)
    return EXECUTED, f"{EXECUTED}: {config.audit.sandbox}{lent}, {block} block, {tasks.rule}"


def examine(config: NodeConfig, say: Say) -> "Metrics":
    """One exam of the solver named in the config, without training. Writes nothing."""
    with ExitStack() as stack:
        environment = build_environment(config)
        config = with_solver(config, environment)
        sampler = build_sampler(config, load(config, config.model.solver, "solver", say), say, stack)
        withheld = Novelty(most=MAX_HELD_BACK)
        tasks = build_exam_tasks(config, environment, withheld, say)
        canaries = build_canaries(config, withheld, stack, say, environment)
        evaluator = build_evaluator(config, canaries, stack, say, environment=environment)
        exam = build_exam(config, tasks, sampler, evaluator, stack)
        say("attempting and executing the held-out problems")
        exam.begin(0)
        return exam.results(wait=True)
