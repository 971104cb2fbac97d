"""Published files through all that reads them: small ones with known faults, and the real ones where they are."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import real_files
from builders.data_sets import mbpp
from builders.real_data import real_data
from published.table import lines
from published.tiers import open_tiers

from codezero.code.worker import StaticGuard
from codezero.sandbox.jail import why_not

GOAL = 0.95


def measured(path: Path, name: str = "mbpp", *, every: int = 1, monty_alone: bool = False) -> dict[str, Any]:
    with ExitStack() as stack:
        guard = stack.enter_context(StaticGuard())
        tiers, _ = open_tiers(stack)
        tiers = replace(tiers, bubblewrap=None) if monty_alone else tiers
        return real_files.measure(name, path, every, guard, tiers)


def written(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "mbpp.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_each_fault_of_a_file_is_counted_where_it_belongs(tmp_path: Path) -> None:
    wrong = mbpp(12, code="def solve_12(n):\n    return n + 99")
    renamed = mbpp(
        13, code="def other(a, b, c):\n    return a", test_list=["assert other(1) == 1", "assert other(2) == 2"]
    )
    unread = mbpp(14, text="", prompt="", task_id=700)  # no question; the eval reader passes over other splits
    report = measured(written(tmp_path, mbpp(11), wrong, renamed, unread, mbpp(11, task_id=15)), monty_alone=True)
    assert report["rows"] == {
        "in_file": 5, "eval_tasks": 4, "problems": 4,
        "refused": report["rows"]["refused"],
    }  # fmt: skip
    assert [text.split(":")[0] for text in report["rows"]["refused"]] == ["mbpp/700"]
    assert [name.split(":")[0] for name in report["static"]["certain_failures"]] == ["mbpp/13"]
    assert report["hygiene"]["refused"].keys() == {"duplicate"} and report["hygiene"]["usable"] == 3
    assert [name.split(":")[0] for name in report["decided"]["failed"]] == ["mbpp/12"]


def test_the_table_of_the_pages_is_that_of_the_stored_result() -> None:
    root = Path(__file__).parents[3]
    sets = json.loads((root / "results" / "published_sets.json").read_text())["result"]["sets"]
    table = [line for line in lines(sets) if line.startswith("|")]
    assert "\n".join(table) in (root / "docs" / "results.md").read_text() and len(table) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", ["humaneval", "mbpp"])
def test_every_twentieth_problem_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_files, "MUTANTS", 1)
    holds(measured(both_tiers() / real_files.FILES[name], name, every=20), rows=None)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("name", "rows"), [("humaneval", 164), ("mbpp", 974)])
def test_the_whole_set_holds(name: str, rows: int) -> None:
    report = measured(both_tiers() / real_files.FILES[name], name)
    holds(report, rows=rows)
    assert report["mutants"]["problems_with_one_that_fails"] >= 0.9 * rows


def both_tiers() -> Path:
    """The real files, where this machine has bubblewrap; Monty alone decides less."""
    if why := why_not():
        pytest.skip(why)
    return real_data("HumanEval.jsonl.gz", "mbpp.jsonl")


def holds(report: dict[str, Any], *, rows: int | None) -> None:
    """`rows`: how many the file has; None: a part of it was measured."""
    read, decided = report["rows"], report["decided"]
    assert read["problems"] == read["in_file"] and not read["refused"] and rows in (None, read["in_file"])
    assert not any(report["static"].values())
    assert decided["by_either"] >= GOAL * decided["tests"]
    assert not decided["failed"] and not decided["disagree"]
    assert not report["canonical"]["differ"]
    assert report["mutants"]["fail"] > report["mutants"]["pass"]
