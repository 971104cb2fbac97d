"""Functions of a package as problems: what its docstrings promise, with the function itself as the reference.

Source is read by `ast` and never imported. A problem is a function of a file's top level with a description and two
tests at least: doctests whose value is a literal, and asserts of the package's `test_*.py`. Its reference has what it
uses of its own file, and of the standard library what neither acts on the world nor depends on chance or time."""

import ast
import csv
import doctest
import hashlib
import inspect
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from codezero.code import parsing
from codezero.code.assertions import calls_of
from codezero.code.parsing import BUILTINS, UNPARSEABLE, FunctionNode, called, names_given, names_imported
from codezero.code.scopes import free_names
from codezero.errors import ConfigError, translated
from codezero.models.build import Say
from codezero.problems.filters import FilterRefusal, Screen
from codezero.problems.sources import read_entry
from codezero.sandbox.base import MAX_BYTES, Job, Outcome, Sandbox
from codezero.system.files import read_bounded, replacing
from codezero.system.signals import Share

MAX_FILES, MAX_FILE = 2_000, 1 << 20  # files of a package, and bytes of one
MAX_PROBLEMS = 2_000
MAX_DOCSTRING, MAX_EXAMPLES, MAX_TESTS, MAX_TEST = 20_000, 64, 16, 2_000  # characters of a docstring and of a test
MAX_STATEMENTS = 64  # of a reference
AT_ONCE = 16  # problems whose programs are executed together
EXAM_SHARE = 5  # of so many functions one is the exam's
FIRST_TASK = {"train": 601, "exam": 11}  # task_id: where MBPP's training split begins, and its test split

_LISTED = """
__future__ abc array base64 binascii bisect cmath collections colorsys contextlib copy dataclasses decimal difflib enum
fractions functools hashlib heapq html itertools json keyword math numbers operator re statistics string struct textwrap
types typing unicodedata warnings zlib
| calendar datetime random secrets time uuid zoneinfo
| __builtins__ __import__ breakpoint compile eval exec exit globals help id input locals open print quit vars
"""
PURE, CHANCE, ACTING = (frozenset(part.split()) for part in _LISTED.split("|"))  # modules, modules, builtins
HARMLESS = BUILTINS - ACTING
LARGE = "larger or deeper than the sandbox takes"
ACTS = "acts on the world: files, output, processes"


class PackageOrigin(msgspec.Struct, frozen=True):
    package: str
    version: str = "unknown"
    licence: str = "unknown"


class SourceFile(NamedTuple):
    path: Path
    label: str  # below the package's root
    origin: PackageOrigin

    @property
    def is_test(self) -> bool:
        return not {"test", "tests"}.isdisjoint(Path(self.label).parts) or self.path.name.startswith("test_")


class PackageFunction(NamedTuple):
    file: SourceFile
    name: str
    question: str
    code: str
    tests: tuple[str, ...]
    calls: frozenset[str]  # qualified names of the functions in `code`, its own too

    @property
    def qualified(self) -> str:
        return _qualified(self.file, self.name)

    def in_exam(self, seed: int) -> bool:
        return hashlib.sha256(f"{seed} {self.qualified}".encode()).digest()[0] % EXAM_SHARE == 0

    def programs(self) -> list[Job]:
        """The reference, and stubs that return nothing, the first argument, and the first expected value."""
        expected = next((call.expected for call in calls_of(self.tests, self.name) if call.expected), "None")
        values = ("None", "(*arguments, *named.values(), None)[0]", expected)
        stubs = [f"def {self.name}(*arguments, **named):\n    return {value}" for value in values]
        return [Job(code, self.tests) for code in (self.code, *stubs)]

    def row(self, task: int) -> dict[str, object]:
        """As a row of MBPP, with where it comes from beside."""
        fields = {"task_id": task, "text": self.question, "code": self.code, "test_list": self.tests}
        place = {"entry_point": self.name, "function": self.qualified, "file": self.file.label}
        return {**fields, **place, **msgspec.structs.asdict(self.file.origin)}


def _qualified(file: SourceFile, name: str) -> str:
    return ".".join([*Path(file.label).with_suffix("").parts, name])


