"""Commands: help is quick and teaches, exit codes tell the truth, wrong input is one line."""

import argparse
import contextlib
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

import codezero as package
from codezero.cli import PURPOSES, build_parser, main, parse
from codezero.commands.common import ProgressLines, composed, composed_for_reading
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.system.signals import Share


def codezero(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "codezero", *arguments], capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize("command", [[], ["run"], ["swarm"], ["swarm", "up"], ["config", "show"]])
def test_every_command_explains_itself(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0 and "usage: codezero" in capsys.readouterr().out


def test_a_misspelt_setting_exits_2_with_the_right_one() -> None:
    done = codezero("run", "solver.learning_rat=1")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("codezero: solver.learning_rat is not a setting; did you mean solver.learning_rate?")
    assert done.stderr.count("\n") == 1


def test_the_bare_command_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert "usage: codezero" in said and "codezero swarm create" in said and "exit codes:" in said


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"codezero {version('codezero')}\n"


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


MISTAKES = [
    "run run.name=../x", "run model.solver=./not-there", "run evaluator.model=./not-there", "run run.directory=file",
    "run run.max_minutes=soon", "run run.max_minutes=-1", "run seed", "run network=per", "run monitor.view=livee",
    "run login.port=99999", "run --login-port x", "run --fork not-there", "run --fresh --fork x",
    "run environment=./not-there.py:x", "run +new.key=1", "run profile=gpu-24g login.page=off monitor.view=off",
    "ask two tasks", "ask --level 9", "ask --problem 0", "ask --samples 0", "ask 'do it' --level 1",
    "ask --tests 'assert f(1) == 1'", "ask 'do it' --tests 'assert ('", "ask --checkpoint not-there",
    "ask --checkpoint begun", "runs", "runs not-there", "runs a b", "runs --limit 0", "judge not-there.jsonl",
    "judge folder", "judge broken.jsonl", "evaluate broken.jsonl", "judge verify not-there not-there",
    "status run.name=not-there", "status run.name=../x", "dashboard not-there", "dashboard login.port={taken}",
    "data check not-there.jsonl", "data show not-there.jsonl", "swarm join broken.jsonl", "swarm up --nodes 0",
    "swarm up --nodes 1000", "swarm peers", "identity show", "identity import not-there",
    "wallet create chain.passphrase_file=not-there", "wallet import --key-file broken.jsonl",
    "chain dev --data broken.jsonl", "eval humaneval --file not-there.jsonl",
    "eval synthetic --checkpoint ./not-there", "eval synthetic --samples 0",
]  # fmt: skip


@pytest.mark.parametrize("line", MISTAKES)
def test_a_users_mistake_is_2_in_one_line_without_a_class_name(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    Path("broken.jsonl").write_text("{\n")
    Path("broken.jsonl").chmod(0o600)
    Path("file").touch()
    for folder in ("folder", "runs/begun" if "begun" in words else "empty"):
        Path(folder).mkdir(parents=True)
    if "begun" in words:
        Path("runs/begun/run.json").write_text("{}")
    if "profile=gpu-24g" in words:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        done = codezero(*words, cwd=tmp_path)
        code, said = done.returncode, done.stderr
    else:
        with contextlib.ExitStack() as stack:
            if "login.port={taken}" in words:
                taken = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
                words = ["dashboard", f"login.port={taken.getsockname()[1]}"]
            code, said = main(words), capsys.readouterr().err
    assert code == 2 and said.count("\n") == 1 and said.startswith("codezero: ") and "Error" not in said
    assert len(said) < 400 and not list(Path("runs").glob("*/checkpoints"))


def test_every_command_that_is_shown_has_a_purpose_and_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    shown = capsys.readouterr().out
    named = [name for names in PURPOSES.values() for name in names.split()]
    parsers = next(action for action in build_parser()._actions if isinstance(action.choices, dict)).choices
    assert sorted([*named, "evaluate"]) == sorted(parsers)
    lines = shown[: shown.index("examples:")].splitlines()
    assert all(sum(line.startswith(f"  {name} ") for line in lines) == 1 for name in named)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "words",
    [[], ["run.name=mine"], ["run.directory=./a/b"], ["run.name=2026-11-26_13-45-00", "run.directory=x"],
     ["run.name=true"], ["run.name=1e3"], ["run.directory=null"], ["seed=3"], ["run.name='quoted'"]],
    ids=" ".join,
)  # fmt: skip
def test_reading_commands_understand_settings_as_hydra_does(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEZERO_LOCAL", "")

    def outcome(read: Callable[[argparse.Namespace], NodeConfig]) -> object:
        try:
            return read(argparse.Namespace(overrides=words)).run
        except ConfigError as error:
            return str(error)

    assert outcome(composed_for_reading) == outcome(composed)


def test_the_own_settings_count_for_reading_commands_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.yaml").write_text("run.directory: elsewhere\n")
    monkeypatch.setenv("CODEZERO_LOCAL", str(tmp_path / "own.yaml"))
    assert composed_for_reading(argparse.Namespace(overrides=["run.name=x"])).run.directory == "elsewhere"


def test_reading_commands_load_neither_hydra_nor_a_heavy_library(tmp_path: Path) -> None:
    lines = ("status", "status --json", "runs", "runs x y", "swarm peers")
    code = "import sys, codezero.swarm.identity; from codezero.cli import main\n"
    code += "for line in sys.argv[1:]: main(line.split())\nprint(*sys.modules)"
    command = [sys.executable, "-c", code, *lines]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    heavy = {"hydra", "omegaconf", "pydantic", "torch", "numpy", "hivemind", "google.protobuf"}
    assert not heavy & set(done.stdout.split())


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["judge", "a.jsonl", "--audit"], "attempts"),
        (["judge", "attempts", "a.jsonl"], "attempts"),
        (["judge", "folder"], "attempts"),
        (["evaluate", "-"], "attempts"),
        (["judge", "serve"], "serve"),
        (["judge", "verify", "a", "b"], "verify"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_judge_takes_a_file_or_a_word(
    words: list[str], given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "serve"):
        Path(name).mkdir()
    assert parse(words).handler.__name__ == given


def test_the_package_has_its_public_names_and_loads_nothing_until_they_are_used() -> None:
    code = "import codezero, sys; print([name for name in sys.modules if name.startswith('codezero.')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
    assert all(getattr(package, name) for name in package.__all__)
    assert package.__version__ == version("codezero")
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = package.nothing


def test_a_step_that_lasts_is_told_again_with_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, say = time.monotonic(), ProgressLines()
    say("loading")
    say(Share("work", 0, 4))
    assert capsys.readouterr().err == "codezero: loading …\n"  # nothing of the work is done yet
    say(Share("work", 1, 4, " problems"))
    monkeypatch.setattr("codezero.commands.common.time.monotonic", lambda: now + 30)
    said, until = "", time.perf_counter() + 20
    while "left" not in said and time.perf_counter() < until:
        time.sleep(0.05)
        said += capsys.readouterr().err
    say("")
    assert said.startswith("codezero: work: 1 of 4 problems … ") and ", about 1 m 2" in said
