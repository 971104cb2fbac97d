"""The work of `codezero judge FILE.jsonl` and `codezero ask`: verdicts on written attempts, and on those of one task.

A line of the file holds a problem and its completions; a line out holds their verdicts. All lines are bounded, read and
checked before the first is judged, and those that cannot be used are named."""

import contextlib
import dataclasses
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from random import SystemRandom
from typing import Annotated, NamedTuple, cast

import msgspec
from msgspec import Meta

from codezero.code.assertions import as_problem
from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.environments.build import build_environment
from codezero.environments.code import CodeEnvironment
from codezero.errors import ConfigError, ProblemError
from codezero.evals.run import attempts_of
from codezero.evaluator.build import build_canaries, build_evaluator
from codezero.models.build import Say
from codezero.monitor.cards import AskResult, JudgedProblem, PolicyAttempts
from codezero.monitor.reader import find_runs
from codezero.nano import NANO
from codezero.ops.measure import Policy, find_policy, load_found
from codezero.problems.filters import Novelty
from codezero.problems.synthetic.grammar import LEVELS
from codezero.problems.synthetic.tasks import parse_question
from codezero.runs import CHECKPOINTS, read_label
from codezero.sandbox.build import build_sandbox
from codezero.solver.checkpoint import checkpoints_in
from codezero.system.files import BadRows, decode_row, json_lines, refuse
from codezero.system.signals import Share
from codezero.types import Completion, Metrics, Problem, RolloutGroup, Source, problem_id

MAX_LINE, MAX_FILE = 8 << 20, 256 << 20  # bytes of a line, and of all of them, which are in memory together
AT_ONCE = 16  # lines judged together

_Text = Annotated[str, Meta(max_length=1 << 18)]


class Line(msgspec.Struct, frozen=True):
    """One line of the file; fields beside these are ignored."""

    question: Annotated[_Text, Meta(min_length=1)]
    tests: Annotated[list[_Text], Meta(min_length=1, max_length=200)]
    completions: Annotated[list[_Text], Meta(max_length=1024)]
    # read off the tests when it is missing; empty: the program reads stdin and writes stdout
    entry_point: Annotated[str, Meta(max_length=128)] | None = None
    level: Annotated[int, Meta(ge=1, le=5)] | None = None


def judge_groups(
    config: NodeConfig, groups: Sequence[RolloutGroup], *, audit: bool, say: Callable[[str], None]
) -> Iterator[tuple[JudgedProblem, Metrics]]:
    """Each group with its verdicts, and how far the judge can be believed.

    audit: execute every attempt, beside the verdict and never in it. Raises SandboxError, and what `build_evaluator`
    raises."""
    from codezero.ops.judge import executed

    with contextlib.ExitStack() as stack:
        canaries = build_canaries(config, Novelty(), stack, say)
        evaluator = build_evaluator(config, canaries, stack, say)
        family = None if config.reward.mode == "rlvr" else canaries
        sandbox = build_sandbox(config, stack) if audit else None
        known = evaluator.metrics() | {"judge/calibrated_on": family and family.name}
        for start in range(0, len(groups), AT_ONCE):
            say(Share("judging", start, len(groups), " problems"))
            for scored in evaluator.score(groups[start : start + AT_ONCE]):
                outcomes = None if sandbox is None else executed(sandbox, [scored.group], config.answer.block)[0]
                same = family is None or family.cover(scored.group.problem)
                yield JudgedProblem(scored, outcomes, same_family=same), known


def read_groups(file: Path, bad: BadRows | None = None) -> list[RolloutGroup]:
    """A group per line of `file`, or of stdin for `-`.

    bad: takes lines that cannot be used; None: the first of them is raised. Raises ConfigError for a file that cannot
    be read, ProblemError that names the line, or for more than MAX_FILE bytes in all."""
    groups, number, size = list[RolloutGroup](), 0, 0
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as opened:
            for number, line in enumerate(json_lines(cast(BufferedReader, opened), MAX_LINE), 1):
                if (size := size + len(line)) > MAX_FILE:
                    raise ValueError(f"more than {MAX_FILE >> 20} MiB in all; judge it in parts")
                try:
                    groups += [read_group(line)] if line.strip() else []
                except ProblemError as error:
                    refuse(ProblemError(f"{file}, line {number}: {error}"), bad)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ProblemError:
        raise
    except ValueError as error:
        raise ProblemError(f"{file}, line {number}: {error}") from error
    return groups


