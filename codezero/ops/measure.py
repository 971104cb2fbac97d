"""`codezero eval SET`: which policy attempts which tasks, who grades them, where that is kept, and the report.

Puts the parts of an eval together: `evals/` knows no model and no judge. A policy is a run's best checkpoint, or its
newest where no exam has told, a checkpoint's folder, or any model by its name."""

import dataclasses
import functools
import hashlib
import os
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
from codezero.errors import CheckpointError, ConfigError, ModelChoiceError, ModelError, translated
from codezero.evals.build import build_exam, build_exam_tasks
from codezero.evals.figures import Choices, Report, Result, TaskOutcome, compare, figures_of
from codezero.evals.grading import EXECUTED, JUDGED, SCORED, EvaluatorGrader, Grader, SandboxGrader
from codezero.evals.run import EvalRequest, EvalRun, EvaluationLog
from codezero.evals.sets import HELD_OUT, NO_PRELUDE, PUBLISHED, digest_files, find_set, read_tasks
from codezero.evals.task import EvalTask, task_of
from codezero.evaluator.base import ScoredEvaluator
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.fitting import with_solver
from codezero.models.build import Say, load
from codezero.models.hardware import source_of
from codezero.monitor.metrics_file import LABEL
from codezero.nano import NANO, NANO_GYM
from codezero.problems.filters import Novelty
from codezero.problems.sources import MAX_HELD_BACK
from codezero.runs import CHECKPOINTS
from codezero.sandbox.build import build_sandbox
from codezero.settings import ADAPTER_CONFIG, begin_from, read_adapter
from codezero.solver.build import build_sampler
from codezero.solver.checkpoint import BEST, best_or_newest, check_files, read_manifest
from codezero.system.files import BadRows
from codezero.system.signals import Share

if TYPE_CHECKING:
    from codezero.models.generation import Sampler
    from codezero.models.load import LoadedModel
    from codezero.types import Metrics

SHOWN_REASONS = 8  # why attempts are undecided: the most frequent
EMBEDDED = (NANO, NANO_GYM)
SOLVER = "solver"  # the part of a checkpoint that holds the policy
FOLDER = "evals"  # of a run, or beside the runs for a model that belongs to none


@dataclass(frozen=True, slots=True)
class TaskSource:
    read: Callable[[], Iterable[EvalTask]]
    digest: str  # of what is read
    count: int
    of: int
    bad_rows: int
    rule: str  # what an answer need not import, and how output is compared


@dataclass(frozen=True, slots=True)
class Policy:
    """The name is for people; `load` takes `source`, the whole model or the base of the adapter."""

    name: str
    source: str
    digest: str  # 64 hex digits, the same for the same weights and tokenizer
    adapter: Path | None = None
    run: Path | None = None  # the folder of the run that it is of


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
                return EvaluatorGrader(ScoredEvaluator(rule))
            if request.judged:
                canaries = build_canaries(config, Novelty(), stack, say)
                return EvaluatorGrader(build_evaluator(config, canaries, stack, say), block)
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
    """One policy's eval, done again only where its log has no entry. rule: whose score grades; None: nobody's.

    by: all that another grade could come from."""
    samples = request.samples or config.evals.attempts
    choices = Choices(
        set=request.set,
        tasks=tasks.digest,
        model=policy.digest,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.evals.temperature,
        seed=config.evals.seed,
    )
    if rule is not None:
        label, by = SCORED, f"{SCORED}: rule of {rule.name} {rule.digest[:12]}"
    elif request.judged:
        judge = msgspec.json.encode({"evaluator": dataclasses.asdict(config.evaluator), "seed": config.seed})
        name = f"{config.evaluator.kind} {config.evaluator.model} {hashlib.sha256(judge).hexdigest()[:8]}"
        label, by = JUDGED, f"{JUDGED}: {name}, {config.answer.block} block"
    else:
        lent = "".join(f", {name}" for name in config.audit.packages)
        label, by = EXECUTED, f"{EXECUTED}: {config.audit.sandbox}{lent}, {config.answer.block} block, {tasks.rule}"
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
        others=PUBLISHED[request.set].others if request.set in PUBLISHED else "",
        **msgspec.structs.asdict(choices),
    )
    return result, totals.outcomes


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


