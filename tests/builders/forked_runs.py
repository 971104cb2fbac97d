"""Lives of a real node that need not load the libraries again: one process loads them, and forks for each life.

What runs is `codezero run` itself, from its arguments on: folder, models, judge, guard, loop, checkpoints. Beside a
start from nothing only the imports are left out, which keep no state of a run."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import IO, Any

TIMING = re.compile(r"time|seconds(/.*)?|tokens/sampled_per_second|eval/seconds|system/.*")
"""Of a row: what tells the clock."""

LOADER = """
import os, sys
import transformers, trl, codezero.cli, codezero.node
import codezero.code.worker, codezero.evals.exam, codezero.evaluator.judge, codezero.models.generation
import codezero.proposer.proposer, codezero.sandbox.monty, codezero.solver.learner, hydra, matplotlib.pyplot
from codezero.settings import compose
compose()
from codezero.cli import main
words = sys.stdin
print("ready", flush=True)
for line in words:
    life = os.fork()
    if life == 0:
        os.dup2(2, 1)
        code = 70
        try:
            code = main(["run", *line.rstrip("\\n").split("\\t")])
        finally:
            os._exit(code)
    print(life, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(life, 0)[1]), flush=True)
"""


class Lives:
    """Starts lives, one at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._life = 0
        assert process.stdin is not None and process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def begin(self, settings: Sequence[str]) -> int:
        """The process id of a node that runs with these arguments."""
        self._in.write("\t".join(settings) + "\n")
        self._in.flush()
        self._life = int(self._out.readline())
        return self._life

    def end(self) -> int:
        """Wait for the present life to end; its exit code, negative when a signal ended it."""
        code = int(self._out.readline())
        self._life = 0
        return code

    def give_up(self) -> None:
        """End the present life, if there is one."""
        if self._life:
            with contextlib.suppress(ProcessLookupError):
                kill(self._life)

    def live(self, settings: Sequence[str]) -> None:
        """One whole life."""
        self.begin(settings)
        code = self.end()
        assert code == 0, f"the node ended with {code}"


@contextlib.contextmanager
def lives() -> Generator[Lives]:
    """Ready to start some."""
    words = [sys.executable, "-c", LOADER]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        made = Lives(process)
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield made
        finally:
            made.give_up()
            process.kill()  # it holds nothing but libraries


def settings(base: Path, name: str, *overrides: str) -> list[str]:
    """Of a solo node without a page and a chain, with small canaries, that proposes and calibrates often."""
    return [
        f"run.directory={base}",
        f"run.name={name}",
        f"run.logs={base / 'logs'}",
        f"swarm.identity={base / 'swarm.pem'}",
        *("seed=3", "login.page=off", "monitor.view=off", "evals.every=0"),
        *("chain.kind=clock", "chain.round_seconds=31536000"),  # one round, whenever the lives are
        *("evaluator.canaries=80", "evaluator.refit_every=3", "proposer.every=1", "solver.problems_per_iteration=4"),
        *overrides,
    ]


def rows(run: Path) -> list[dict[str, Any]]:
    """Of metrics.jsonl, without what tells the clock. A line that is being written is left out."""
    lines = (run / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
    return [{key: value for key, value in json.loads(line).items() if not TIMING.fullmatch(key)} for line in lines]


def files(checkpoint: Path) -> dict[str, bytes]:
    """Every file's bytes by its path."""
    return {str(path.relative_to(checkpoint)): path.read_bytes() for path in checkpoint.rglob("*") if path.is_file()}


def checkpoints(run: Path) -> list[Path]:
    """Oldest first."""
    found = run / "checkpoints"
    return sorted(path for path in found.iterdir() if path.name.isdecimal()) if found.is_dir() else []


def unfinished(run: Path) -> list[Path]:
    """Checkpoints that are being written."""
    return list((run / "checkpoints").glob(".tmp-*"))


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def wait_for(what: str, seconds: float, there: Callable[[], object], *, every: float) -> None:
    """Look `every` so many seconds until `there()` is true."""
    deadline = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(every)
