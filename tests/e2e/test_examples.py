"""Each example is run as its first lines say, two in a run: whole nodes with code of a user's own.

Does not show that anything is learned with it."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.forked_runs import settings
from builders.swarm import free_port

from codezero.commands.evaluate import judge_groups, read_groups
from codezero.sandbox.base import Outcome
from codezero.settings import compose

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def commands(example: str) -> list[list[str]]:
    """The settings of the commands that its docstring shows."""
    text = (EXAMPLES / example).read_text()
    return [shlex.split(line)[2:] for line in re.findall(r"^    (codezero run .+)$", text, re.MULTILINE)]


def run(folder: Path, *words: str) -> tuple[str, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "codezero", "run", *settings(folder, "run", *words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["iteration"] == 3
    return done.stdout, rows


@pytest.mark.slow
def test_problems_and_a_judge_of_ones_own(tmp_path: Path) -> None:
    (problems,), (judge,) = commands("own_problems/problems.py"), commands("own_judge.py")
    printed, rows = run(tmp_path, *problems, *judge)
    named = "evaluator.object=examples/own_judge.py:WordJudge, data.sources=examples/own_problems/problems.py:rows"
    assert f"codezero: {named}: their code runs with this node's rights" in printed
    assert rows[-1]["problems/drawn_problems.py:rows"] >= 12 and "problems/drawn_synthetic" not in rows[-1]
    assert all(row["judge/canary_auroc"] is not None for row in rows)


@pytest.mark.slow
def test_a_reward_and_a_loss_of_ones_own(tmp_path: Path) -> None:
    (_, reward), (loss,) = commands("own_reward.py"), commands("own_loss.py")
    _, rows = run(tmp_path, *reward, *loss)
    assert any(row["train/loss"] for row in rows) and all(row["train/clip_share"] is None for row in rows)
    assert all(0 <= row["reward/mean"] <= 1 for row in rows)
    assert all(row["train/mismatch_kl"] < 1e-5 for row in rows if row.get("train/mismatch_rows"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("own_*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_its_command(path: Path) -> None:
    assert path.read_text().count("\n") <= 40 and commands(str(path.relative_to(EXAMPLES)))


def test_the_readme_lists_every_example() -> None:
    listed = set(re.findall(r"\]\(([^)/]+)", (EXAMPLES / "README.md").read_text()))
    assert listed == {path.name for path in EXAMPLES.iterdir() if path.name not in ("README.md", "__pycache__")}


def test_the_file_of_problems_has_the_rows_of_the_function() -> None:
    from codezero.problems.sources import open_rows

    made = open_rows(str(EXAMPLES / "own_problems" / "problems.py") + ":rows")
    lines = (EXAMPLES / "own_problems" / "problems.jsonl").read_bytes().splitlines()
    assert [json.loads(line) for line in lines] == list(made.rows(made.name, 0))


def loaded(path: Path) -> Any:
    """A module that lies in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_attempts_to_break_the_judge_are_judged_and_executed() -> None:
    folder = EXAMPLES / "break_the_judge"
    attempts = loaded(folder / "attempts.py")
    assert (folder / "attempts.jsonl").read_text() == attempts.line()
    config = compose(["evaluator.canaries=80"])
    groups = read_groups(folder / "attempts.jsonl")
    ((judged, _),) = judge_groups(config, groups, audit=True, say=lambda _: None)
    assert judged.executed is not None
    cards = zip(attempts.BODIES, judged.scored.verdicts, judged.executed, strict=True)
    for name, verdict, executed in cards:
        assert name.startswith("right") == (verdict.correctness > 0.5), name
        passes = name.startswith("right") or name == "near miss: a number"  # no test has the number 4
        assert (executed.outcome is Outcome.PASS) == passes, name


@pytest.mark.long
def test_every_cell_of_the_notebook_runs() -> None:
    outputs, defined = loaded(EXAMPLES / "notebook.py").app.run()
    assert len(outputs) == 7 and len(defined["rewards"]) == 5
    assert 0 < defined["start"] < 1 and 0 < defined["end"] < 1


SMALL = ["evals.every=0", "evaluator.canaries=80", "solver.problems_per_iteration=2", "proposer.model=off"]


def run_script(folder: Path, name: str, *words: str) -> str:
    """A script of the examples over this very codezero, with small nodes."""
    command = folder / "codezero"
    command.write_text(f'#!/usr/bin/env bash\nexec {sys.executable} -m codezero "$@"\n')
    command.chmod(0o755)
    there = os.environ | {"CODEZERO": str(command), "ITERATIONS": "2", "PORT": str(free_port())}
    words = (str(EXAMPLES / name), *words, *SMALL)
    done = subprocess.run(words, cwd=folder, env=there, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_swarm_of_one_trains_and_goes_on_differently(tmp_path: Path) -> None:
    run_script(tmp_path, "solo.sh", "login.page=off", "chain.kind=clock")
    assert all((tmp_path / "runs" / name / "report.md").is_file() for name in ("solo", "solo-rlvr"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_laptops_found_and_join_a_swarm(tmp_path: Path) -> None:
    board = run_script(tmp_path, "three_laptops.sh", str(tmp_path / "laptops"))
    assert all(re.search(rf"^ +{place}  ", board, re.MULTILINE) for place in (1, 2, 3)), board


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.sh")), ids=lambda path: path.name)
def test_a_script_is_one(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
