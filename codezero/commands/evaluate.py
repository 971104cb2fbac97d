"""`codezero judge FILE.jsonl`: verdicts on attempts that are already written, and, on demand, what running shows.

A line in holds a problem and its completions; a line out holds their verdicts. All lines are bounded, read and checked
before the first is judged, and those that cannot be used are named.
"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import msgspec
from msgspec import Meta

from codezero.code.answer import read_answer
from codezero.code.assertions import as_problem
from codezero.config import NodeConfig
from codezero.errors import ConfigError, ProblemError, translated
from codezero.monitor.verdict_card import JudgedProblem
from codezero.problems.dedup import Novelty
from codezero.sandbox.base import Execution, Job, Outcome, Sandbox
from codezero.system.lines import BadRows, decode_row, json_lines, refuse
from codezero.system.signals import Share
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
    config: NodeConfig, groups: Iterator[RolloutGroup], *, audit: bool, say: Callable[[str], None], of: int = 0
) -> Iterator[tuple[JudgedProblem, Metrics]]:
    """Each group with its verdicts, and how far the judge can be believed.

    audit: execute every attempt, beside the verdict and never in it. of: how many groups there are.
    Raises SandboxError, and what `groups` and `build_evaluator` raise.
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
            say(Share("judging", done, of, " problems") if of else "judging")
            for scored in evaluator.score(batch):
                executed = None if sandbox is None else _execute(sandbox, scored.group, config.answer.block)
                same = family is None or family.cover(scored.group.problem)
                yield JudgedProblem(scored, executed, same_family=same), known
            done += len(batch)
            batch = list(islice(groups, AT_ONCE))


def read_groups(file: Path, bad: BadRows | None = None, stream: BinaryIO | None = None) -> Iterator[RolloutGroup]:
    """A group per line of `file`, or of `stream` instead, which then only has its name.

    bad: takes lines that cannot be used; None: the first of them is raised. Raises ConfigError for a file that cannot
    be read, ProblemError that names the line.
    """
    number = 0
    try:
        with contextlib.nullcontext(stream) if stream else file.open("rb") as opened:
            lines = json_lines(cast(BufferedReader, opened), MAX_LINE)
            for number, line in enumerate(lines, 1):
                try:
                    group = read_group(line) if line.strip() else None
                except ProblemError as error:
                    refuse(ProblemError(f"{file}, line {number}: {error}"), bad)
                    continue
                if group is not None:
                    yield group
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except ProblemError:
        raise
    except ValueError as error:
        raise ProblemError(f"{file}, line {number}: {error}") from error


def checked_groups(file: Path, skip_bad: bool, stack: contextlib.ExitStack) -> tuple[Iterator[RolloutGroup], int, int]:
    """(groups, their number, lines that are left out) of `file` (`-`: stdin), all of which has been read.

    What can be read but once is kept in a file meanwhile. Raises as `read_groups`, and ProblemError for bad lines.
    """
    bad, stream = BadRows(), None
    if str(file) == "-" or not file.is_file():
        stream = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        with (
            translated(ConfigError, f"{file} cannot be read", OSError),
            contextlib.nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as given,
        ):
            shutil.copyfileobj(given, stream)
        stream.seek(0)
    count = sum(1 for _ in read_groups(file, bad, stream))
    bad.refuse(skip_bad)
    if stream:
        stream.seek(0)
    return read_groups(file, BadRows(), stream), count, bad.count


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


def _execute(sandbox: Sandbox, group: RolloutGroup, block: str) -> tuple[Execution, ...]:
    """An attempt without code fails without being run."""
    problem = group.problem
    codes = [read_answer(completion.text, problem.entry_point, block).code for completion in group.completions]
    jobs = [None if code is None else Job(code, problem.tests, problem.style is Style.STDIO) for code in codes]
    executed = sandbox.run_distinct(job for job in jobs if job is not None)
    return tuple(NO_CODE if job is None else executed[job] for job in jobs)
