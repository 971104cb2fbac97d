"""A whole node as its user starts it: a process, the embedded models, real files.

Does not show how far it learns; `benchmarks/first_light.py` and the slow test here do.
"""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

KEYS = [
    "iteration",
    "round",
    "seconds",
    "reward/mean",
    "eval/average_at_8",
    "eval/pass_at_8",
    "eval/ci_low",
    "eval/ci_high",
    "eval/source",
    "difficulty/level",
    "judge/auroc",
    "train/loss",
    "train/entropy",
    "train/zero_spread_share",
    "swarm/peers",
    "swarm/external_share",
    "tokens/sampled_per_second",
]
SMALL = ["evals.problems=10", "evals.every=2", "evaluator.canaries=80", "solver.problems_per_iteration=2", "seed=3",
         "login.page=off"]  # fmt: skip


def command(folder: Path, *overrides: str) -> list[str]:
    settings = ["run.directory=" + str(folder), "run.name=run", f"run.logs={folder / 'logs'}"]
    settings += [f"chain.directory={folder / 'chain'}", f"chain.wallet={folder / 'wallet.json'}"]
    settings += [f"swarm.identity={folder / 'swarm.pem'}", *SMALL, *overrides]
    return [sys.executable, "-m", "codezero", "run", *settings]


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(folder, *overrides), capture_output=True, text=True, timeout=400)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def newest_checkpoint(folder: Path) -> Path:
    return max(path for path in (folder / "run" / "checkpoints").iterdir() if path.name.isdigit())


def wait_for_iteration(folder: Path, process: subprocess.Popen[Any], iteration: int) -> None:
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        assert process.poll() is None, "the node ended early"
        metrics = folder / "run" / "metrics.jsonl"
        if metrics.is_file() and metrics.read_text().count("\n") > iteration:
            return
        time.sleep(0.05)
    raise AssertionError(f"iteration {iteration} did not come")


def test_a_run_measures_saves_reports_and_goes_on(tmp_path: Path) -> None:
    first = run(tmp_path, "run.max_iterations=2")
    assert first.returncode == 0, first.stderr
    second = run(tmp_path, "run.max_iterations=3")
    assert second.returncode == 0, second.stderr
    measured = rows(tmp_path)
    assert [row["iteration"] for row in measured] == [0, 1, 2, 3]
    assert all(key in row for row in measured for key in KEYS)
    exams = [row for row in measured if row["eval/average_at_8"] is not None]
    assert [row["iteration"] for row in exams] == [0, 2, 3]
    assert all(row["eval/source"] == "executed" for row in exams)
    assert newest_checkpoint(tmp_path).name.lstrip("0") == "3"
    for name in ("report.md", "curve.png", "view.svg"):
        assert (tmp_path / "run" / name).stat().st_size > 100
    assert (tmp_path / "logs" / "swarm.log").is_file()
    assert (tmp_path / "swarm.pem").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("which", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 0, marks=pytest.mark.slow)]
)
def test_a_signal_finishes_the_iteration_and_saves(tmp_path: Path, which: signal.Signals, code: int) -> None:
    with subprocess.Popen(command(tmp_path, "evals.every=0"), stdout=subprocess.DEVNULL) as process:
        wait_for_iteration(tmp_path, process, 2)
        process.send_signal(which)
        assert process.wait(60) == code
    assert int(newest_checkpoint(tmp_path).name) == rows(tmp_path)[-1]["iteration"]
    assert (tmp_path / "run" / "report.md").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kill_9_loses_at_most_the_iteration_in_flight(tmp_path: Path) -> None:
    """20 random moments: every restart goes on from a whole checkpoint with the weights that were saved."""
    chance, done, cursor, seen = random.Random(0), 0, 0, set[str]()
    for _ in range(20):
        with subprocess.Popen(command(tmp_path, "evals.every=0"), stdout=subprocess.DEVNULL) as process:
            wait_for_iteration(tmp_path, process, done + 1)
            time.sleep(chance.uniform(0, 1.5))
            process.kill()
        measured = [row["iteration"] for row in rows(tmp_path)]
        assert measured == list(range(1, len(measured) + 1)), "a row is missing or repeated"
        saved = newest_checkpoint(tmp_path)
        assert measured[-1] - int(saved.name) in (0, 1) and int(saved.name) >= done
        done = int(saved.name)
        weights = load_file(saved / "solver" / "model" / "model.safetensors")
        assert all(torch.isfinite(tensor).all() for tensor in weights.values())
        stream = json.loads(next((saved / "problems").iterdir()).read_text())
        assert stream["cursor"] > cursor and len(set(stream["synthetic"])) == len(stream["synthetic"])
        cursor = stream["cursor"]
        seen.add(saved.name)
    assert len(seen) == 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_judge_alone_lifts_executed_success(tmp_path: Path) -> None:
    """The promise of the whole: at least 20 points with intervals apart, reward from the frozen judge only."""
    settings = ["evals.problems=200", "evals.every=0", "evaluator.canaries=400", "solver.problems_per_iteration=16"]
    for overrides in (["evals.every=1000", "run.max_iterations=1"], ["evals.every=1000", "run.max_iterations=150"]):
        done = run(tmp_path, *settings, *overrides)
        assert done.returncode == 0, done.stderr
    exams = [row for row in rows(tmp_path) if row["eval/average_at_8"] is not None]
    first, last = exams[0], exams[-1]
    assert last["eval/average_at_8"] - first["eval/average_at_8"] >= 0.2
    assert last["eval/ci_low"] > first["eval/ci_high"]
