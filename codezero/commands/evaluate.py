"""`codezero evaluate FILE.jsonl`: verdicts on attempts that are already written, and, on demand, what running shows.

A line in holds a problem and its completions; a line out holds their verdicts. Lines are bounded and checked one by
one; the first that cannot be used ends the command with its number and what is wrong with it.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.assertions import parse_cases, parse_tests
from codezero.code.entry_point import AnswerCode, read_answer
from codezero.code.parsing import fence
from codezero.config import NodeConfig, RewardConfig
from codezero.errors import ConfigError, ProblemError
from codezero.evaluator.reward import without_format
from codezero.monitor.verdict_card import JudgedProblem
from codezero.protocols import Evaluator
from codezero.sandbox.base import Execution, Job, Outcome, Sandbox
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Source, Style, problem_id
from codezero.wiring.evaluator import CalibrationFamily, build_evaluator, calibration_family
from codezero.wiring.models import load_judge

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


@dataclass(frozen=True, slots=True)
class Bench:
    """What marks attempts."""

    evaluator: Evaluator
    sandbox: Sandbox | None
    """Executes every attempt, beside the verdict and never in it; None without the audit."""
    family: CalibrationFamily | None
    """Of the problems on which the judge was calibrated; None where there is no judge."""
    weights: RewardConfig

    def mark(self, groups: Sequence[RolloutGroup]) -> list[JudgedProblem]:
        """In order. Raises EvaluatorError and SandboxError."""
        answers = [[read_answer(one.text, group.problem.entry_point) for one in group.completions] for group in groups]
        fenced = [
            replace(
                group,
                completions=tuple(
                    replace(completion, text=fence(answer.code)) if answer.flaw and answer.code else completion
                    for completion, answer in zip(group.completions, read, strict=True)
                ),
            )
            for group, read in zip(groups, answers, strict=True)
        ]
        return [self._marked(scored, read) for scored, read in zip(self.evaluator.score(fenced), answers, strict=True)]

    def metrics(self) -> Metrics:
        """The judge's own, and the family that it was calibrated on."""
        return self.evaluator.metrics() | {"judge/calibrated_on": None if self.family is None else self.family.name}

    def _marked(self, scored: ScoredGroup, answers: Sequence[AnswerCode]) -> JudgedProblem:
        verdicts = tuple(
            without_format(verdict, answer.flaw, self.weights) if answer.flaw else verdict
            for verdict, answer in zip(scored.verdicts, answers, strict=True)
        )
        problem = scored.group.problem
        return JudgedProblem(
            ScoredGroup(scored.group, verdicts),
            None if self.sandbox is None else _execute(self.sandbox, problem, answers),
            same_family=self.family is None or self.family.holds(problem),
        )


def evaluate(
    config: NodeConfig, file: Path, *, audit: bool, say: Callable[[str], None]
) -> Iterator[tuple[JudgedProblem, Metrics]]:
    """Each line of `file` (`-`: stdin) with its verdicts, and how far the judge can be believed.

    Raises ConfigError for a file that cannot be opened, ProblemError for a line that cannot be used, and what building
    the evaluator raises.
    """
    with contextlib.ExitStack() as stack:
        groups = read_groups(stack, file)
        first = list(islice(groups, 1))  # a wrong file is known before a model is loaded
        bench = build_bench(config, stack, say, audit=audit)
        known = bench.metrics()
        done = 0
        batch = [*first, *islice(groups, AT_ONCE - 1)]
        while batch:
            say(f"judging line {done + 1} to {done + len(batch)}")
            for marked in bench.mark(batch):
                yield marked, known
            done += len(batch)
            batch = list(islice(groups, AT_ONCE))


def build_bench(config: NodeConfig, stack: contextlib.ExitStack, say: Callable[[str], None], *, audit: bool) -> Bench:
    evaluator = build_evaluator(config, stack, say, lambda: load_judge(config, say))
    family = None if config.reward.mode == "rlvr" else calibration_family(config.evaluator)
    if not audit:
        return Bench(evaluator, None, family, config.reward)
    from codezero.sandbox.bubblewrap import open_sandbox

    return Bench(evaluator, stack.enter_context(open_sandbox(config.audit.sandbox)), family, config.reward)


def read_groups(stack: contextlib.ExitStack, file: Path) -> Iterator[RolloutGroup]:
    """A group per line. The file is opened at once: raises ConfigError. Lines raise ProblemError as they come."""
    if str(file) == "-":
        stream = sys.stdin.buffer
    else:
        try:
            stream = stack.enter_context(file.open("rb"))
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error

    def groups() -> Iterator[RolloutGroup]:
        for number, line in enumerate(iter(lambda: stream.readline(MAX_LINE + 1), b""), 1):
            if line.strip():
                try:
                    yield read_group(line)
                except ProblemError as error:
                    raise ProblemError(f"{file}, line {number}: {error}") from error

    return groups()


def read_group(line: bytes) -> RolloutGroup:
    """One line. Raises ProblemError that says which field is wrong."""
    if len(line) > MAX_LINE:
        raise ProblemError(f"longer than {MAX_LINE >> 20} MiB")
    try:
        read = msgspec.json.decode(line, type=Line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ProblemError(str(error)) from error
    tests = tuple(read.tests)
    if read.entry_point == "":
        parse_cases(tests)
    entry = parse_tests(tests, read.entry_point).entry_point if read.entry_point != "" else ""
    source = Source.MBPP if entry else Source.CODE_CONTESTS
    problem = Problem(problem_id(read.question, tests), read.question, tests, entry, source, level=read.level)
    completions = tuple(Completion(text, (), (), finished=True) for text in read.completions)
    return RolloutGroup(problem, completions, peer_id="file", round=0, policy_step=0)


def _execute(sandbox: Sandbox, problem: Problem, answers: Sequence[AnswerCode]) -> tuple[Execution, ...]:
    """An attempt without code fails without being run."""
    codes = [answer.code for answer in answers]
    jobs = {code: Job(code, problem.tests, problem.style is Style.STDIO) for code in codes if code is not None}
    executed = dict(zip(jobs, sandbox.run_many(list(jobs.values())), strict=True))
    return tuple(NO_CODE if code is None else executed[code] for code in codes)
