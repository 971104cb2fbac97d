"""One task of an exam: what is asked, how an answer becomes a program, and the tests that the program has to pass.

Whatever a set calls an answer (a function, a class, a program), its tests have one of the sandbox's two forms.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from codezero.code.answer import METHOD_CLASS
from codezero.sandbox.base import Job
from codezero.types import Problem

JOB_TESTS = 5
"""Tests of one job. The sandbox runs at most MAX_CASES of a program and says nothing of the others."""
JOB_CHARACTERS = 12_000
"""Characters of the assertions of one job, unless a single one is longer; the sandbox takes 16 KiB."""

IMPORTS = {
    "typing": ("Any", "Callable", "Dict", "Iterable", "List", "Optional", "Set", "Tuple", "Union"),
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque"),
    "functools": ("cache", "cmp_to_key", "lru_cache", "reduce"),
    "itertools": ("accumulate", "combinations", "pairwise", "permutations", "product"),
    "heapq": ("heapify", "heappop", "heappush"),
    "bisect": ("bisect_left", "bisect_right"),
    "math": ("ceil", "comb", "floor", "gcd", "inf", "isqrt", "sqrt"),
}
"""Names that a site which runs answers has imported beforehand, by module. Modules themselves are in MODULES."""
MODULES = ("bisect", "collections", "functools", "heapq", "itertools", "math", "random", "re", "string")
_WORD = re.compile(r"(?<![.\w])[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class EvalTask:
    """One problem of a set, ready to be asked and examined."""

    name: str
    """As the set calls it."""
    prompt: str
    """The user's turn."""
    tests: tuple[str, ...]
    """Assertions, or `{"input": .., "output": ..}` of a program that reads stdin."""
    entry_point: str = ""
    """The function that the assertions call; empty: the program reads stdin and writes stdout."""
    before: str = ""
    """Source that stands before every answer."""
    after: str = ""
    """Source that stands after every answer."""
    imports: bool = False
    """Are well-known names imported for an answer that uses them? Sites with a class to fill in do so."""
    level: int | None = None
    """Difficulty 1..5 where the set has one."""
    source: Problem | None = None
    """What the judge is shown; None: the prompt and the tests."""

    @property
    def stdio(self) -> bool:
        return not self.entry_point

    @property
    def defines(self) -> str:
        """What an answer has to define; empty: it is a whole program."""
        return METHOD_CLASS if self.after else self.entry_point


def task_of(problem: Problem, prompt: Callable[[Problem], str]) -> EvalTask:
    """A problem as it is asked in training."""
    entry, level = problem.entry_point, problem.level
    return EvalTask(problem.id, prompt(problem), problem.tests, entry, level=level, source=problem)


def program(task: EvalTask, answer: str) -> str:
    """The answer as it is run and judged."""
    known = well_known_imports(answer) if task.imports else ""
    return "\n".join(part for part in (known, task.before, answer, task.after) if part)


def well_known_imports(code: str) -> str:
    """An import for each name of IMPORTS and MODULES that stands in `code`; one that it defines itself wins later."""
    words = set(_WORD.findall(code))
    lines = [f"import {name}" for name in MODULES if name in words]
    lines += [f"from {home} import {name}" for home, names in IMPORTS.items() for name in names if name in words]
    return "\n".join(lines)


def jobs(task: EvalTask, answer: str) -> list[Job]:
    """All of a task's tests, in jobs that the sandbox takes whole. In order, so that a failure early ends it early."""
    code = program(task, answer)
    parts: list[list[str]] = [[]]
    for test in task.tests:
        long = not task.stdio and parts[-1] and sum(map(len, parts[-1])) + len(test) > JOB_CHARACTERS
        if long or len(parts[-1]) == JOB_TESTS:
            parts.append([])
        parts[-1].append(test)
    return [Job(code, tuple(part), task.stdio) for part in parts if part]