def find_policy(config: NodeConfig, name: str) -> Policy:
    """`name` empty: the config's solver. Reads every byte of the policy, for its digest. Raises CheckpointError for a
    run without a usable checkpoint, ModelError for no such model."""
    from codezero.models.digest import weights_digest

    for path in (Path(config.run.directory) / name, Path(os.path.expanduser(name))):
        if name and (path / CHECKPOINTS).is_dir():
            whole = best_or_newest(path / CHECKPOINTS, lambda folder: check_files(folder, read_manifest(folder)))
            return _in_checkpoint(whole, path)
        if name and (path / SOLVER).is_dir():
            run = next((each.parent for each in path.parents[:2] if each.name == CHECKPOINTS), None)
            return _in_checkpoint(path, run)
    base, model = Path(config.run.directory), name or config.model.solver
    if name and (base / name / LABEL).is_file():
        raise ModelChoiceError(f"{name} has no checkpoint yet; let it train a little with `codezero run`")
    if name and "/" not in name and name not in EMBEDDED and not Path(name).is_dir():
        raise ModelChoiceError(f"{name} is no run below {base}, no folder and no model's id, OWNER/NAME")
    begun = begin_from({"model.solver": model, "model.adapter": "" if name else config.model.adapter})
    model, adapter = begun.get("model.solver", model), begun.get("model.adapter")
    digest = weights_digest(source_of(model, "solver"))
    if adapter is None:
        return Policy(model, model, digest)
    adapter = Path(os.path.expanduser(adapter))
    together = f"{digest} {weights_digest(str(adapter))} {_digest(adapter)}"
    return Policy(str(adapter), model, hashlib.sha256(together.encode()).hexdigest(), adapter)


def _digest(adapter: Path) -> str:
    """The adapter's settings'."""
    return hashlib.sha256((adapter / ADAPTER_CONFIG).read_bytes()).hexdigest()


def load_found(config: NodeConfig, policy: Policy, say: Say) -> "LoadedModel":
    """Ready to sample. Raises ModelError and CheckpointError."""
    loaded = load(config, policy.source, "solver", say)
    if policy.adapter is None:
        return loaded
    from codezero.models.load import add_adapter
    from codezero.solver.policy_files import begin_with

    settings = read_adapter(policy.adapter)
    targets = settings.target_modules
    targets = [targets] if isinstance(targets, str) else targets
    adapted = add_adapter(loaded, rank=settings.r, alpha=settings.lora_alpha, targets=targets)
    begin_with(adapted, policy.adapter)
    adapted.model.requires_grad_(False).train(False)
    return adapted


def _in_checkpoint(folder: Path, run: Path | None) -> Policy:
    from codezero.models.digest import Base, weights_digest
    from codezero.solver.policy_files import ADAPTER, BASE, MODEL

    best = f"{BEST}/" if run and folder.parent.name == BEST else ""
    name = f"{run.name if run else folder.parent.name}/{best}{folder.name}"
    model, adapter = folder / SOLVER / MODEL, folder / SOLVER / ADAPTER
    fault = f"the policy in {folder / SOLVER} cannot be read"
    with translated(CheckpointError, fault, ModelError, OSError, ValueError, RecursionError):
        if model.is_dir():
            return Policy(name, str(model), weights_digest(str(model)), run=run)
        base = msgspec.json.decode((adapter / BASE).read_bytes(), type=Base)
        together = f"{base.digest} {weights_digest(str(adapter))} {_digest(adapter)}"
    return Policy(name, base.name, hashlib.sha256(together.encode()).hexdigest(), adapter, run)
