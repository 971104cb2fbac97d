"""`codezero data from-package`: functions of a package become problems, and none of its source is imported."""

import json
from pathlib import Path
from typing import Any

import pytest

from codezero.cli import main
from codezero.errors import ConfigError
from codezero.problems import functions
from codezero.problems.functions import find_sources, read_package
from codezero.problems.rows import read_row

MODULE = '''
"""A module."""
import os, math
from itertools import chain, count
from collections.abc import Iterable
import numpy as np
from . import other

raise SystemExit("imported")

LIMIT: int = 10

def _cut(number: int) -> int:
    """Helper."""
    return min(number, LIMIT)

def capped(number: Iterable[int], factor: "float" = 1):
    """Multiply a number, up to ten.

    >>> capped(2, 3)
    6
    >>> capped(9, 3)
    10
    """
    # a comment
    return _cut(number * factor)

def joined(*parts):
    """Join the parts to one list.

    >>> first = [1, 2]
    >>> joined(first, [3])
    [1, 2, 3]
    >>> joined(chain([1], [2]), ())
    [1, 2]
    >>> joined(3)
    Traceback (most recent call last):
    TypeError: 'int' object is not iterable
    >>> print(joined())
    []
    >>> joined([...])
    [...]
    """
    return list(chain.from_iterable(parts))

def wrong(x):
    """Double it.

    >>> wrong(1)
    2
    >>> wrong(2)
    5
    """
    return 2 * x

def constant(x):
    """Say yes.

    >>> constant(1)
    True
    >>> constant(2)
    True
    """
    return True

def stored(name):
    """Read a file.

    >>> stored('a')
    1
    >>> stored('b')
    2
    """
    return len(open(name).read())

def removed(name):
    """Remove a file.

    >>> removed('a')
    1
    >>> removed('b')
    2
    """
    return os.remove(name)

def summed(x):
    """Sum by another package.

    >>> summed([1])
    1
    >>> summed([2])
    2
    """
    return np.sum(x)

def lost(x):
    """Use a name from nowhere.

    >>> lost(1)
    1
    >>> lost(2)
    2
    """
    return nowhere(x)

def silent(x):
    """
    >>> silent(1)
    1
    >>> silent(2)
    4
    """
    return x * x

def asserted(input):
    """Square it; its parameter shadows a builtin."""
    return input * input

class Owner:
    def method(self):
        """
        >>> method(1)
        1
        """
async def coroutine(): ...
'''
TESTS = """
import shop
def test_asserted():
    assert asserted(3) == 9, "message"
    assert list(map(asserted, [1])) == [1]
    assert asserted(4) == 16
    assert asserted(other(4)) == 16
    assert asserted(len(open("x").read())) == 1
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "module.py").write_text(MODULE)
    (folder / "test_module.py").write_text(TESTS)
    information = tmp_path / "shop-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: shop\nVersion: 1.2\nLicense-Expression: MIT\n")
    (information / "RECORD").write_text("shop/module.py,,\nshop/test_module.py,,\n../../etc/passwd.py,,\n")
    return tmp_path


def read(folder: Path) -> tuple[dict[str, functions.PackageFunction], dict[str, int], int]:
    entries, left_out, unread = read_package(find_sources(str(folder)), lambda doing: None)
    return {entry.name: entry for entry in entries}, dict(left_out), unread


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_package_becomes_rows_for_training_and_an_exam_of_other_functions(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into = shop / "rows"
    assert main(["data", "from-package", str(shop), "--into", str(into), "--json", "seed=2"]) == 0
    report = json.loads(capsys.readouterr().out)
    train, exam = rows_of(into / "train.jsonl"), rows_of(into / "exam.jsonl")
    assert {row["function"] for row in train + exam} == {
        f"shop.module.{name}" for name in ("capped", "joined", "asserted")
    }
    assert (report["train"], report["exam"]) == (len(train), len(exam)) and exam and train
    assert report["functions"] == sum(report["left_out"].values()) + 3
    assert report["left_out"] == {
        "method or coroutine": 2,
        "acts on the world: files, output, processes": 2,
        "fewer than two tests with literal values": 1,
        "fails its own tests": 1,
        "a stub passes its tests": 1,
        "needs another package, or another file of this one": 1,
        "uses a name that its file does not define": 1,
        "no description": 1,
    }
    origin = {"package": "shop", "version": "1.2", "licence": "MIT", "file": "shop/module.py"}
    assert all(origin.items() <= row.items() for row in train + exam)
    assert main(["data", "check", str(into), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["references"] == {"pass": len(train)}


def test_a_reference_has_what_it_uses_and_neither_docstring_nor_annotation(shop: Path) -> None:
    problem = read_row(read(shop)[0]["capped"].row(1)).problem
    assert problem.question == "Write a function capped(number, factor=1).\n\nMultiply a number, up to ten."
    assert problem.tests == ("assert capped(2, 3) == 6", "assert capped(9, 3) == 10")
    assert problem.reference is not None and problem.reference.splitlines() == [
        "LIMIT: int = 10", "", "def _cut(number):", "    return min(number, LIMIT)", "",
        "def capped(number, factor=1):", "    return _cut(number * factor)",
    ]  # fmt: skip


def test_a_test_stands_after_what_binds_its_names(shop: Path) -> None:
    assert read(shop)[0]["joined"].tests == (
        "first = [1, 2]\nassert joined(first, [3]) == [1, 2, 3]",
        "from itertools import chain\nassert joined(chain([1], [2]), ()) == [1, 2]",
    )


def test_asserts_of_one_function_and_builtins_are_tests(shop: Path) -> None:
    assert read(shop)[0]["asserted"].tests == ("assert asserted(3) == 9", "assert asserted(4) == 16")


def test_the_split_follows_the_name_and_the_seed_alone(shop: Path) -> None:
    split = {seed: [entry.in_exam(seed) for entry in read(shop)[0].values()] for seed in range(20)}
    (shop / "shop" / "a.py").write_text(MODULE)
    entries, _, _ = read_package(find_sources(str(shop)), lambda doing: None)
    again = {seed: [each.in_exam(seed) for each in entries if each.file.path.name == "module.py"] for seed in range(20)}
    assert again == split and len(set(map(tuple, split.values()))) > 2


def test_no_training_row_contains_a_function_of_the_exam(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def defined(name: str, body: str, value: int) -> str:
        tests = "".join(f"    >>> {name}({n})\n    {n * value}\n" for n in (2, 3))
        return f'def {name}(x):\n    """Multiply {name} by {value}.\n\n{tests}    """\n    return {body}\n'

    (tmp_path / "m.py").write_text(defined("first", "x * 7", 7) + defined("second", "first(x) * 2", 14))
    held = [(seed, [each.in_exam(seed) for each in read(tmp_path)[0].values()]) for seed in range(99)]
    seed = next(seed for seed, split in held if split == [True, False])
    assert main(["data", "from-package", str(tmp_path), "--into", str(tmp_path / "r"), f"seed={seed}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == {"contains a function of the exam": 1}


def described(examples: str, rest: str = "return x") -> bytes:
    return f'def f(x):\n    """F.\n\n{examples}    """\n    {rest}\n'.encode()


TWO = "    >>> f(1)\n    1\n    >>> f(2)\n    2\n"
SHADOW = described(TWO, "return open(x)") + b"def open(x): return x"
HOSTILE = {
    "endless": described(50_000 * TWO),
    "many": described("".join(f"    >>> f({number})\n    {number}\n" for number in range(900))),
    "huge literal": described(f"    >>> f(1)\n    {9_000 * '9'}\n"),
    "deep value": described(f"    >>> f(1)\n    {500 * '['}{500 * ']'}\n"),
    "deep sum": described(TWO, f"return {9_000 * '1+'}1"),
    "deep source": f"x = {9_000 * '('}{9_000 * ')'}".encode(),
    "minuses": f"x = {200_000 * '-'}1".encode(),
    "attributes": f"x = a{200_000 * '.a'}".encode(),
    "latin": b"x = '\xe9'",
    "null": b"x = 1\0",
    "large": b"#" * (1 << 20) + b"\nx = 1",
    "bad indent": described("        >>> f(1)\n    1\n      >>> f(\n"),
    "shadow": SHADOW,
    "table": f"T = [{20_000 * '1,'}]\n".encode() + described(TWO, "return T[x]"),
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_is_left_out_or_bounded_and_spoils_no_other(shop: Path, source: bytes) -> None:
    (shop / "shop" / "hostile.py").write_bytes(source)
    entries, left_out, unread = read(shop)
    assert {"capped", "joined", "asserted"} <= entries.keys()
    assert (
        left_out.get(functions.LARGE, 0)
        + left_out["fewer than two tests with literal values"]
        - 1
        + unread
        + ("f" in entries)
        <= 2
    )
    assert len(entries["f"].tests) <= functions.MAX_TESTS if "f" in entries else True


def test_a_builtin_that_the_file_defines_anew_goes_with_the_reference(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_bytes(SHADOW)
    assert read(tmp_path)[0]["f"].code == "def f(x):\n    return open(x)\n\ndef open(x):\n    return x"


def test_what_cannot_be_used_is_named_with_the_way_on_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "from-package", "no-such-package"]) == 2
    assert "pip install --target DIR no-such-package" in capsys.readouterr().err
    assert main(["data", "from-package", str(tmp_path)]) == 2
    assert "0 files of Python" in capsys.readouterr().err
    (tmp_path / "m.py").write_text("def f(): ...\n")
    (tmp_path / "loop.py").symlink_to(tmp_path / "m.py")
    assert main(["data", "from-package", str(tmp_path), "--into", str(tmp_path / "rows")]) == 1
    assert not (tmp_path / "rows").exists() and "1 functions, 0 problems" in capsys.readouterr().out


@pytest.mark.parametrize("damage", [b"\xff,,\n", b"a,b,c,d,e\n", b'"' + b"x" * 200_000])
def test_metadata_of_somebody_else_is_read_or_refused_by_name(shop: Path, damage: bytes) -> None:
    (shop / "shop-1.2.dist-info" / "RECORD").write_bytes(damage)
    with pytest.raises(ConfigError, match="the metadata of"):
        find_sources(str(shop))
    (shop / "shop-1.2.dist-info" / "RECORD").write_text("/etc/x.py,,\n../x.py,,\nshop/module.py,,\n")
    (shop / "shop-1.2.dist-info" / "METADATA").write_text("Name: shop\nVersion: \x1b[31m" + "9" * 999 + "\n")
    sources = find_sources(str(shop))
    assert {file.label for file in sources} == {"shop/module.py", "shop/test_module.py"}
    (version,) = {file.origin.version for file in sources if file.label == "shop/module.py"}
    assert len(version) == 200 and version.isprintable()


def test_an_installed_package_is_found_by_its_name() -> None:
    sources = find_sources("packaging")
    assert {file.origin.package for file in sources} == {"packaging"}
    assert "packaging/version.py" in {file.label for file in sources}