def read_group(line: bytes) -> RolloutGroup:
    """One line. Raises ProblemError that says which field is wrong."""
    if len(line) > MAX_LINE:
        raise ProblemError(f"longer than {MAX_LINE >> 20} MiB")
    try:
        read = decode_row(line, Line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ProblemError(str(error)) from error
    problem = as_problem(read.question, read.tests, read.entry_point, read.level)
    completions = tuple(Completion(text, (), (), finished=True) for text in read.completions)
    return RolloutGroup(problem, completions, peer_id="file", round=0, policy_step=0)


MAX_NUMBER = 10_000  # of a held-out problem
SAMPLES, MAX_SAMPLES = 8, 64
NAMED = re.compile(r"\bdef ([A-Za-z_]\w*)|\b(?:function|method) `?([A-Za-z_]\w*)`?\(|`([A-Za-z_]\w*)\(")
FOREIGN = "the embedded model knows its own kinds of problems alone, and this is none; without TASK one is drawn"
UNTRAINED = "no run has a checkpoint yet: this is the starting model alone; `codezero run` trains it"


class AskRequest(NamedTuple):
    """The command line's words. None: not given; empty text: a held-out problem is drawn."""

    text: str
    tests: tuple[str, ...]
    number: int | None
    level: int | None
    samples: int | None
    policy: str


def newest_policy(config: NodeConfig, name: str) -> tuple[NodeConfig, str]:
    """The config with the models of the run `name`, or of the newest that has a checkpoint; how it is found again.
    Raises ConfigError for a run whose label cannot be read."""
    base = Path(config.run.directory)
    named = [path for path in (base / name, Path(os.path.expanduser(name))) if name and path.is_dir()]
    runs = (path for path in find_runs(base).values() if checkpoints_in(path / CHECKPOINTS))
    folder = next(iter(named), None) if name else next(runs, None)
    if folder is None:
        return config, name
    label = read_label(folder.parent.parent if folder.parent.name == CHECKPOINTS else folder) or {}
    solver, adapter, judge = (str(label.get(key, "")) for key in ("model.solver", "model.adapter", "evaluator.model"))
    model = dataclasses.replace(config.model, solver=solver or config.model.solver, adapter=adapter)
    evaluator = dataclasses.replace(config.evaluator, model=judge or config.evaluator.model)
    return dataclasses.replace(config, model=model, evaluator=evaluator), str(folder)


def ask(config: NodeConfig, request: AskRequest, say: Say) -> AskResult:
    """Raises ConfigError, ProblemError for tests that cannot be read, ModelError, CheckpointError and SandboxError."""
    samples = attempts_of(dataclasses.replace(config.evals, samples=SAMPLES), request.samples, MAX_SAMPLES)
    config, name = newest_policy(config, request.policy)
    environment = build_environment(config)
    if not isinstance(environment, CodeEnvironment):
        raise ConfigError(f"environment={config.environment}: only tasks of environment=code can be asked in words")
    problem, number = _problem(request, environment, config)
    notes = [FOREIGN] if config.model.solver == NANO and parse_question(problem.question) is None else []
    notes += [] if name else [UNTRAINED]
    policies = [find_policy(config, each) for each in dict.fromkeys(("", name))]  # before anything is loaded
    groups = list(_attempt(config, environment, problem, policies, samples, say))
    judged, known = zip(*judge_groups(config, groups, audit=bool(problem.tests), say=say), strict=True)
    pairs = zip(policies, judged, strict=True)
    attempts = [PolicyAttempts(policy.name, at == 0, each) for at, (policy, each) in enumerate(pairs)]
    return AskResult(problem, number, attempts, known[-1], notes)


def _problem(request: AskRequest, environment: Environment, config: NodeConfig) -> tuple[Problem, int | None]:
    """The task; of a drawn one its number too."""
    number, level = request.number, request.level
    if request.text:
        if number is not None or level is not None:
            raise ConfigError("--problem and --level draw a task; drop them, or the task in words")
        if len(request.text) > 20_000:
            raise ConfigError(f"the task has {len(request.text)} characters; 20000 are the most")
        return _in_words(request.text, request.tests), None
    if request.tests:
        raise ConfigError("--tests need the task that they test; write codezero ask TASK --tests ASSERT")
    if number is not None and level is not None:
        raise ConfigError("--problem names one; drop --level")
    if level is not None and level not in LEVELS:
        raise ConfigError(f"--level={level} is out of bounds; it must be 1 to {len(LEVELS)}")
    if number is not None and not 1 <= number <= MAX_NUMBER:
        raise ConfigError(f"--problem={number} is out of bounds; it must be 1 to {MAX_NUMBER}")
    if number is None:  # levels take turns among the held-out problems
        place = SystemRandom().randrange(200)  # as many as the exam has
        number = 1 + (place if level is None else place - place % len(LEVELS) + level - 1)
    return environment.held_out(number, config.evals.seed)[-1], number


def _in_words(text: str, tests: tuple[str, ...]) -> Problem:
    if tests:
        return as_problem(text, tests, None)
    match, known = NAMED.search(text), parse_question(text)
    entry = known[0] if known else match[match.lastindex or 0] if match else "solution"
    return Problem(problem_id(text, ()), text, (), entry, Source.MBPP)


def _attempt(
    config: NodeConfig, environment: Environment, problem: Problem, policies: list[Policy], samples: int, say: Say
) -> Iterator[RolloutGroup]:
    """A group of each policy, by the same random numbers; one model is in memory at a time."""
    say("loading the libraries")
    from codezero.models.generation import Sampler

    for policy in policies:
        sampler = Sampler(load_found(config, policy, say))
        (attempts,) = sampler.sample(
            [environment.prompt(problem)],
            group_size=samples,
            max_new_tokens=config.solver.max_new_tokens,
            temperature=config.evals.temperature,
            generator_seed=config.seed,
            max_prompt_tokens=config.solver.max_prompt_tokens,
        )
        yield RolloutGroup(problem, tuple(attempts), peer_id="ask", round=0, policy_step=0)
