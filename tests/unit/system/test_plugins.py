"""Code that a setting names: found in every form, and refused in one line that says where and what it lacks."""

import importlib
import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codezero.errors import ConfigError, EvaluatorError, OwnCodeError
from codezero.system.plugins import blamed, file_of, load_object

CODE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True)
class Judge:
    strict: bool = False
    of: object = None
    def score(self, question, code): return 1.0
    class Inner: pass

class Needy:
    def __init__(self, path): self.path = path

def rows(): return []
instance = Judge(True)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with own.py; and my_pkg, which is installed."""
    (tmp_path / "own.py").write_text(CODE)
    package = tmp_path / "site" / "my_pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "data.py").write_text(CODE)
    (package / "lame.py").write_text("import nothing_here.deep")
    (package / "broken.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path


@pytest.fixture(autouse=True)
def forget() -> Any:
    yield
    mine = ("codezero_plugin_", "my_pkg", "home_")
    for name in [name for name in sys.modules if name.startswith(mine)]:
        del sys.modules[name]


def refusal(spec: Any, load: Callable[..., object] = load_object, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(spec, "a.key", **options)
    assert "\n" not in str(caught.value) and str(caught.value).startswith("a.key=")
    return str(caught.value)


@pytest.mark.parametrize("place", ["own.py", "./own.py", "my_pkg.data"])
def test_a_class_is_made_and_all_else_is_returned(home: Path, place: str) -> None:
    assert load_object(f"{place}:Judge", "a.key", ["score"]).strict is False
    assert load_object(f"{place}:instance", "a.key", ["score"]).strict is True
    assert load_object(f"{place}:rows", "a.key", ["__call__"])() == []
    assert type(load_object(f"{place}:Judge.Inner", "a.key")).__name__ == "Inner"


def test_a_file_is_run_once_whatever_names_it(home: Path) -> None:
    first = load_object("own.py:rows", "a.key")
    assert load_object(str(home / "own.py") + ":rows", "b.key") is first


@pytest.mark.parametrize("target", ["my_pkg.data.Judge", "my_pkg.data:Judge", "own.py:Judge"])
def test_a_mapping_is_called_with_its_entries_and_not_followed(home: Path, target: str) -> None:
    nested = {"_target_": "os.abort"}
    made = load_object({"_target_": target, "strict": True, "of": nested}, "a.key", ["score"])
    assert made.strict is True and made.of == nested


def test_a_name_is_an_entry_point(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = importlib.metadata.EntryPoint("mine", "my_pkg.data:Judge", "codezero.judges")
    groups = {"codezero.judges": (point,)}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: groups.get(group, ()))
    assert load_object("mine", "a.key", ["score"], "judges").strict is False
    assert load_object({"_target_": "mine", "strict": True}, "a.key", group="judges").strict is True
    assert file_of("mine", "a.key", "judges") == home / "site" / "my_pkg" / "data.py"
    assert refusal("min", group="judges").endswith("or an entry point of codezero.judges: mine")
    assert refusal("mine", group="losses").endswith("codezero.losses: none is installed")
    assert "names nothing; write package.module:attribute or path/file.py:attribute" in refusal("mine")


def test_what_is_not_there_is_told_from_what_it_needs_itself(home: Path) -> None:
    assert "there is no module nowhere; install it" in refusal("nowhere.data:rows")
    assert "there is no module my_pkg.none; install it" in refusal("my_pkg.none:rows")
    assert "my_pkg.lame imports nothing_here, which is not installed" in refusal("my_pkg.lame:rows")
    assert f"there is no file {home / 'away.py'}" in refusal("away.py:rows")
    (home / "lame.py").write_text("import nothing_here")
    assert "lame.py imports nothing_here, which is not installed" in refusal("lame.py:rows")


def test_a_missing_attribute_names_the_near_ones(home: Path) -> None:
    assert "own.py has no row; it has rows" in refusal("own.py:row")
    assert "my_pkg.data has no Jugde; it has Judge" in refusal({"_target_": "my_pkg.data.Jugde"})


def test_what_fails_while_it_loads_says_how_and_is_tried_again(home: Path) -> None:
    assert "my_pkg.broken raised ZeroDivisionError: division by zero" in refusal("my_pkg.broken:x")
    (home / "wrong.py").write_text("def f(:")
    assert "wrong.py raised SyntaxError" in refusal("wrong.py:f")
    (home / "wrong.py").write_text("def f(): return 7")
    assert load_object("wrong.py:f", "a.key")() == 7


def test_what_cannot_be_made_says_why(home: Path) -> None:
    assert "raised TypeError: " in refusal("own.py:Needy") and "'path'" in refusal("own.py:Needy")
    assert "raised TypeError" in refusal({"_target_": "own.py:Judge", "strikt": True})
    assert "is a Judge without read, forget; add" in refusal("own.py:Judge", needs=["score", "read", "forget"])


def test_a_file_is_found_without_running_it(home: Path) -> None:
    assert file_of("my_pkg.broken:x", "a.key") == home / "site" / "my_pkg" / "broken.py"
    assert "there is no file" in refusal("away.py:rows", load=file_of)
    assert "there is no module my_pkg.none" in refusal("my_pkg.none:rows", load=file_of)
    assert "my_pkg.broken" not in sys.modules


LEAVING = """import argparse, sys
def quiet(*_): sys.exit(0)
def words(*_):
    argparse.ArgumentParser().parse_args(["--nowhere"])
