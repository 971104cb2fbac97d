"""A whole node as its user starts it: a process, the embedded models, real files.

Does not show how far it learns; `benchmarks/first_light.py` and the long test here do."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from builders.documents import listed_metrics, same_metric
from builders.forked_runs import checkpoints, files, kill, lives, settings, unfinished, wait_for
from builders.forked_runs import rows as logged
from builders.monitor import read_metrics
from builders.users import wait_until

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
    return list(read_metrics(folder / "run" / "metrics.jsonl"))


def newest_checkpoint(folder: Path) -> Path:
    return max(path for path in (folder / "run" / "checkpoints").iterdir() if path.name.isdigit())


@pytest.mark.slow
def test_a_run_measures_saves_reports_and_goes_on(tmp_path: Path) -> None:
    first = run(tmp_path, "run.max_iterations=2")
    assert first.returncode == 0, first.stderr
    second = run(tmp_path, "run.max_iterations=3")
    assert second.returncode == 0, second.stderr
    measured = rows(tmp_path)
    assert [row["iteration"] for row in measured] == [0, 1, 2, 3]
    assert all(key in row for row in measured for key in KEYS)
    listed = listed_metrics()
    assert not {key for row in measured for key in row if not any(same_metric(key, other) for other in listed)}
    agreed = [row for row in measured if row.get("train/mismatch_rows")]
    assert agreed and all(0 <= row["train/mismatch_kl"] < 1e-5 > row["train/mismatch_mean"] ** 2 for row in agreed)
    assert all(row["train/mismatch_masked"] == 0 and row["train/mismatch_alarm"] is None for row in agreed)
    exams = [row for row in measured if row["eval/average_at_8"] is not None]
    assert [row["iteration"] for row in exams] == [0, 2, 3]
    assert all(row["eval/source"] == "executed" for row in exams)
    assert newest_checkpoint(tmp_path).name.lstrip("0") == "3"
    for name in ("report.md", "curve.png", "view.svg"):
        assert (tmp_path / "run" / name).stat().st_size > 100
    assert (tmp_path / "logs" / "swarm.log").is_file()
    assert (tmp_path / "swarm.pem").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_sigterm_finishes_the_iteration_and_saves(tmp_path: Path) -> None:
    """test_interrupt.py has Ctrl-C."""
    with subprocess.Popen(command(tmp_path, "evals.every=0"), stdout=subprocess.DEVNULL) as process:
        wait_until("iteration 1", lambda: len(rows(tmp_path)) > 1, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    assert int(newest_checkpoint(tmp_path).name) == rows(tmp_path)[-1]["iteration"]
    assert (tmp_path / "run" / "report.md").is_file()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_kill_9_at_50_moments_changes_nothing(tmp_path: Path) -> None:
    """Whatever is killed when, also inside saving: it ends with the rows and the bytes of a run that never was.

    10 nodes are started as a user does, 40 without loading the libraries again.
    """
    chance, run_folder, inside = random.Random(0), tmp_path / "killed", 0
    with lives() as nodes:
        for number in range(50):
            done, drawn, before = newest(run_folder), ids_drawn(run_folder), inode(run_folder)
            when = ("running", "saving", "running", "saving", "starting")[number % 5]
            life = settings(tmp_path, "killed")
            if number % 6 == 0 or number == 1:
                with subprocess.Popen([sys.executable, "-m", "codezero", "run", *life]) as process:
                    try:
                        kill_somewhere(process.pid, run_folder, when, chance, before)
                    finally:
                        process.kill()
                assert process.returncode == -signal.SIGKILL
            else:
                kill_somewhere(nodes.begin(life), run_folder, when, chance, before)
                assert nodes.end() == -signal.SIGKILL
            inside += bool(unfinished(run_folder))
            made = [row["iteration"] for row in logged(run_folder)]
            assert made == list(range(1, len(made) + 1)), "a row is missing or repeated"
            assert newest(run_folder) >= done and made[-1] - newest(run_folder) in (0, 1)
            assert ids_drawn(run_folder)[: len(drawn)] == drawn
        last = newest(run_folder) + 2
        nodes.live(settings(tmp_path, "killed", f"run.max_iterations={last}"))
        nodes.live(settings(tmp_path, "whole", f"run.max_iterations={last}"))
    assert inside >= 5, "too few kills met a checkpoint being written"
    assert logged(run_folder) == logged(tmp_path / "whole")
    assert [row["iteration"] for row in logged(run_folder)] == list(range(1, last + 1))
    assert files(checkpoints(run_folder)[-1]) == files(checkpoints(tmp_path / "whole")[-1])
    drawn = ids_drawn(run_folder)
    assert len(drawn) == len(set(drawn))
    row = logged(run_folder)[-1]
    assert row["problems/drawn_synthetic"] == len(drawn), "what did not count was not given back"
    assert len(drawn) + row["problems/drawn_proposals"] >= 4 * last


def kill_somewhere(process: int, run_folder: Path, when: str, chance: random.Random, before: int) -> None:
    """While it starts; at any moment after its first row; or while it writes a checkpoint after that.

    before: the inode of metrics.jsonl, which a start that has loaded a checkpoint replaces.
    """
    if when == "starting":
        time.sleep(chance.uniform(0, 8))
    else:
        done = newest(run_folder)
        wait_for("a start", 300, lambda: inode(run_folder) not in (0, before), every=0.05)
        wait_for("the next row", 300, lambda: len(logged(run_folder)) > done, every=0.05)
        time.sleep(chance.uniform(0, 1.5))
    if when == "saving":
        wait_for("a checkpoint being written", 60, lambda: unfinished(run_folder), every=0.001)
        time.sleep(chance.uniform(0, 0.01))
    kill(process)


def inode(run_folder: Path) -> int:
    path = run_folder / "metrics.jsonl"
    return path.stat().st_ino if path.exists() else 0


def newest(run_folder: Path) -> int:
    """The iteration of the newest checkpoint."""
    return max((int(path.name) for path in checkpoints(run_folder)), default=0)


def ids_drawn(run_folder: Path) -> list[str]:
    """Of the data sets' problems in iterations that count, in order; the stream remembers more than are drawn here."""
    found = checkpoints(run_folder)
    return json.loads((found[-1] / "problems" / "stream.json").read_text())["synthetic"] if found else []


@pytest.mark.long
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
