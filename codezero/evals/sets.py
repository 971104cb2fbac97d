"""The sets that `codezero eval` knows by name, and a set's tasks out of files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from codezero.errors import ConfigError, ProblemError
from codezero.evals.call_sets import HumanEvalRow, MbppRow, human_eval, mbpp
from codezero.evals.program_sets import CodeforcesRow, LiveCodeBenchRow, codeforces, live_code_bench
from codezero.evals.rows import find_files, read_rows
from codezero.evals.task import EvalTask

HELD_OUT = "synthetic"
"""The held-out problems of the synthetic family, which need no file."""


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A set in the form its authors gave it."""

    row: type[Any]
    read: Callable[[Any], EvalTask | None]
    """None: the row is of another split. Raises ProblemError."""
    published: str
    """Where its files come from."""
    named: bool = True
    """Have its rows names? Where they have none, two tasks may begin alike, and get numbers."""


PUBLISHED = {
    "humaneval": PublishedSet(HumanEvalRow, human_eval, "HumanEval.jsonl.gz of openai/human-eval"),
    "mbpp": PublishedSet(MbppRow, mbpp, "mbpp.jsonl of google-research, or google-research-datasets/mbpp"),
    "livecodebench": PublishedSet(
        LiveCodeBenchRow, live_code_bench, "test.jsonl to test5.jsonl of livecodebench/code_generation_lite"
    ),
    "codeforces": PublishedSet(
        CodeforcesRow, codeforces, "codeforces/ of agentica-org/DeepCoder-Preview-Dataset on the hub", named=False
    ),
}
NAMES = (HELD_OUT, *PUBLISHED)


def find_set(name: str, given: Sequence[Path]) -> list[Path]:
    """The files of a set; none for the held-out one. Raises ConfigError for what cannot be."""
    if name not in NAMES:
        raise ConfigError(f"there is no set {name}; choose one of: {', '.join(NAMES)}")
    if name == HELD_OUT:
        if given:
            raise ConfigError(f"--file: the {HELD_OUT} set needs none; it is made from evals.seed")
        return []
    if not given:
        raise ConfigError(f"{name} is read from a file of this machine; give --file, {PUBLISHED[name].published}")
    missing = next((path for path in given if not path.exists()), None)
    if missing is not None:
        raise ConfigError(f"--file={missing} is not there; give {PUBLISHED[name].published}")
    try:
        return find_files(given)
    except ProblemError as error:
        raise ConfigError(f"--file: {error}") from error


def read_tasks(name: str, files: Sequence[Path]) -> Iterator[EvalTask]:
    """One task at a time. Raises ProblemError that names file and row, also when there is none or a name twice."""
    known = PUBLISHED[name]
    fields = {field.encode_name: field.required for field in msgspec.structs.fields(known.row)}
    names: set[str] = set()
    for where, row in read_rows(files, list(fields)):
        missing = next((field for field, required in fields.items() if required and field not in row), None)
        if missing is not None:
            raise ProblemError(f"{where}: has no field {missing}, so it is no row of {name}")
        try:
            task = known.read(msgspec.convert(row, type=known.row))
        except (msgspec.MsgspecError, ProblemError, RecursionError) as error:
            raise ProblemError(f"{where}: {error}") from error
        if task is None:
            continue
        if not known.named:
            task = replace(task, name=f"{len(names) + 1}: {task.name}")
        elif task.name in names:
            raise ProblemError(f"{where}: a second task called {task.name[:100]}; was a file given twice?")
        names.add(task.name)
        yield task
    if not names:
        raise ProblemError(f"{', '.join(map(str, files))}: no task of {name}'s test split")
