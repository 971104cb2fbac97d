"""Every exit code that is documented, by what brings it about; 0 and 130 of a real node are in test_run.py.

Does not show: a disk that is really full; a limit on the size of files stands for it."""

import configparser
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.documents import ROOT, launcher
from builders.forked_runs import settings

from codezero.cli import build_parser

DOCUMENT = (ROOT / "docs" / "unattended.md").read_text()


def codezero(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "codezero", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)  # type: ignore[call-overload]


@pytest.mark.slow
def test_a_judge_that_cannot_be_reached_at_the_start_is_1_with_the_remedy(tmp_path: Path) -> None:
    judge = ["evaluator.kind=openai", "evaluator.url=http://127.0.0.1:1", "evaluator.model=m", "evaluator.seconds=2"]
    done = codezero("run", *settings(tmp_path, "run", *judge))
    assert done.returncode == 1
    assert "codezero: the judge at http://127.0.0.1:1 cannot be reached" in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_no_room_is_1_and_says_so(tmp_path: Path) -> None:
    """Of checkpoints: what is smaller than the limit can still be written."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    done = codezero("run", *settings(tmp_path, "run"), preexec_fn=limit)
    assert done.returncode == 1, done.stderr
    assert "File too large" in done.stderr.splitlines()[-1]
    assert codezero("status", f"run.directory={tmp_path}").stdout.splitlines()[0].count("stopped by an error")


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["config show", "--help", "config show --json", "bench list"])
def test_what_cannot_be_printed_is_1_and_one_line(words: str, unbuffered: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m codezero {words}"
    for redirected, code, line in [
        (f"{command} >/dev/full", 1, "codezero: stdout cannot be written: No space left on device\n"),
        (f"{command} >&-", 1, "codezero: stdout cannot be written: Bad file descriptor\n"),
        (f"{command} 2>/dev/full 1>&2", 1, ""),
        (f"{command} | true; exit ${{PIPESTATUS[0]}}", 128 + signal.SIGPIPE, ""),
    ]:
        environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(["bash", "-c", redirected], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (code, line), redirected


@pytest.mark.slow
def test_a_node_whose_reader_is_gone_ends_as_by_sigpipe(tmp_path: Path) -> None:
    words = settings(tmp_path, "run", "monitor.view=plain", "login.page=off")
    command = [sys.executable, "-m", "codezero", "run", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr and process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read().count(b"Traceback") == 0 and process.wait(300) == -signal.SIGPIPE


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_the_launcher_passes_codes_through(tmp_path: Path, code: int) -> None:
    done = subprocess.run([launcher(tmp_path, f"exit {code}"), "doctor"], cwd="/", timeout=120, check=False)
    assert done.returncode == code


def test_the_launcher_is_the_process_that_it_starts(tmp_path: Path) -> None:
    """A signal to it reaches the node, and its end by one is seen: no shell stands between."""
    path = launcher(tmp_path, "kill -9 $$")
    assert subprocess.run([path], timeout=120, check=False).returncode == -signal.SIGKILL
    shell = subprocess.run(["bash", "-c", f"{shlex.quote(str(path))}; exit $?"], timeout=120, check=False)
    assert shell.returncode == 137


def commands() -> list[list[str]]:
    """Of the document, as the launcher gives them to codezero."""
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    calls = [shlex.split(line, comments=True) for line in lines]
    assert calls and all(call[0] == "./run_swarm.sh" for call in calls)
    return [call[1:] for call in calls]


@pytest.mark.long
def test_the_commands_of_the_document_do_what_they_say(tmp_path: Path) -> None:
    """In their order, in an empty folder."""
    small = ["evaluator.canaries=80", "solver.problems_per_iteration=2", "evals.every=0", "login.page=off"]
    for words in commands():
        given = [*words, *(small if words[0] == "run" else [])]
        done = codezero(*given, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
        assert done.returncode == 0, f"{words}: {done.stderr}"
    assert (tmp_path / "runs" / "home" / "report.md").is_file()


def test_the_unit_of_the_document_starts_what_there_is() -> None:
    match = re.search(r"```ini\n(.*?)```", DOCUMENT, re.DOTALL)
    assert match is not None
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(match[1])
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/run_swarm.sh") and build_parser().parse_args(words).supervise
    assert unit["Service"]["RestartPreventExitStatus"] == "2" and int(unit["Service"]["TimeoutStopSec"]) > 30
