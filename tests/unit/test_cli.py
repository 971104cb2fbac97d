"""Commands: help is quick and teaches, exit codes tell the truth, wrong input is one line."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import codezero as package
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


def test_the_bare_command_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "usage: codezero" in said and "codezero swarm create" in said and "exit codes:" in said


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"codezero {version('codezero')}\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["rnu"], "there is no rnu; did you mean run?"),
        (["swarm", "jion", "x"], "there is no jion; did you mean join?"),
        (["run", "seed=1", "--frsh"], "there is no option --frsh; did you mean --fresh?"),
        (["swarm", "join", "x", "--forkk=mine"], "there is no option --forkk=mine; did you mean --fork?"),
        (["status", "--jsno"], "there is no option --jsno; did you mean --json?"),
        (["zzz"], "there is no zzz; choose one of: run, "),
        (["chain"], "`codezero chain --help` explains it"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_a_misspelt_word_names_the_right_one(words: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and meant in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["run", "run.name=../x"],
        ["run", "model.solver=./not-there"],
        ["evaluate", "not-there.jsonl"],
        ["evaluate", "broken.jsonl"],
        ["data", "check", "not-there.jsonl"],
        ["swarm", "join", "broken.jsonl"],
        ["swarm", "peers"],
        ["identity", "show"],
        ["wallet", "create", "chain.passphrase_file=not-there"],
        ["wallet", "import", "--key-file", "broken.jsonl"],
        ["eval", "humaneval", "--file", "not-there.jsonl"],
        ["eval", "synthetic", "--checkpoint", "./not-there"],
        ["run", "--fork", "not-there"],
        ["run", "profile=gpu-24g", "login.page=off", "monitor.view=off"],
    ],
    ids=" ".join,
)
def test_a_users_mistake_is_2_in_one_line_without_a_class_name(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.jsonl").write_text("{\n")
    Path("broken.jsonl").chmod(0o600)
    if "profile=gpu-24g" in words:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        done = codezero(*words, cwd=tmp_path)
        code, said = done.returncode, done.stderr
    else:
        code, said = main(words), capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1 and said.startswith("codezero: ") and "Error" not in said


def test_the_package_has_its_public_names_and_loads_nothing_until_they_are_used() -> None:
    code = "import codezero, sys; print([name for name in sys.modules if name.startswith('codezero.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
    assert all(getattr(package, name) for name in package.__all__)
    assert package.__version__ == version("codezero")
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = package.nothing
