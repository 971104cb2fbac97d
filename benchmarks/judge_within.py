"""What each question of a judge is worth on a policy's own attempts: AUROC over all of them, within groups, and cost.

A group is the attempts at one problem. Those that the static pass decides, or that execution cannot, are left out and
counted. Attempts and outcomes are kept in a file, so that another judge reads the same ones.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from judge_cost import Report, say
from msgspec import Meta

from codezero.code.answer import read_answer
from codezero.code.assertions import MbppRow, as_problem
from codezero.code.worker import StaticGuard
from codezero.config import NodeConfig
from codezero.environments.code import solver_prompt
from codezero.errors import ConfigError, ProblemError, translated
from codezero.evaluator.agreeing import with_own_solutions
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import LIKELIHOOD, SCORES
from codezero.evaluator.types import Program, program, request
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel
from codezero.problems.rows import MAX_ROW, read_row
from codezero.problems.synthetic.tasks import held_out
from codezero.sandbox.base import TRUTH, Job, Outcome, Sandbox
from codezero.settings import compose
from codezero.stats import auroc, group_order, within_groups
from codezero.system.lines import BadRows, json_lines
from codezero.types import Problem, RolloutGroup, Style
from codezero.wiring.evaluator import build_sandbox
from codezero.wiring.models import load

AT_ONCE = 8
"""Problems that are attempted and executed before their attempts are written to the file."""
RESAMPLES = 1_000

Labelled = tuple[int, float, bool]
"""Number of the group, score, passed."""


class Attempts(msgspec.Struct, frozen=True):
    """A line of the file, which `codezero judge FILE` reads too: a problem, attempts at it, and what running showed."""

    question: str
    tests: list[str]
    entry_point: str
    completions: Annotated[list[str], Meta(min_length=1, max_length=1024)]
    passed: list[bool | None]
    """[G] None: execution could not tell."""
    solver: str
    """Who wrote them, at temperature 1."""

    @property
    def problem(self) -> Problem:
        return as_problem(self.question, self.tests, self.entry_point, None)


def sampled(
    solver: LoadedModel, problems: Sequence[Problem], samples: int, tokens: int, seed: int
) -> list[RolloutGroup]:
    texts = Sampler(solver).sample(
        [solver_prompt(problem) for problem in problems],
        group_size=samples,
        max_new_tokens=tokens,
        temperature=1.0,
        generator_seed=seed,
    )
    return [RolloutGroup(each, tuple(group), "benchmark", 0, 0) for each, group in zip(problems, texts, strict=True)]


def executed(sandbox: Sandbox, groups: Sequence[RolloutGroup]) -> list[list[Outcome]]:
    """[groups][G]; an attempt without code fails."""
    jobs = [
        [
            None if code is None else Job(code, group.problem.tests, group.problem.style is Style.STDIO)
            for completion in group.completions
            for code in [read_answer(completion.text, group.problem.entry_point).code]
        ]
        for group in groups
    ]
    known = sandbox.run_distinct(job for row in jobs for job in row if job is not None)
    return [[Outcome.FAIL if job is None else known[job].outcome for job in row] for row in jobs]


def problems_of(source: str, rows: str, seed: int) -> list[Problem]:
    """source: a number of held-out embedded problems, or a file, whose unusable rows are left out. rows: A-B of MBPP's
    task_id. Raises ConfigError."""
    if source.isdecimal():
        return held_out(int(source), seed)
    with translated(ConfigError, f"--rows={rows} is no range of task_id, as 601-974 is", ValueError, reason=False):
        first, last = (int(end) for end in rows.split("-")) if rows else (0, sys.maxsize)
    with translated(ConfigError, f"--problems={source} cannot be used", OSError, ValueError):
        with Path(source).open("rb") as file:
            lines = [line for line in json_lines(file, MAX_ROW) if line.strip()]
        if rows:
            lines = [line for line in lines if first <= msgspec.json.decode(line, type=MbppRow).task_id <= last]
    problems, bad = list[Problem](), BadRows()
    for line in lines:
        try:
            problems.append(read_row(line).problem)
        except ProblemError as error:
            bad.add(error)
    if bad.count:
        say(f"{bad.count} rows of {source} are left out: {bad}")
    if not problems:
        raise ConfigError(f"--problems={source} has no usable row" + (f" of --rows={rows}" if rows else ""))
    return problems


def attempts_of(config: NodeConfig, options: argparse.Namespace, stack: ExitStack) -> list[Attempts]:
    """Those of the file, and those that it lacks, which are sampled, executed and added to it."""
    path, known = options.attempts, dict[str, Attempts]()
    if path and path.exists():
        with translated(ConfigError, f"--attempts={path} cannot be used", OSError, ValueError), path.open("rb") as file:
            read = [msgspec.json.decode(line, type=Attempts) for line in json_lines(file, MAX_ROW) if line.strip()]
        if other := [each.solver for each in read if each.solver != config.model.solver]:
            raise ConfigError(
                f"--attempts={path} is of the solver {other[0]}; give another file, or --solver {other[0]}"
            )
        known = {each.problem.id: each for each in read}
    problems = problems_of(options.problems, options.rows, options.seed)
    missing = [problem for problem in problems if problem.id not in known]
    if not missing:
        return [known[problem.id] for problem in problems]
    solver, sandbox = load(config, config.model.solver, "solver", say), build_sandbox(config, stack)
    for start in range(0, len(missing), AT_ONCE):
        say(f"attempting and executing: {start} of {len(missing)} problems")
        some = missing[start : start + AT_ONCE]
        groups = sampled(solver, some, options.samples, options.new_tokens, options.seed + start)
        outcomes = executed(sandbox, groups)
        for group, row in zip(groups, outcomes, strict=True):
            each, texts = group.problem, [completion.text for completion in group.completions]
            passed = [TRUTH[outcome] for outcome in row]
            line = Attempts(each.question, list(each.tests), each.entry_point, texts, passed, config.model.solver)
            known[each.id] = line
            if path:
                with path.open("ab") as file:
                    file.write(msgspec.json.encode(line) + b"\n")
    return [known[problem.id] for problem in problems]


def readable(guard: StaticGuard, attempts: Sequence[Attempts]) -> Iterator[tuple[int, Program, bool]]:
    """(group, program, passed) of the attempts that the static pass leaves to a judge, and that execution decided."""
    for number, each in enumerate(attempts):
        problem = each.problem
        reports = guard.check_many([request(problem, text) for text in each.completions])
        for report, passed in zip(reports, each.passed, strict=True):
            read = program(problem, report)
            if read is not None and passed is not None:
                yield number, read, passed


def over_problems(rows: Sequence[Labelled]) -> list[float] | None:
    """[AUROC, low, high] over all attempts: problems are resampled with theirs, by Rubin's Bayesian bootstrap."""
    numbers, scores, passed = (np.array(column) for column in zip(*rows, strict=True))
    if passed.all() or not passed.any():
        return None
    places, chance = np.unique(scores, return_inverse=True)[1], np.random.default_rng(0)
    areas = list[float]()
    for _ in range(RESAMPLES):
        weights = chance.standard_exponential(int(numbers.max()) + 1)[numbers]
        right, wrong = (np.bincount(places, weights * kind, places.max() + 1) for kind in (passed, ~passed))
        areas.append(float(right @ (np.cumsum(wrong) - wrong / 2) / (right.sum() * wrong.sum())))
    return [auroc(scores, passed), *map(float, np.percentile(areas, [2.5, 97.5]))]


