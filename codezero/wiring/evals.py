"""`codezero eval SET`: which policy attempts which tasks, who grades them, where that is kept, and the report.

Puts the parts of an eval together: `evals/` knows no model and no judge.
"""

import contextlib
import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.evals.evaluation_log import Choices, EvaluationLog
from codezero.evals.figures import Difference, Figure, Result, TaskOutcome, compare, figures_of
from codezero.evals.grading import EXECUTED, JUDGED, Grader, JudgeGrader, SandboxGrader
from codezero.evals.rows import digest_files
from codezero.evals.run import EvalRun
from codezero.evals.sets import HELD_OUT, find_set, read_tasks
from codezero.evals.task import EvalTask
from codezero.problems.synthetic.tasks import held_out
from codezero.wiring.evaluator import Say, build_evaluator
from codezero.wiring.policies import Policy, find_policy, load_found

if TYPE_CHECKING:
    from codezero.models.generation import Sampler
    from codezero.protocols import Evaluator, Exam, GroupSampler
    from codezero.types import Metrics

MAX_SAMPLES = 256
SHOWN_REASONS = 8
"""Why attempts are undecided: the most frequent."""
FOLDER = "evals"
"""Of a run, or beside the runs for a model that belongs to none."""


@dataclass(frozen=True, slots=True)
class EvalRequest:
    """What the command line says."""

    set: str
    files: tuple[Path, ...]
    samples: int
    ks: tuple[int, ...] | None
    """None: 1 and `samples`."""
    policies: tuple[str, ...]
    """One, or two to compare; empty: the config's solver."""
    judged: bool
    into: Path | None


@dataclass(frozen=True, slots=True)
class Report:
    """Of one policy, or of two and their difference."""

    results: list[Result]
    difference: Difference | None = None


def measure(config: NodeConfig, request: EvalRequest, say: Say) -> Report:
    """Raises ConfigError before anything is loaded where it can, then ProblemError, ModelError and CheckpointError."""
    ks = _check(config, request)
    read, digest = _tasks(config, request)
    next(iter(read()))  # a wrong file is known before a model is loaded
    policies = [find_policy(config, name) for name in request.policies]
    with contextlib.ExitStack() as stack:
        grader = functools.cache(lambda: _grader(config, request.judged, stack, say))
        evals = [_evaluate(config, request, ks, read, digest, policy, grader, say) for policy in policies]
    results = [result for result, _ in evals]
    if len(results) == 1:
        return Report(results)
    a, b = (outcomes for _, outcomes in evals)
    label, seed = results[0].label, config.evals.seed
    return Report(results, compare(a, b, samples=request.samples, label=label, seed=seed))


def _check(config: NodeConfig, request: EvalRequest) -> tuple[int, ...]:
    """The ks."""
    if not 1 <= request.samples <= MAX_SAMPLES:
        raise ConfigError(f"--samples={request.samples} is out of bounds; it must be 1 to {MAX_SAMPLES}")
    ks = request.ks or tuple(dict.fromkeys((1, request.samples)))
    wrong = next((k for k in ks if not 1 <= k <= request.samples), None)
    if wrong is not None:
        raise ConfigError(f"--k={wrong} cannot be estimated from {request.samples} attempts; give --samples {max(ks)}")
    if request.judged and config.reward.mode == "rlvr":
        raise ConfigError("--judged with reward.mode=rlvr would execute; drop one of them")
    return ks


def _tasks(config: NodeConfig, request: EvalRequest) -> tuple[Callable[[], Iterable[EvalTask]], str]:
    """What reads the tasks, and the digest of what it reads."""
    files = find_set(request.set, request.files)
    if request.set != HELD_OUT:
        return lambda: read_tasks(request.set, files), digest_files(files)
    from codezero.solver.solver import solver_prompt

    tasks = [
        EvalTask(problem.id, solver_prompt(problem), problem.tests, problem.entry_point, level=problem.level)
        for problem in held_out(config.evals.problems, config.evals.seed)
    ]
    return lambda: tasks, hashlib.sha256(msgspec.json.encode(tasks)).hexdigest()


def _evaluate(
    config: NodeConfig,
    request: EvalRequest,
    ks: tuple[int, ...],
    read: Callable[[], Iterable[EvalTask]],
    digest: str,
    policy: Policy,
    grader: Callable[[], Grader],
    say: Say,
) -> tuple[Result, list[TaskOutcome]]:
    """One policy's eval, done again only where its log has no entry."""
    choices = Choices(
        set=request.set,
        tasks=digest,
        model=policy.digest,
        samples=request.samples,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.solver.temperature,
        seed=config.evals.seed,
    )
    label = JUDGED if request.judged else EXECUTED
    by = _judge_name(config) if request.judged else f"{EXECUTED}: {config.audit.sandbox}"
    folder = request.into or (policy.run or Path(config.run.directory)) / FOLDER
    with EvaluationLog(folder, choices, by) as log:
        sampler = functools.cache(lambda: _sampler(config, policy, say))
        where = f"{request.set}, {policy.name}"
        totals = EvalRun(read, choices, log, sampler, grader, lambda doing: say(f"{where}: {doing}")).run()
    attempts = max(1, totals.attempts)
    result = Result(
        policy=policy.name,
        label=label,
        by=by,
        problems=len(totals.outcomes),
        figures=figures_of(totals.outcomes, samples=request.samples, ks=ks, label=label, seed=config.evals.seed),
        undecided_share=sum(totals.undecided.values()) / attempts,
        truncated_share=totals.truncated / attempts,
        without_code_share=totals.without_code / attempts,
        undecided=dict(totals.undecided.most_common(SHOWN_REASONS)),
        kept_in=str(log.path),
        set=request.set,
        model=policy.digest,
        tasks=digest,
        samples=request.samples,
        temperature=choices.temperature,
        max_new_tokens=choices.max_new_tokens,
        seed=choices.seed,
    )
    return result, totals.outcomes