def find_sources(name: str) -> list[SourceFile]:
    """The files of an installed distribution, or of a folder. Raises ConfigError."""
    root = Path(os.path.expanduser(name))
    remedy = f"pip install --target DIR {name}, then codezero data from-package DIR"
    missing = f"{name} is neither a folder nor installed here; {remedy}"
    with translated(ConfigError, missing, metadata.PackageNotFoundError, ValueError, OSError, reason=False):
        folder = root.is_dir()
        packages = [*metadata.distributions(path=[str(root)])] if folder else [metadata.distribution(name)]
    with translated(ConfigError, f"the metadata of {name}", OSError, ValueError, TypeError, csv.Error):
        files = {
            Path(str(file.locate())): (str(file), origin)
            for package in packages
            for origin in [_origin(package)]
            for file in package.files or ()
            if file.suffix == ".py" and ".." not in file.parts and not file.is_absolute()
        }
    if folder:
        own = PackageOrigin(root.resolve().name)
        labels = ((path, path.relative_to(root)) for path in root.rglob("*.py") if not path.is_symlink())
        shown = ((path, label) for path, label in labels if not any(part[0] == "." for part in label.parts))
        files = {path: files.get(path, (str(label), own)) for path, label in islice(shown, MAX_FILES + 1)}
    if not 0 < len(files) <= MAX_FILES:
        raise ConfigError(f"{name} has {len(files)} files of Python, not 1 to {MAX_FILES}; name a folder that has")
    return [SourceFile(path, *entry) for path, entry in sorted(files.items())]


def _origin(package: metadata.Distribution) -> PackageOrigin:
    def stated(key: str) -> list[str]:
        values = (value.partition("\n")[0].strip() for value in package.metadata.get_all(key) or ())
        return ["".join(filter(str.isprintable, value))[:200] for value in values if value]

    kinds = [value.rpartition(":: ")[2] for value in stated("Classifier") if value.startswith("License ::")]
    licences = [*stated("License-Expression"), *kinds, *stated("License")]
    values = (stated("Name"), stated("Version"), licences)
    return PackageOrigin(*(next(iter(each), "unknown") for each in values))


