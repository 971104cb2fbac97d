"""`codezero judge FILE.jsonl`: verdicts on attempts that are already written, and, on demand, what running shows.

A line in holds a problem and its completions; a line out holds their verdicts. Lines are bounded and checked one by
one; the first that cannot be used ends the command with its number and what is wrong with it.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Annotated, cast

import msgspec
from msgspec import Meta

from codezero.code.answer import read_answer
from codezero.code.assertions import as_problem
from codezero.config import NodeConfig
from codezero.errors import ConfigError, ProblemError
from codezero.monitor.text import count
from codezero.monitor.verdict_card import JudgedProblem
from codezero.problems.dedup import Novelty
from codezero.sandbox.base import Execution, Job, Outcome, Sandbox
from codezero.system.lines import json_lines
from codezero.types import Completion, Metrics, RolloutGroup, Style
from codezero.wiring.evaluator import build_canaries, build_evaluator, build_sandbox

MAX_LINE = 8 << 20
"""Bytes."""
AT_ONCE = 16
"""Lines judged together."""
NO_CODE = Execution(Outcome.FAIL, "no code that could be run")

_Text = Annotated[str, Meta(max_length=1 << 18)]


class Line(msgspec.Struct, frozen=True):
    """One line of the file; fields beside these are ignored."""

    question: Annotated[_Text, Meta(min_length=1)]
    tests: Annotated[list[_Text], Meta(min_length=1, max_length=200)]
    completions: Annotated[list[_Text], Meta(max_length=1024)]
    entry_point: Annotated[str, Meta(max_length=128)] | None = None
    """Read off the tests when it is missing; empty: the program reads stdin and writes stdout."""
    level: Annotated[int, Meta(ge=1, le=5)] | None = None


def judge_groups(
    config: NodeConfig, groups: Iterator[RolloutGroup], *, audit: bool, say: Callable[[str], None]
) -> Iterator[tuple[JudgedProblem, Metrics]]:
    """Each group with its verdicts, and how far the judge can be believed.

    audit: execute every attempt, beside the verdict and never in it. Raises SandboxError, and what `groups` and
    `build_evaluator` raise.
    """
    with contextlib.ExitStack() as stack:
        first = list(islice(groups, 1))  # a wrong file is known before a judge is loaded
        canaries = build_canaries(config, Novelty(), stack, say)
        evaluator = build_evaluator(config, canaries, stack, say)
        family = None if config.reward.mode == "rlvr" else canaries
        sandbox = build_sandbox(config, stack) if audit else None
        known = evaluator.metrics() | {"judge/calibrated_on": family and family.name}
        done, batch = 0, [*first, *islice(groups, AT_ONCE - 1)]
        while batch:
            say(f"judging {count(len(batch), 'problem')}, {done} are done")
            for scored in evaluator.score(batch):
                executed = None if sandbox is None else _execute(sandbox, scored.group, config.answer.block)
                same = family is None or family.cover(scored.group.problem)
                yield JudgedProblem(scored, executed, same_family=same), known
            done += len(batch)
            batch = list(islice(groups, AT_ONCE))


def read_groups(file: Path) -> Iterator[RolloutGroup]:
    """A group per line of `file` (`-`: stdin).

    Raises ConfigError for a file that cannot be read, ProblemError that names the line.
    """
    number = 0
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
            lines = json_lines(cast(BufferedReader, stream), MAX_LINE)
            for number, line in enumerate(lines, 1):  # noqa: B007
                if line.strip():
                    yield read_group(line)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except (ProblemError, ValueError) as error:
        raise ProblemError(f"{file}, line {number}: {error}") from error


def read_group(line: bytes) -> RolloutGroup:
    """One line. Raises ProblemError that says which field is wrong."""
    if len(line) > MAX_LINE:
        raise ProblemError(f"longer than {MAX_LINE >> 20} MiB")
    try:
        read = msgspec.json.decode(line, type=Line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ProblemError(str(error)) from error
    problem = as_problem(read.question, read.tests, read.entry_point, read.level)
    completions = tuple(Completion(text, (), (), finished=True) for text in read.completions)
    return RolloutGroup(problem, completions, peer_id="file", round=0, policy_step=0)


def _execute(sandbox: Sandbox, group: RolloutGroup, block: str) -> tuple[Execution, ...]:
    """An attempt without code fails without being run."""
    problem = group.problem
    codes = [read_answer(completion.text, problem.entry_point, block).code for completion in group.completions]
    jobs = [None if code is None else Job(code, problem.tests, problem.style is Style.STDIO) for code in codes]
    executed = sandbox.run_distinct(job for job in jobs if job is not None)
    return tuple(NO_CODE if job is None else executed[job] for job in jobs)
