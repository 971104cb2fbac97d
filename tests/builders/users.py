"""Users who found and join swarms by the command line, each in a folder of his own; what any whole node has written."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from builders.monitor import read_metrics

SMALL = ["evals.every=0", "evaluator.canaries=80", "solver.problems_per_iteration=2", "monitor.view=off",
         "chain.submit_after=2", "run.name=run", "proposer.model=off", "swarm.members=registry"]  # fmt: skip


@contextlib.contextmanager
def codezero(folder: Path, *words: str, where: Sequence[str] = ()) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that runs a node in `folder`, as a user would start it there. where: stands before it."""
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join(part for part in sys.path if part)
    with (folder / "output.log").open("ab") as output:
        process = subprocess.Popen(
            [*where, sys.executable, "-m", "codezero", *words, *SMALL], cwd=folder, stdout=output, stderr=output,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(what: str, holds: Callable[[], bool], *alive: "subprocess.Popen[bytes]", seconds: float = 240) -> float:
    """Seconds until it is so."""
    start = time.monotonic()
    while not holds():
        assert all(process.poll() is None for process in alive), f"a node ended while waiting: {what}"
        assert time.monotonic() < start + seconds, f"did not happen: {what}"
        time.sleep(0.1)
    return time.monotonic() - start


def processes_naming(path: Path) -> list[int]:
    """Those but this one whose arguments name it."""
    named: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(path).encode() in (entry / "cmdline").read_bytes() and int(entry.name) != os.getpid():
                named.append(int(entry.name))
    return named


def short_run(folder: Path, *words: str, **variables: str) -> None:
    """A run of few small steps in `folder`, which must end well."""
    command = [sys.executable, "-m", "codezero", "run", "monitor.view=off", "evaluator.canaries=80", "chain.kind=clock"]
    command += ["solver.problems_per_iteration=4", "solver.group_size=2", "proposer.model=off", *words]
    done = subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def code_of(folder: Path) -> str:
    """What the founder's node prints for others."""
    match = re.search(r"codezero swarm join (cz1\w+)\n", (folder / "output.log").read_text())
    return match[1] if match else ""


def rows(folder: Path) -> list[dict[str, Any]]:
    """What its node has written of each iteration."""
    return list(read_metrics(folder / "runs" / "run" / "metrics.jsonl"))


def status(runs: Path) -> dict[str, Any]:
    """Of the newest run."""
    command = [sys.executable, "-m", "codezero", "status", "--json", f"run.directory={runs}"]
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=120).stdout)


def last_row(folder: Path) -> dict[str, Any]:
    return (rows(folder) or [{}])[-1]