def worth_of(rows: Sequence[Labelled]) -> Report:
    groups: dict[int, list[tuple[float, bool]]] = {}
    for number, score, passed in rows:
        groups.setdefault(number, []).append((score, passed))
    within = within_groups(map(group_order, groups.values()))
    return {
        "over_problems": over_problems(rows) if rows else None,
        "within_groups": within and list(within[:3]),
        "pairs": within.pairs if within else 0,
        "groups": within.groups if within else 0,
        "attempts": len(rows),
    }


def asked(loaded: LoadedModel, guard: StaticGuard, question: str, items: Sequence[tuple[int, Program, bool]]) -> Report:
    """What each score of the question is worth, and the seconds that it takes for each distinct program."""
    judge = LikelihoodJudge(loaded, questions=[question])
    if judge.unused:
        return {"unused": judge.unused}
    reader = with_own_solutions(judge, guard) if question == LIKELIHOOD else judge
    programs = [read for _, read, _ in items]
    began = time.perf_counter()
    readings = reader.read(programs, frozenset(reader.names))
    seconds = (time.perf_counter() - began) / max(1, len(set(programs)))
    scores = {
        name: worth_of(
            [
                (number, score, passed)
                for (number, _, passed), reading in zip(items, readings, strict=True)
                if reading.scores is not None and (score := reading.scores[place]) is not None
            ]
        )
        for place, name in enumerate(reader.names)
    }
    return {"seconds_an_attempt": seconds, "scores": scores}


def skill(options: argparse.Namespace) -> Report:
    config = compose([f"model.solver={json.dumps(options.solver)}", f"evaluator.model={json.dumps(options.judge)}"])
    with ExitStack() as stack:
        attempts = attempts_of(config, options, stack)
        guard = stack.enter_context(StaticGuard())
        items = list(readable(guard, attempts))
        judge = load(config, config.evaluator.model, "judge", say)
        questions: Report = {}
        for question in SCORES:
            say(f"asking {question} about {len(items)} attempts")
            questions[question] = asked(judge, guard, question, items)
    outcomes = [passed for each in attempts for passed in each.passed]
    decided = [passed for passed in outcomes if passed is not None]
    return {
        "solver": options.solver,
        "judge": options.judge,
        "problems": len(attempts),
        "attempts": len(outcomes),
        "undecided": len(outcomes) - len(decided),
        "decided_by_the_static_pass": len(decided) - len(items),
        "passed_share": float(np.mean(decided)) if decided else None,
        "questions": questions,
    }
