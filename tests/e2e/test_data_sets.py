"""A whole node over the public sets in their own schemas: from a disk, from a hub, without one, and when it dies."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builders.data_sets import contest, contests, mbpp, sanitized, write
from builders.monitor import read_metrics
from builders.users import status, wait_until
from fakes.hub_server import serving
from unit.problems.test_sources_hub import a_hub

from codezero.settings import compose

CONTESTS = [
    *contests(50),
    contest(50, solutions={"language": [0, 1, 2, 4], "solution": ["?", "print 1", "int main(){}", "class A {}"]}),
    contest(51, solutions={"language": [], "solution": []}, incorrect_solutions={"language": [], "solution": []}),
    contest(52, public_tests={"input": ["y" * (1 << 20)], "output": ["z" * (1 << 20)]}),
]  # Beside what `contests` makes: without a Python solution, without any, and with nothing but a test of 1 MB


FEW = [  # the embedded judge has no skill at these sets
    "evaluator.canaries=80", "evaluator.on_alarm=warn", "solver.problems_per_iteration=8", "solver.group_size=2",
    "solver.refill=1", "proposer.model=off", "evals.every=0", "monitor.view=plain", "login.page=off",
    "chain.kind=clock",
]  # fmt: skip


@contextmanager
def node(folder: Path, *settings: str, hub: str = "") -> Iterator[subprocess.Popen[bytes]]:
    files = [f"run.directory={folder}", "run.name=run", f"run.logs={folder / 'logs'}"]
    files += [f"swarm.identity={folder / 'swarm.pem'}"]
    command = [sys.executable, "-m", "codezero", "run", *files, *FEW, *settings]
    online = {"HF_ENDPOINT": hub, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "0"} if hub else {}
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=os.environ | online)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        print((folder / "out").read_text())  # shown where a test fails


def rows(folder: Path) -> list[dict[str, Any]]:
    return list(read_metrics(folder / "run" / "metrics.jsonl"))


def until(what: str, holds: Callable[[dict[str, Any]], bool], folder: Path, process: subprocess.Popen[bytes]) -> None:
    wait_until(what, lambda: any(map(holds, rows(folder)[-1:])), process)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("suffix", [pytest.param(".jsonl", marks=pytest.mark.long), ".parquet"])
def test_real_schemas_run_through_whole_iterations(suffix: str, tmp_path: Path) -> None:
    sets = {
        "full": [mbpp(number) for number in range(50)],
        "sanitized": [sanitized(number) for number in range(100, 150)],
        "contests": CONTESTS,
    }
    paths = [write(tmp_path / f"{name}{suffix}", made) for name, made in sets.items()]
    sources = f"data.sources=[{','.join(f'{path}:1' for path in paths)}]"
    with node(tmp_path, sources, "run.max_iterations=16") as process:
        assert process.wait(300) == 0, (tmp_path / "out").read_text()
    written = rows(tmp_path)
    last = written[-1]
    assert last["iteration"] == 16 and all(row["reward/mean"] is not None for row in written if row["iteration"])
    drawn = [last[f"problems/drawn_{path.name}"] for path in paths]
    assert sum(drawn) == 16 * 8 and min(drawn) >= 20, "each set gave problems, and nothing stood in for one"
    assert last["problems/refused_malformed"] >= 1, "a row without tests costs itself"
    assert not any(value for name, value in last.items() if name.startswith("tolerated/"))


REAL = f"data.sources=[{','.join(compose(['profile=gpu-80g']).data.sources)}]"  # What real models draw from


@pytest.mark.long
@pytest.mark.timeout(400)
def test_without_the_hub_synthetic_problems_stand_in_and_that_is_said(tmp_path: Path) -> None:
    exam = ["evals.sources=[mbpp_test]", "evals.problems=5", "evals.every=1", "evals.samples=1"]
    with node(tmp_path, REAL, *exam, "run.max_iterations=2", hub="http://127.0.0.1:9") as process:
        assert process.wait(300) == 0, (tmp_path / "out").read_text()
    last = rows(tmp_path)[-1]
    assert last["problems/drawn_synthetic"] == 16 and last["problems/outages"] >= 1
    said = (tmp_path / "out").read_text()
    assert said.count("mbpp cannot be read") == said.count("code_contests cannot be read") == 1, said
    assert said.index("codezero: problems: embedded problems: a rehearsal: mbpp cannot be read") < said.index(
        "iteration 1"
    )
    shown = status(tmp_path)
    assert shown["stand_ins"].startswith("embedded problems: a rehearsal: mbpp cannot be read")
    assert shown["facts"]["exam"].startswith("embedded problems: a rehearsal: mbpp_test cannot be read")
    assert shown["facts"]["canaries"].startswith("embedded problems: a rehearsal: mbpp cannot be read")


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.long)])
def test_with_the_hub_source_exam_and_canaries_are_its_own(tmp_path: Path, killed: bool) -> None:
    """Also of a node that was killed and started again."""
    exam = ["evals.sources=[mbpp_test]", "evals.problems=10", "evals.every=1", "evals.samples=1"]
    with serving(a_hub(tmp_path)) as hub:
        if killed:
            with node(tmp_path, REAL, *exam, hub=hub.url) as process:
                until("one iteration", lambda row: row["iteration"] >= 1, tmp_path, process)
                process.kill()
        with node(tmp_path, REAL, *exam, "run.max_iterations=2", hub=hub.url) as process:
            assert process.wait(300) == 0, (tmp_path / "out").read_text()
    said, written = (tmp_path / "out").read_text(), rows(tmp_path)
    assert "codezero: problems: mbpp, code_contests\n" in said and "stand in" not in said and "rehearsal" not in said
    assert written[-1]["problems/drawn_mbpp"] and "problems/drawn_synthetic" not in written[-1]
    assert len({row["eval/set"] for row in written if row.get("eval/set")}) == 1
    assert all(row["eval/control"] is not None for row in written if row.get("eval/set"))
    shown = status(tmp_path)
    assert shown["stand_ins"] == "" and shown["facts"]["exam"] == written[-1]["eval/set"]
    assert re.fullmatch(r"mbpp_test, 10 problems, [0-9a-f]{8}", shown["facts"]["exam"])
    assert re.search(
        r"^mbpp, \d+ problems with \d+ wrong solutions, [0-9a-f]{8}; code_contests, \d+ ", shown["facts"]["canaries"]
    )
    assert f"The exam: {shown['facts']['exam']}." in (tmp_path / "run" / "report.md").read_text()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_hub_that_dies_in_mid_run_is_stood_in_for(tmp_path: Path) -> None:
    with (
        serving(a_hub(tmp_path)) as hub,
        node(tmp_path, "data.sources=[code_contests:1]", "data.wait_seconds=120", hub=hub.url) as process,
    ):
        until("drawn from the hub", lambda row: row.get("problems/drawn_code_contests", 0) > 0, tmp_path, process)
        hub.silent = True
        until("stood in for", lambda row: row.get("problems/outages", 0) > 0, tmp_path, process)
        lost = rows(tmp_path)[-1]
        until("goes on", lambda row: row["iteration"] >= lost["iteration"] + 2, tmp_path, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (tmp_path / "out").read_text()
    last = rows(tmp_path)[-1]
    assert last["problems/drawn_synthetic"] >= 16 and last["reward/mean"] is not None
    assert (tmp_path / "out").read_text().count("other sources stand in") == 1
