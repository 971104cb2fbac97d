"""Commands: help is quick and teaches, exit codes tell the truth, wrong input is one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from codezero.cli import main


def codezero(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "codezero", *arguments], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize("command", [[], ["run"], ["swarm"], ["swarm", "up"], ["nano", "build"], ["config", "show"]])
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0 and "usage: codezero" in capsys.readouterr().out


def test_a_misspelt_setting_exits_2_with_the_right_one() -> None:
    done = codezero("run", "solver.learning_rat=1")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("codezero: solver.learning_rat is not a setting; did you mean solver.learning_rate?")
    assert done.stderr.count("\n") == 1


def test_an_unknown_command_exits_2() -> None:
    assert codezero("fly").returncode == 2


def test_too_many_nodes_exit_2() -> None:
    done = codezero("swarm", "up", "--nodes", "1000")
    assert done.returncode == 2 and "--nodes=1000" in done.stderr


def test_config_show_prints_what_a_run_would_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "profile=peer"]) == 0
    assert "kind: hivemind" in capsys.readouterr().out


def test_a_directory_that_is_not_there_stops_the_start_in_one_line(tmp_path: Path) -> None:
    done = codezero("run", f"model.solver={tmp_path / 'nothing'}", "monitor.view=off", cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "model.solver=" in done.stderr and "nothing" in done.stderr and not (tmp_path / "runs").exists()
