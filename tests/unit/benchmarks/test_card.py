"""What one card is measured by: all of it at tiny size, a killed command that goes on, parts that fail, the wheels."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import card
import pytest
from card_parts.workload import SHAPES
from model import random_model

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, str(ROOT / "benchmarks" / "card.py"), "--json", "--tiny"]
CARRY = str(ROOT / "scripts" / "carry_wheels.sh")


def line(name: str, **changes: Any) -> str:
    return json.dumps({"part": name, "group": card.PARTS[name].group, "tiny": True, "seconds": 1.0} | changes)


def test_the_budgets_add_up_to_what_is_said() -> None:
    assert sum(part.seconds for part in card.PARTS.values()) <= 60 * 9


@pytest.mark.slow
def test_everything_runs_at_tiny_size_without_a_card(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "--into", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    parts = {name: each for group in ("G0", *card.ANCHORS) for name, each in report[group]["parts"].items()}
    assert parts.keys() == card.PARTS.keys() and report["waiting"] == []
    assert all(each["seconds"] >= 0 and each["budget"] == card.PARTS[name].seconds for name, each in parts.items())
    cases = {(name, what): case for name, each in parts.items() for what, case in each["result"].items()}
    assert not [key for key, case in cases.items() if isinstance(case, dict) and "error" in case]
    fast = ("learning", "sampling")
    speeds = [case["tokens_per_second"] for (name, _), case in cases.items() if name.startswith(fast)]
    assert len(speeds) == 3 * 4 + 5 and min(speeds) > 0
    assert abs(cases["mismatch 0.5b", "learner's weights"]["kl"]) < 1e-6  # float32 on both sides
    assert parts["halving 0.5b"]["result"].keys() == {"skipped"}


@pytest.mark.long
def test_a_killed_command_goes_on_where_it_was(tmp_path: Path) -> None:
    first = subprocess.Popen([*COMMAND, "--into", str(tmp_path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    file = tmp_path / card.FILE
    while first.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= 2):
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = file.read_text().splitlines()[:2]
    file.write_text("\n".join([*kept, line("judging 1.5b")[:40]]))  # cut off while it was written
    again = subprocess.run([*COMMAND, "--into", str(tmp_path), "--only", "G4"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    parts = [json.loads(text)["part"] for text in file.read_text().splitlines() if text.endswith("}")]
    assert parts == ["machine", "sampling 0.5b", "mismatch 0.5b"]
    assert file.read_text().startswith("\n".join(kept))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("qwen2.5-0.5b", 494_032_768), ("qwen2.5-1.5b", 1_543_714_304), ("qwen3-0.6b", 596_049_920)],
)
def test_the_shapes_are_those_of_the_published_models(name: str, parameters: int) -> None:
    """By the counts on their cards; nothing is allocated."""
    assert random_model(SHAPES[name], device="meta").num_parameters() == parameters


def test_parts_of_another_size_are_measured_anew(tmp_path: Path) -> None:
    (tmp_path / card.FILE).write_text(line("machine", tiny=False) + "\n" + line("mismatch 0.5b") + "\n")
    assert card.finished(tmp_path, True).keys() == {"mismatch 0.5b"}
    assert card.finished(tmp_path, False).keys() == {"machine"}


def test_a_part_that_fails_or_never_ends_is_written_and_the_next_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "parts.py"
    script.write_text(
        "import sys, time\n"
        "for line in sys.stdin:\n"
        "    if line.startswith('node'): time.sleep(3600)\n"
        "    if line.startswith('updates'): sys.exit(7)\n"
        "    print('{\"result\": {}}', flush=True)\n"
    )
    parts = {"machine": card.Part("G0", 60, ""), "node": card.Part("G1", 0.5, ""), "updates": card.Part("G1", 60, "")}
    monkeypatch.setattr(card, "PARTS", parts | {"judging": card.Part("G5", 60, "")})
    worker = card.Worker(tmp_path, True)
    monkeypatch.setattr(worker, "_command", [sys.executable, str(script)])
    lines = [worker.attempt(name) for name in card.PARTS]
    worker.close()
    errors = [each.get("error") for each in lines]
    assert errors == [None, "not done after 0 seconds", "the process ended with code 7", None]


def test_a_part_that_may_not_end_in_time_is_left_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card.Worker, "attempt", lambda *_: pytest.fail("began"))
    assert list(card.measure(tmp_path, False, 0.1, ["G4"])) == ["machine", "mismatch 0.5b"]
    assert not (tmp_path / card.FILE).exists()


def carried(*arguments: str) -> dict[str, str]:
    done = subprocess.run([CARRY, "--list", *arguments], capture_output=True, text=True, check=True)
    return dict(text.split("==") for text in done.stdout.split())


def test_the_wheels_are_those_of_the_lock_and_torch_stays_behind() -> None:
    wheels = carried()
    locked = {each["name"]: each.get("version") for each in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
    assert {"trl", "datasets", "msgspec", "hydra-core", "omegaconf"} <= wheels.keys()
    assert all(locked[name] == version for name, version in wheels.items())
    assert not [name for name in wheels if name.startswith(("torch", "nvidia", "triton", "cuda"))]


def test_what_a_machine_has_within_bounds_is_not_carried(tmp_path: Path) -> None:
    have = tmp_path / "have.txt"
    have.write_text("trl==1.16.4\ntransformers==5.17.0\nJinja2==3.0.0\nmsgspec==0.22.0\n")
    wheels = carried(str(have))
    assert "transformers" in wheels and "pyarrow" in wheels  # too old; not there at all
    assert not {"trl", "jinja2", "msgspec"} & wheels.keys()


WITH_TORCH = ("torch", "sympy", "mpmath", "networkx", "setuptools")
WORK = """
import sys
from pathlib import Path
from card_parts import exactness, memory, speed
from card_parts.workload import Bench

bench = Bench(True, Path(sys.argv[1]))
exactness.mismatch(bench, "qwen3-0.6b")
memory.updates(bench, "qwen2.5-0.5b", "lora")
memory.whole_node(bench, "gpu-24g", "qwen2.5-0.5b", "qwen2.5-1.5b")
print("ran")
"""


@pytest.mark.long
def test_what_is_carried_and_torch_are_enough(tmp_path: Path) -> None:
    """In a process that finds no other package. `dill` pickles modules whole whose path has no such folder."""
    have, site = tmp_path / "have.txt", tmp_path / "site-packages"
    have.write_text("")
    site.mkdir()
    for name in (*carried(str(have)), *WITH_TORCH):
        files = importlib.metadata.distribution(name).files or []
        for part in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (site / part).exists():
                (site / part).symlink_to(Path(str(files[0].locate())).parents[len(files[0].parts) - 1] / part)
    homes = (site, ROOT, ROOT / "benchmarks")
    there = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, homes))}
    command = [sys.executable, "-S", "-c", WORK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=there)
    assert done.returncode == 0 and done.stdout.split()[-1] == "ran", done.stderr[-2000:]