class _Bare(ast.NodeTransformer):
    """Takes annotations and docstrings away: neither is part of what a function computes."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # pyright: ignore[reportAssignmentType]


class _Statement:
    """One of a file's top level, or of a docstring's examples. What takes time to know is found once."""

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        named = isinstance(node, FunctionNode | ast.ClassDef)
        self.binds = {node.name} if named else names_given(node) | names_imported(node)

    @cached_property
    def bare(self) -> ast.stmt:
        return _Bare().visit(self.node)

    @cached_property
    def free(self) -> set[str]:
        return free_names(ast.Module([self.bare], []))

    @cached_property
    def text(self) -> str:
        return ast.unparse(self.bare)

    @cached_property
    def impurity(self) -> str:
        """Why it imports what no reference may, or nothing."""
        for node in ast.walk(self.bare):
            if isinstance(node, ast.Import | ast.ImportFrom):
                source = getattr(node, "module", None)
                roots = {name.partition(".")[0] for name in [source or alias.name for alias in node.names]}
                if getattr(node, "level", 0) or not roots <= sys.stdlib_module_names:
                    return "needs another package, or another file of this one"
                if not roots <= PURE:
                    return "depends on chance or time" if roots & CHANCE else ACTS
        return ""


class _File:
    """The top level of a file, and which of its statements bind a name."""

    def __init__(self, tree: ast.Module) -> None:
        self.statements = list[_Statement]()
        for node in tree.body:  # an import of several names as one of each, so that a reference has what it uses
            match node:
                case ast.Import(names=names):
                    self.statements += [_Statement(ast.Import([alias])) for alias in names]
                case ast.ImportFrom(module=module, names=names, level=level):
                    self.statements += [_Statement(ast.ImportFrom(module, [alias], level)) for alias in names]
                case _:
                    self.statements.append(_Statement(node))
        self.binders, self.imports = defaultdict[str, list[int]](list), dict[str, _Statement]()
        for place, statement in enumerate(self.statements):
            for name in statement.binds:
                self.binders[name].append(place)
                self.imports |= {name: statement} if isinstance(statement.node, ast.Import | ast.ImportFrom) else {}

    def closure(self, name: str) -> tuple[list[_Statement], str]:
        """Collect what a function uses of its file, in its order; and why that cannot be a reference, or nothing."""
        chosen, waiting, free = set[int](), [name], set[str]()
        while waiting and len(chosen) <= MAX_STATEMENTS:
            for place in self.binders.get(waiting.pop(), [])[: MAX_STATEMENTS + 1]:
                if place not in chosen:
                    chosen.add(place)
                    free |= self.statements[place].free
                    waiting += self.statements[place].free
        statements = [self.statements[place] for place in sorted(chosen)]
        if len(chosen) > MAX_STATEMENTS or sum(len(statement.text) for statement in statements) > MAX_BYTES:
            return [], LARGE
        reasons = [statement.impurity for statement in statements]
        free -= self.binders.keys()
        reasons += [ACTS] if free & ACTING else ["uses a name that its file does not define"] if free - BUILTINS else []
        return statements, next(filter(None, reasons), "")

    def doctests(self, examples: Iterable[doctest.Example], name: str) -> Iterator[str]:
        """Yield an assert for each example of `name` that shows a literal, after what binds the names in it."""
        before, known = list[_Statement](), HARMLESS - self.binders.keys()
        for example in examples:
            tree, value = parsing.parse(example.source)[0], parsing.parse(example.want)[0]
            match tree and tree.body, value and value.body:
                case [ast.Expr(value=call)], [ast.Expr(value=wanted)] if not _unknown(wanted):
                    claim = _Statement(ast.Assert(ast.Compare(call, [ast.Eq()], [wanted])))
                    setup, missing = [claim], claim.free - known
                    for statement in reversed(before):
                        if missing & statement.binds:
                            setup.insert(0, statement)
                            missing = (missing - statement.binds) | (statement.free - known)
                    setup[:0] = [self.imports[each] for each in sorted(missing & self.imports.keys())]
                    calls = any(called(node) == name for each in setup for node in ast.walk(each.node))
                    if calls and missing - self.imports.keys() == {name} and not any(each.impurity for each in setup):
                        yield "\n".join(each.text for each in setup)
                case [ast.Assign() | ast.Import() | ast.ImportFrom() | ast.FunctionDef() as node], []:
                    before += [statement] if name not in (statement := _Statement(node)).binds else []
                case _:
                    pass


def _unknown(value: ast.expr) -> bool:
    """Is it no literal, or one with an ellipsis, which stands for anything?"""
    return "..." in (parsing.literal(value) or "...")


def _documented(docstring: str) -> tuple[str, list[doctest.Example]]:
    """Divide a docstring into prose and examples."""
    try:
        parts = doctest.DocTestParser().parse(docstring if len(docstring) <= MAX_DOCSTRING else "")
    except ValueError:  # an example that is not indented as it should be
        return "", []
    prose = inspect.cleandoc("".join(part for part in parts if isinstance(part, str)))
    examples = [part for part in parts if isinstance(part, doctest.Example)]
    return re.sub(r"\n\s*\n", "\n\n", prose).strip(), examples[:MAX_EXAMPLES]


def _asserts(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what is asserted of one function and builtins alone: the function's name, and the assert."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            claim = _Statement(ast.Assert(node.test))
            names = claim.free - HARMLESS
            if len(names) == 1 and any(called(part) in names for part in ast.walk(node)):
                yield names.pop(), claim.text


def _functions(file: SourceFile, tree: ast.Module, asserts: Mapping[str, list[str]]) -> Iterator[PackageFunction | str]:
    """Yield the functions of a file; in the place of one that is no problem the reason."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    others = [node for owner in classes for node in owner.body if isinstance(node, FunctionNode)]
    others += [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef)]
    yield from ["method or coroutine"] * len(others)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    documented = {name: _documented(ast.get_docstring(node) or "") for name, node in functions.items()}
    content = _File(tree)
    for name, node in functions.items():
        prose, examples = documented[name]
        try:
            written = dict.fromkeys([*content.doctests(examples, name), *asserts.get(name, ())])
            tests = tuple(test for test in written if len(test) <= MAX_TEST)[:MAX_TESTS]
            statements, reason = (
                content.closure(name) if len(tests) > 1 else ([], "fewer than two tests with literal values")
            )
            code = ast.unparse(ast.Module([statement.bare for statement in statements], []))
            question = f"Write a function {name}({ast.unparse(node.args)}).\n\n{prose}"
        except UNPARSEABLE:
            yield LARGE
            continue
        if reason or not prose:
            yield reason or "no description"
        else:
            helpers = [each.node.name for each in statements if isinstance(each.node, ast.FunctionDef)]
            calls = frozenset(_qualified(file, helper) for helper in helpers)
            yield PackageFunction(file, name, question, code, tests, calls)


