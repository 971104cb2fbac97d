"""One task of an exam: what is asked, how an answer becomes a program, and the tests that the program has to pass.

Whatever a set calls an answer (a function, a class, a program), its tests have one of the sandbox's two forms."""

import ast
import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from codezero.code.answer import METHOD_CLASS
from codezero.code.parsing import names_loaded, parse
from codezero.code.scopes import free_names
from codezero.sandbox.base import Job
from codezero.types import Problem

JOB_TESTS = 5  # tests of one job; a failure in one spares the others
JOB_CHARACTERS = 12_000  # of the assertions of one job, unless a single one is longer; the sandbox takes 16 KiB

_STARRED = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics"),
    *("itertools", "functools", "operator", "io", "sys", "json"),
)
PRELUDES: dict[str, tuple[str, ...]] = {
    "none": (),
    "typing": ("typing *",),
    "livecodebench": (*(f"{name} *" for name in (*_STARRED, "builtins", "typing")), *_STARRED),
}
"""Imports of a harness before an answer: modules, and where a star follows all of their names. `typing` is MapCoder's
(func_evaluate.py); LiveCodeBench's is that of its testing_util.py."""
# limits that it sets
LIMITS = {"livecodebench": "import sys\nsys.setrecursionlimit(50000)\nsys.set_int_max_str_digits(50000)"}


@dataclass(frozen=True, slots=True)
class EvalTask:
    name: str  # as the set calls it
    prompt: str  # the user's turn
    tests: tuple[str, ...]  # assertions, or `{"input": .., "output": ..}` of a program that reads stdin
    entry_point: str = ""  # the function that the tests call; empty: the program reads stdin and writes stdout
    before: str = ""  # source that stands before every answer
    after: str = ""  # source that stands after every answer
    prelude: str = "none"  # one of PRELUDES, before every answer
    compared: str = "words"  # how what a program prints is compared: one of the sandbox's SAME
    reference: str = ""  # a program whose output is the one that is wanted; of an answer what it needs is run alone
    base: int = 0  # how many tests, the first ones, have a figure of their own
    level: int | None = None  # difficulty 1..5 where the set has one
    source: Problem | None = None  # what the judge is shown; None: the prompt and the tests

    @property
    def stdio(self) -> bool:
        return not self.entry_point or bool(self.after)

    @property
    def defines(self) -> str:
        """The name that an answer has to define; empty: it is a whole program."""
        return self.entry_point or (METHOD_CLASS if self.after else "")


def task_of(problem: Problem, prompt: Callable[[Problem], str]) -> EvalTask:
    entry, level = problem.entry_point, problem.level
    return EvalTask(problem.id, prompt(problem), problem.tests, entry, level=level, source=problem)


def program(task: EvalTask, answer: str) -> str:
    answer = sanitized(answer, task.entry_point) if task.reference else answer
    return "\n".join(part for part in (imported_by(task.prelude, answer), task.before, answer, task.after) if part)


def sanitized(code: str, entry: str) -> str:
    """Cut an answer as EvalPlus does: imports, and the first definition of each name that `entry` needs. Other
    statements, what is decorated, and functions that return nothing are dropped."""
    tree = parse(code)[0] or ast.Module([], [])
    imports, defined = list[ast.stmt](), dict[str, ast.stmt]()
    for node in tree.body:
        match node:
            case ast.Import() | ast.ImportFrom():
                imports.append(node)
            case ast.FunctionDef(name=name, decorator_list=[]) | ast.AsyncFunctionDef(name=name, decorator_list=[]):
                if any(isinstance(part, ast.Return) for part in ast.walk(node)):
                    defined.setdefault(name, node)
            case (
                ast.ClassDef(name=name, decorator_list=[])
                | ast.Assign(targets=[ast.Name(id=name), *_])
                | ast.AnnAssign(target=ast.Name(id=name))
            ):
                defined.setdefault(name, node)
            case _:
                pass
    needed, waiting = set[str](), [entry]
    while waiting:
        if (name := waiting.pop()) not in needed and name in defined:
            needed.add(name)
            parts = ast.walk(defined[name])
            waiting += [str(getattr(part, field, "")) for part in parts for field in ("id", "attr", "arg", "name")]
    kept = [*imports, *(node for name, node in defined.items() if name in needed)]
    return "\n".join(ast.get_source_segment(code, node) or "" for node in kept) or code


def imported_by(prelude: str, code: str) -> str:
    """An import for each name of the prelude that `code` uses and does not bind: as good as all, and quicker."""
    tree = parse(code)[0] or ast.Module([], [])
    annotations = (getattr(node, field, None) for node in ast.walk(tree) for field in ("annotation", "returns"))
    used = free_names(tree) | names_loaded(*(node for node in annotations if node is not None))
    lines = [line for name, line in _names(prelude).items() if name in used]
    return "\n".join(([LIMITS[prelude]] if prelude in LIMITS else []) + lines)


@functools.cache
def _names(prelude: str) -> dict[str, str]:
    """The import that binds each name, the last one that does."""
    names: dict[str, str] = {}
    for entry in PRELUDES[prelude]:
        module, *star = entry.split()
        if not star:
            names[module] = f"import {module}"
            continue
        held = importlib.import_module(module)
        public = getattr(held, "__all__", None) or [name for name in vars(held) if not name.startswith("_")]
        if module == "builtins":  # they hide again what hid them
            names = {name: line for name, line in names.items() if name not in public}
        else:
            names |= {name: f"from {module} import {name}" for name in public}
    return names


def jobs(task: EvalTask, answer: str) -> list[Job]:
    """All of a task's tests, in jobs that the sandbox takes whole. In order, so that a failure early ends it early."""
    code = program(task, answer)
    parts: list[list[str]] = [[]]
    for test in task.tests:
        long = not task.stdio and parts[-1] and sum(map(len, parts[-1])) + len(test) > JOB_CHARACTERS
        if long or len(parts[-1]) == JOB_TESTS:
            parts.append([])
        parts[-1].append(test)
    main, compared, reference = not task.after, task.compared, task.reference
    return [Job(code, tuple(part), task.stdio, main, compared, reference) for part in parts if part]