class Made:
    def __init__(self): raise SystemExit("no key\\nat all")
"""


@pytest.mark.parametrize(("name", "line", "code"), [("quiet", 2, 0), ("words", 4, 2)])
def test_code_that_leaves_is_code_that_failed(home: Path, name: str, line: int, code: int) -> None:
    (home / "leaving.py").write_text(LEAVING)
    function = load_object(f"leaving.py:{name}", "a.key")
    with pytest.raises(OwnCodeError) as caught, blamed(EvaluatorError, "it"):
        function()
    assert str(caught.value) == f"it left with sys.exit({code}) ({home}/leaving.py:{line}); let it return"


@pytest.mark.parametrize(
    ("spec", "words"),
    [("leaving.py:Made", "'no key\\nat all') (H/leaving.py:6)"), ("at_once.py:x", "3) (H/at_once.py:2)")],
)
def test_code_that_leaves_while_it_loads_is_no_end_without_a_reason(home: Path, spec: str, words: str) -> None:
    (home / "leaving.py").write_text(LEAVING)
    (home / "at_once.py").write_text("import sys\nsys.exit(3)")
    with pytest.raises(OwnCodeError, match=rf"^a.key={spec}.* left with sys.exit") as caught:
        load_object(spec, "a.key")
    assert words.replace("H", str(home)) in str(caught.value) and "\n" not in str(caught.value)


def test_the_working_directory_is_searched_last_and_for_plug_ins_alone(home: Path) -> None:
    package = home / "home_pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    for path in (home / "home_module.py", package / "own.py"):
        path.write_text(
            CODE + "import json, random, home_beside\ndef f():\n    import home_late\n    return home_late.x"
        )
    (home / "home_beside.py").write_text("import home_further")
    (home / "home_late.py").write_text("x = 7")
    (home / "home_stranger.py").write_text("1 / 0")
    for name in ("home_further.py", "random.py", "json.py"):
        (home / name).write_text("import pathlib; pathlib.Path(__file__ + '.ran').touch()")
    for place in ("home_module", "home_pkg.own", "home_module.py"):
        assert load_object(f"{place}:Judge", "a.key").strict is False and load_object(f"{place}:f", "a.key")() == 7
        assert file_of(f"{place}:f", "a.key").parent in (home, package)
    assert [path.name for path in home.glob("*.ran")] == ["home_further.py.ran"]
    assert str(home) not in sys.path and "" not in sys.path[:1]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("home_stranger")
    assert "random has no f" in refusal("random:f")