def _judge_name(config: NodeConfig) -> str:
    """The judge and how it is request: what another setting would change, the digest changes with."""
    settings = {"evaluator": dataclasses.asdict(config.evaluator), "seed": config.seed}
    digest = hashlib.sha256(msgspec.json.encode(settings)).hexdigest()[:8]
    return f"{JUDGED}: {config.evaluator.kind} {config.evaluator.model} {digest}"


def _sampler(config: NodeConfig, policy: Policy, say: Say) -> "GroupSampler":
    from codezero.models.generation import Sampler
    from codezero.models.load import use_threads

    loaded = load_found(config, policy, say)
    use_threads(loaded.model, config.model.threads)
    return Sampler(loaded)


def _grader(config: NodeConfig, judged: bool, stack: contextlib.ExitStack, say: Say) -> Grader:
    if judged:
        from codezero.wiring.models import load_judge

        return JudgeGrader(build_evaluator(config, stack, say, lambda: load_judge(config, say)))
    from codezero.sandbox.bubblewrap import open_sandbox

    return SandboxGrader(stack.enter_context(open_sandbox(config.audit.sandbox)))


def as_json(report: Report) -> str:
    """One object: of one policy its result, of two `a`, `b` and `difference`."""
    if len(report.results) == 1:
        return msgspec.json.encode(report.results[0]).decode()
    a, b = report.results
    return msgspec.json.encode({"a": a, "b": b, "difference": report.difference}).decode()


def lines(report: Report) -> Iterator[str]:
    for result in report.results:
        yield from _of(result)
    if len(report.results) == 2:
        yield _ahead(report.difference)


def _of(result: Result) -> Iterator[str]:
    yield f"{result.policy} on {result.set}: {result.problems} problems, {result.samples} attempts each"
    yield from map(_figure, result.figures)
    if not result.figures:
        yield f"  no {result.label} figure: no attempt could be decided"
    yield f"  {result.undecided_share:.1%} of the attempts undecided, {result.truncated_share:.1%} cut off at " + (
        f"{result.max_new_tokens} tokens, {result.without_code_share:.1%} without code"
    )
    yield from (f"    {times} x {reason}" for reason, times in result.undecided.items())
    yield f"  kept in {result.kept_in}"


def _figure(figure: Figure) -> str:
    bounds = f"[{figure.low:.1%}, {figure.high:.1%}]"
    return f"  {figure.label} {figure.name:12} {figure.value:6.1%}  95 % {bounds}  over {figure.problems} problems"


def _ahead(gap: Difference | None) -> str:
    if gap is None:
        return "no problem has decided attempts of both, so nothing can be compared"
    bounds = f"[{100 * gap.low:+.1f}, {100 * gap.high:+.1f}]"
    return (
        f"{gap.label} {gap.name}: B is ahead by {100 * gap.difference:+.1f} points, 95 % {bounds}, p = {gap.p:.3g}, "
        f"over {gap.problems} problems (A {gap.a:.1%}, B {gap.b:.1%})"
    )


def examine(config: NodeConfig, say: Say) -> "Metrics":
    """One exam of the solver named in the config, without training. Writes nothing."""
    from codezero.models.load import use_threads
    from codezero.wiring.models import build_sampler, load, load_judge

    with contextlib.ExitStack() as stack:
        solver = load(config, config.model.solver, "solver", say)
        use_threads(solver.model, config.model.threads)
        sampler = build_sampler(config, solver, say, stack)
        evaluator = build_evaluator(config, stack, say, lambda: load_judge(config, say))
        exam = build_exam(config, sampler, evaluator, stack)
        say("attempting and executing the held-out problems")
        return exam.sit()


def build_exam(config: NodeConfig, sampler: "Sampler", evaluator: "Evaluator", stack: contextlib.ExitStack) -> "Exam":
    from codezero.code.parsing import extract_code
    from codezero.evals.exam import HeldOutExam
    from codezero.sandbox.monty import MontySandbox
    from codezero.solver.solver import solver_prompt

    return HeldOutExam(
        problems=held_out(config.evals.problems, config.evals.seed),
        sampler=sampler,
        sandbox=stack.enter_context(MontySandbox()),
        evaluator=evaluator,
        samples=config.evals.samples,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.solver.temperature,
        every=config.evals.every,
        seed=config.evals.seed,
        prompt=solver_prompt,
        extract=lambda text: extract_code(text).code,
    )