def read_package(sources: Sequence[SourceFile], say: Say) -> tuple[list[PackageFunction], Counter[str], int]:
    """Functions that may become problems; how many others have which reason; how many files cannot be read. Raises
    ConfigError for more than MAX_PROBLEMS."""
    asserts, functions, left_out = defaultdict[str, list[str]](list), list[PackageFunction](), Counter[str]()
    unread = 0
    for number, file in enumerate(sorted(sources, key=lambda file: not file.is_test)):  # asserts before functions
        say(Share("reading files", number, len(sources)))
        try:
            tree = parsing.parse_quietly(read_bounded(file.path, MAX_FILE).decode("utf-8-sig"))
            if file.is_test:
                for name, text in _asserts(tree):
                    asserts[name] += [text] if len(asserts[name]) < MAX_TESTS else []
                continue
            for entry in _functions(file, tree, asserts):
                if isinstance(entry, str):
                    left_out[entry] += 1
                else:
                    functions.append(entry)
        except (OSError, *UNPARSEABLE):
            unread += 1
        if len(functions) > MAX_PROBLEMS:
            raise ConfigError(f"more than {MAX_PROBLEMS} functions have tests; name a folder with fewer")
    return functions, left_out, unread


def prove(
    functions: Sequence[PackageFunction], sandbox: Sandbox, screen: Screen, seed: int, say: Say
) -> tuple[dict[str, list[dict[str, object]]], Counter[str]]:
    """Rows for training and for the exam, of functions that pass their tests where no stub does; why others are none.
    Raises SandboxError."""
    left_out = Counter[str]()
    rows: dict[str, list[dict[str, object]]] = {"train": [], "exam": []}
    exam = {function.qualified for function in functions if function.in_exam(seed)}
    for start in range(0, len(functions), AT_ONCE):
        say(Share("executing functions, and stubs of them", start, len(functions)))
        batch = [(function, function.programs()) for function in functions[start : start + AT_ONCE]]
        ran = sandbox.run_distinct(job for _, programs in batch for job in programs)
        for function, programs in batch:
            reference, *stubs = [ran[job].outcome for job in programs]
            split = "exam" if function.qualified in exam else "train"
            row = function.row(FIRST_TASK[split] + len(rows[split]))
            if reference is not Outcome.PASS:
                left_out[
                    "fails its own tests" if reference is Outcome.FAIL else "the sandbox cannot decide its tests"
                ] += 1
            elif Outcome.PASS in stubs:
                left_out["a stub passes its tests"] += 1
            elif split == "train" and function.calls & exam:
                left_out["contains a function of the exam"] += 1
            elif refusal := entry if isinstance(entry := read_entry(row), FilterRefusal) else screen.refuse(entry):
                left_out[refusal.reason] += 1
            else:
                rows[split].append(row)
    return rows, left_out


def write_rows(rows: Mapping[str, Sequence[object]], into: Path) -> None:
    """Write a file for each of `rows`, all or none. Raises ConfigError."""
    with translated(ConfigError, f"--into={into} cannot be written", OSError), ExitStack() as stack:
        into.mkdir(parents=True, exist_ok=True)
        for name, entries in rows.items():
            file = stack.enter_context(replacing(into / f"{name}.jsonl"))
            file.writelines(msgspec.json.encode(entry) + b"\n" for entry in entries)
