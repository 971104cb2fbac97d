"""`codezero ask`: what a run's solver attempts at one task now, beside what it attempted before it learned anything."""

import dataclasses
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom

from codezero.code.assertions import as_problem
from codezero.commands.evaluate import judge_groups
from codezero.config import NodeConfig
from codezero.environment import Environment
from codezero.environments.code import CodeEnvironment
from codezero.errors import ConfigError
from codezero.evals.run import attempts_of
from codezero.monitor.ask_card import AskResult, PolicyAttempts
from codezero.monitor.reader import find_runs
from codezero.nano import NANO
from codezero.problems.synthetic.grammar import LEVELS
from codezero.problems.synthetic.programs import parse_question
from codezero.runs import CHECKPOINTS, read_label
from codezero.solver.checkpoint import checkpoints_in
from codezero.types import Problem, RolloutGroup, Source, problem_id
from codezero.wiring.environment import build_environment
from codezero.wiring.models import Say
from codezero.wiring.policies import Policy, find_policy, load_found

MAX_TASK = 20_000
"""Characters."""
MAX_NUMBER, DRAWN_FROM = 10_000, 200
"""Held-out problems that have a number, and of which one is drawn: as many as the exam has."""
SAMPLES, MAX_SAMPLES = 8, 64
UNNAMED = "solution"
"""What the function is called where neither the task nor a test says it."""
NAMED = re.compile(r"\bdef ([A-Za-z_]\w*)|\b(?:function|method) `?([A-Za-z_]\w*)`?\(|`([A-Za-z_]\w*)\(")
FOREIGN = "the embedded model knows its own kinds of problems alone, and this is none; without TASK one is drawn"
UNTRAINED = "no run has a checkpoint yet: this is the starting model alone; `codezero run` trains it"


@dataclass(frozen=True, slots=True)
class AskRequest:
    """What the command line says. None: not given; empty text: a held-out problem is drawn."""

    text: str
    tests: tuple[str, ...]
    number: int | None
    level: int | None
    samples: int | None
    policy: str


def newest_policy(config: NodeConfig, name: str) -> tuple[NodeConfig, str]:
    """The config with the models of the run `name`, or of the newest that has a checkpoint; how it is found again.

    Raises ConfigError for a run whose label cannot be read.
    """
    base = Path(config.run.directory)
    named = [path for path in (base / name, Path(os.path.expanduser(name))) if name and path.is_dir()]
    runs = (path for path in find_runs(base).values() if checkpoints_in(path / CHECKPOINTS))
    folder = next(iter(named), None) if name else next(runs, None)
    if folder is None:
        return config, name
    label = read_label(folder.parent.parent if folder.parent.name == CHECKPOINTS else folder) or {}
    solver, judge = (str(label.get(key, "")) for key in ("model.solver", "evaluator.model"))
    model = dataclasses.replace(config.model, solver=solver or config.model.solver)
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
    groups = _attempt(config, environment, problem, policies, samples, say)
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
        if len(request.text) > MAX_TASK:
            raise ConfigError(f"the task has {len(request.text)} characters; {MAX_TASK} are the most")
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
        place = SystemRandom().randrange(DRAWN_FROM)
        number = 1 + (place if level is None else place - place % len(LEVELS) + level - 1)
    return environment.held_out(number, config.evals.seed)[-1], number


def _in_words(text: str, tests: tuple[str, ...]) -> Problem:
    if tests:
        return as_problem(text, tests, None)
    match, known = NAMED.search(text), parse_question(text)
    entry = known[0] if known else match[match.lastindex or 0] if match else UNNAMED
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
