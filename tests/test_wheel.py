"""What is packed into a wheel: all that a node reads, and nothing of whose machine it was packed on."""

import email
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKED = ("codezero", "configs")
BUILD = "import sys, hatchling.build; print(hatchling.build.build_wheel(sys.argv[1]))"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this one, with settings that somebody has made for their own node."""
    copy = tmp_path / "checkout"
    for name in (*PACKED, "benchmarks", "tools"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "local.yaml"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", ".gitignore"):
        shutil.copy(ROOT / name, copy)
    return copy


def build(checkout: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(checkout)], cwd=checkout, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return checkout / done.stdout.split()[-1]


def test_the_wheel_carries_its_licence_and_says_which(checkout: Path) -> None:
    with zipfile.ZipFile(build(checkout)) as wheel:
        info = next(name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
        for name in ("LICENSE", "NOTICE"):
            assert wheel.read(f"{info}/licenses/{name}") == (ROOT / name).read_bytes()
        card = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert card["License-Expression"] == "Apache-2.0"
    assert not [line for line in card.get_all("Classifier", []) if line.startswith("License")]


@pytest.mark.parametrize("ignored", [True, False], ids=["a-checkout", "without-gitignore"])
def test_the_settings_of_ones_own_are_not_in_the_wheel_and_the_shipped_ones_are(checkout: Path, ignored: bool) -> None:
    if not ignored:
        (checkout / ".gitignore").unlink()
    shipped = {name: files(checkout / name) for name in PACKED}
    (checkout / "configs" / "local.yaml").write_text("hub.token_file: mine\n")
    (checkout / "swarm.pem").write_text("a key")
    with zipfile.ZipFile(build(checkout)) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    expected = {f"codezero/{name}" for name in shipped["codezero"]}
    expected |= {f"codezero/configs/{name}" for name in shipped["configs"]}
    assert packed == expected
    assert not [name for name in packed if "benchmark" in name or "simulation" in name]


@pytest.mark.long
def test_a_node_runs_from_the_wheel_alone_in_an_empty_folder(checkout: Path, tmp_path: Path) -> None:
    """With the libraries of this environment; `uvx --from dist/*.whl` would fetch them."""
    with zipfile.ZipFile(build(checkout)) as wheel:
        wheel.extractall(tmp_path / "installed")
    empty = tmp_path / "empty"
    empty.mkdir()
    words = ["run", "run.max_iterations=1", "evaluator.canaries=80", "evals.problems=10", "login.page=off"]
    there = os.environ | {"PYTHONPATH": str(tmp_path / "installed"), "CODEZERO_LOCAL": ""}
    for command in (words, ["runs"], ["ask", "--problem", "1", "--json", "evaluator.canaries=80"]):
        done = subprocess.run(
            [sys.executable, "-m", "codezero", *command], cwd=empty, env=there, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["policies"]) == 2


def test_without_the_checkout_bench_says_in_one_line_where_benchmarks_are(checkout: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(checkout)) as wheel:
        wheel.extractall(tmp_path / "installed")
    for name in ("list", "gossip"):
        done = subprocess.run(
            [sys.executable, "-m", "codezero", "bench", name],
            cwd=tmp_path / "installed", env=os.environ | {"PYTHONPATH": str(tmp_path / "installed")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "source checkout" in done.stderr and not done.stdout
