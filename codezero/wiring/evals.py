"""`codezero eval SET`: which policy attempts which tasks, who marks them, and where that is kept.

Puts the parts of an eval together: `evals/` knows no model and no judge.

What an eval found, for people and for programs.
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

from codezero.code.parsing import extract_code
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.evals.figures import Difference, Figure, Result, compare, figures_of, most_frequent
from codezero.evals.grading import EXECUTED, JUDGED, Executor, Judge, Marker
from codezero.evals.ledger import Choices, Ledger
from codezero.evals.rows import digest_files
from codezero.evals.run import Sat, Sitting
from codezero.evals.sets import HELD_OUT, find_set, read_tasks
from codezero.evals.task import Task
from codezero.problems.synthetic.tasks import held_out
from codezero.wiring.evaluator import Say, build_evaluator
from codezero.wiring.policies import Policy, find_policy, load_found

if TYPE_CHECKING:
    from codezero.protocols import GroupSampler

MAX_SAMPLES = 256
FOLDER = "evals"
"""Of a run, or beside the runs for a model that belongs to none."""


@dataclass(frozen=True, slots=True)
class Asked:
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


@dataclass(frozen=True, slots=True)
class _Tasks:
    read: Callable[[], Iterable[Task]]
    digest: str


def measure(config: NodeConfig, asked: Asked, say: Say) -> Report:
    """Raises ConfigError before anything is loaded where it can, then ProblemError, ModelError and CheckpointError."""
    ks = _check(config, asked)
    tasks = _tasks(config, asked)
    next(iter(tasks.read()))  # a wrong file is known before a model is loaded
    policies = [find_policy(config, name) for name in asked.policies]
    with contextlib.ExitStack() as stack:
        marker = functools.cache(lambda: _marker(config, asked.judged, stack, say))
        sat = [_sit(config, asked, tasks, policy, marker, say) for policy in policies]
    results = [_result(config, asked, ks, one) for one in sat]
    if len(sat) == 1:
        return Report(results)
    label, seed = results[0].label, config.evals.seed
    a, b = (one.sat.outcomes for one in sat)
    return Report(results, compare(a, b, samples=asked.samples, label=label, seed=seed))


def _check(config: NodeConfig, asked: Asked) -> tuple[int, ...]:
    """The ks."""
    if not 1 <= asked.samples <= MAX_SAMPLES:
        raise ConfigError(f"--samples={asked.samples} is out of bounds; it must be 1 to {MAX_SAMPLES}")
    ks = asked.ks or tuple(dict.fromkeys((1, asked.samples)))
    wrong = next((k for k in ks if not 1 <= k <= asked.samples), None)
    if wrong is not None:
        raise ConfigError(f"--k={wrong} cannot be estimated from {asked.samples} attempts; give --samples {max(ks)}")
    if asked.judged and config.reward.mode == "rlvr":
        raise ConfigError("--judged with reward.mode=rlvr would execute; drop one of them")
    return ks


def _tasks(config: NodeConfig, asked: Asked) -> _Tasks:
    files = find_set(asked.set, asked.files)
    if asked.set != HELD_OUT:
        return _Tasks(lambda: read_tasks(asked.set, files), digest_files(files))
    from codezero.solver.solver import solver_prompt

    made = [
        Task(problem.id, solver_prompt(problem), problem.tests, problem.entry_point, level=problem.level)
        for problem in held_out(config.evals.problems, config.evals.seed)
    ]
    return _Tasks(lambda: made, hashlib.sha256(msgspec.json.encode(made)).hexdigest())


@dataclass(frozen=True, slots=True)
class _Sat:
    policy: Policy
    choices: Choices
    by: str
    path: Path
    sat: Sat


def _sit(
    config: NodeConfig, asked: Asked, tasks: _Tasks, policy: Policy, marker: Callable[[], Marker], say: Say
) -> _Sat:
    choices = Choices(
        set=asked.set,
        tasks=tasks.digest,
        model=policy.digest,
        samples=asked.samples,
        max_new_tokens=config.solver.max_new_tokens,
        temperature=config.solver.temperature,
        seed=config.evals.seed,
    )
    by = _judge_name(config) if asked.judged else f"{EXECUTED}: {config.audit.sandbox}"
    folder = asked.into or (policy.run or Path(config.run.directory)) / FOLDER
    with Ledger(folder, choices, by) as ledger:
        sampler = functools.cache(lambda: _sampler(config, policy, say))
        sat = Sitting(
            tasks=tasks.read,
            choices=choices,
            ledger=ledger,
            sampler=sampler,
            marker=marker,
            has_code=lambda text: extract_code(text).code is not None,
            say=lambda doing: say(f"{asked.set}, {policy.name}: {doing}"),
        ).sit()
    return _Sat(policy, choices, by, ledger.path, sat)


def _result(config: NodeConfig, asked: Asked, ks: tuple[int, ...], one: _Sat) -> Result:
    label = JUDGED if asked.judged else EXECUTED
    sat, attempts = one.sat, max(1, one.sat.attempts)
    return Result(
        set=asked.set,
        policy=one.policy.name,
        label=label,
        by=one.by,
        model=one.choices.model,
        tasks=one.choices.tasks,
        problems=len(sat.outcomes),
        samples=asked.samples,
        temperature=one.choices.temperature,
        max_new_tokens=one.choices.max_new_tokens,
        seed=config.evals.seed,
        figures=figures_of(sat.outcomes, samples=asked.samples, ks=ks, label=label, seed=config.evals.seed),
        undecided_share=sum(sat.undecided.values()) / attempts,
        truncated_share=sat.truncated / attempts,
        without_code_share=sat.without_code / attempts,
        undecided=most_frequent(sat.undecided),
        kept_in=str(one.path),
    )


def _judge_name(config: NodeConfig) -> str:
    """The judge and how it is asked: what another setting would change, the digest changes with."""
    told = {"evaluator": dataclasses.asdict(config.evaluator), "seed": config.seed}
    digest = hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:8]
    return f"{JUDGED}: {config.evaluator.kind} {config.evaluator.model} {digest}"


def _sampler(config: NodeConfig, policy: Policy, say: Say) -> "GroupSampler":
    from codezero.models.load import use_threads
    from codezero.models.sampler import Sampler

    loaded = load_found(config, policy, say)
    use_threads(loaded.model, config.model.threads)
    return Sampler(loaded)


def _marker(config: NodeConfig, judged: bool, stack: contextlib.ExitStack, say: Say) -> Marker:
    if judged:
        from codezero.wiring.models import load_judge

        return Judge(build_evaluator(config, stack, say, lambda: load_judge(config, say)))
    from codezero.sandbox.tiered import open_sandbox

    return Executor(stack.enter_context(open_sandbox(config.audit.sandbox)))


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
    yield from (_figure(one) for one in result.figures)
    if not result.figures:
        yield f"  no {result.label} figure: no attempt could be decided"
    yield f"  {result.undecided_share:.1%} of the attempts undecided, {result.truncated_share:.1%} cut off at " + (
        f"{result.max_new_tokens} tokens, {result.without_code_share:.1%} without code"
    )
    yield from (f"    {times} x {reason}" for reason, times in result.undecided.items())
    yield f"  kept in {result.kept_in}"


def _figure(one: Figure) -> str:
    bounds = f"[{one.low:.1%}, {one.high:.1%}]"
    return f"  {one.label} {one.name:12} {one.value:6.1%}  95 % {bounds}  over {one.problems} problems"


def _ahead(one: Difference | None) -> str:
    if one is None:
        return "no problem has decided attempts of both, so nothing can be compared"
    bounds = f"[{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
    return (
        f"{one.label} {one.name}: B is ahead by {100 * one.difference:+.1f} points, 95 % {bounds}, p = {one.p:.3g}, "
        f"over {one.problems} problems (A {one.a:.1%}, B {one.b:.1%})"
    )
