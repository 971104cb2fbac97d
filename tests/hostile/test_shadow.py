"""The folder that a command is started in has a file for each module that somebody could import: none is executed.

Does not show: a folder in PYTHONPATH, which the user puts there, and what `python -m` imports before it runs this
package (runpy's collections, types and such); `codezero` itself imports nothing from the folder."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.users import wait_until
from e2e.test_run import command
from e2e.test_two_nodes import SMALL, rows

NAMES = ["random", "secrets", "json", "typing", "enum", "signal", "re", "argparse", "socket", "ssl", "hashlib",
         "logging", "dataclasses", "torch", "numpy", "sitecustomize", "usercustomize", "msgspec", "yaml", "hydra",
         "hivemind", "transformers", "trl", "wandb", "datasets"]  # fmt: skip
PACKAGES = ("wandb", "datasets", "hydra_plugins", "vllm", "bitsandbytes")
PACKAGE = Path(__file__).parents[2] / "codezero"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    code = f"open({str(tmp_path / 'marker')!r}, 'a').write(__file__ + chr(10))\nraise SystemExit(7)\n"
    (folder := tmp_path / "work").mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(code)
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(code)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONSAFEPATH")
    return folder


def executed(folder: Path) -> str:
    marker = folder.parent / "marker"
    return marker.read_text() if marker.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--version", "config show", "doctor", "bench list"])
def test_a_command_executes_no_file_of_its_folder(folder: Path, words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "codezero", *words.split()], capture_output=True, text=True)
    assert done.returncode in (0, 1, 2) and "Traceback" not in done.stderr and not executed(folder), done.stderr


@pytest.mark.slow
def test_a_node_and_its_children_execute_no_file_of_their_folder(folder: Path) -> None:
    settings = ["run.max_iterations=2", "network=peer", "evals.every=0", "monitor.view=plain"]
    done = subprocess.run(command(folder, *settings), capture_output=True, text=True)
    assert done.returncode == 0 and not executed(folder), done.stderr
    assert "after iteration 2" in done.stdout


@pytest.mark.long
def test_a_fleet_executes_no_file_of_its_folder(folder: Path) -> None:
    words = [sys.executable, "-m", "codezero", "swarm", "up", "--nodes", "2", f"run.directory={folder}", *SMALL]
    with subprocess.Popen([*words, "run.name=fleet", "monitor.view=off", "chain.kind=clock"]) as fleet:
        for name in ("node-1", "node-2"):
            wait_until(f"{name} plays", lambda name=name: len(rows(folder / "fleet", name)) > 1, fleet)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(90) == 0 and not executed(folder)


def test_one_place_starts_our_python_processes() -> None:
    """`measure.bench` becomes a benchmark, which imports what lies beside it."""
    files = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if "[sys.executable" in path.read_text()}
    assert files == {"system/child.py", "commands/measure.py"}
    scripts = [
        path for path in (PACKAGE.parent / "scripts").glob("*.sh") if re.search(r"-m (pip|venv)", path.read_text())
    ]
    assert all("PYTHONSAFEPATH=1" in path.read_text() for path in scripts), scripts


def test_what_libraries_start_is_as_safe(folder: Path) -> None:
    code = "import os; from codezero.__main__ import main\ntry: main()\nfinally: print(os.environ['PYTHONSAFEPATH'])"
    done = subprocess.run([sys.executable, "-P", "-c", code, "--version"], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "1" and os.environ.get("PYTHONSAFEPATH") is None
