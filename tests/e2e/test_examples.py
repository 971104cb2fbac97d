"""Each example is run as its first lines say, two in a run: whole nodes with code of a user's own.

Does not show that anything is learned with it.
"""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders.forked_runs import settings

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


def test_problems_and_a_judge_of_ones_own(tmp_path: Path) -> None:
    (problems,), (judge,) = commands("own_problems/problems.py"), commands("own_judge.py")
    printed, rows = run(tmp_path, *problems, *judge)
    named = "evaluator.object=examples/own_judge.py:WordJudge, data.sources=examples/own_problems/problems.py:rows"
    assert f"codezero: {named}: their code runs with this node's rights" in printed
    assert rows[-1]["problems/drawn_problems.py:rows"] >= 12 and "problems/drawn_synthetic" not in rows[-1]
    assert all(row["judge/canary_auroc"] is not None for row in rows)


def test_a_reward_and_a_loss_of_ones_own(tmp_path: Path) -> None:
    (_, reward), (loss,) = commands("own_reward.py"), commands("own_loss.py")
    _, rows = run(tmp_path, *reward, *loss)
    assert any(row["train/loss"] for row in rows) and all(row["train/clip_share"] is None for row in rows)
    assert all(0 <= row["reward/mean"] <= 1 for row in rows)
    assert all(row["train/mismatch_kl"] < 1e-5 for row in rows if row.get("train/mismatch_rows"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_its_command(path: Path) -> None:
    assert path.read_text().count("\n") <= 40 and commands(str(path.relative_to(EXAMPLES)))


def test_the_file_of_problems_has_the_rows_of_the_function() -> None:
    from codezero.problems.hub import open_rows

    made = open_rows(str(EXAMPLES / "own_problems" / "problems.py") + ":rows")
    lines = (EXAMPLES / "own_problems" / "problems.jsonl").read_bytes().splitlines()
    assert [json.loads(line) for line in lines] == list(made.rows(made.name, 0))
