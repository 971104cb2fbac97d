"""`codezero swarm up`: N nodes on this machine, each a process with its own identity, seed and data order, in one DHT.

The first node founds the swarm; the others join at the addresses it writes. One summary view shows them all.
SIGINT and SIGTERM are passed on and every node saves; a node that dies is shown as dead and makes the exit code 1.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codezero.config import NodeConfig
from codezero.errors import SwarmError
from codezero.monitor.swarm_view import SwarmView, summarise

FOUNDING_SECONDS = 120.0
LEAVING_SECONDS = 30.0
ADDRESSES = "addresses.txt"
"""In a node's run folder: one multiaddress a line, written when others can join."""


@dataclass(frozen=True)
class Member:
    """One node of the fleet."""

    folder: Path
    process: subprocess.Popen[bytes]


def run_fleet(config: NodeConfig, overrides: Sequence[str], count: int) -> int:
    """Start `count` nodes, show them until all have ended, and return the exit code. Raises SwarmError."""
    base = Path(config.run.directory) / (config.run.name or time.strftime("swarm_%Y-%m-%d_%H-%M-%S"))
    stopping = threading.Event()
    received: list[int] = []

    def stop(which: int, _frame: object) -> None:
        received.append(which)
        stopping.set()

    previous = {which: signal.signal(which, stop) for which in (signal.SIGINT, signal.SIGTERM)}
    members: list[Member] = []
    try:
        members.append(_start(config, overrides, base, 1, count, bootstrap=config.swarm.bootstrap))
        addresses = _founded(members[0], stopping)
        for index in range(2, count + 1):
            members.append(_start(config, overrides, base, index, count, bootstrap=addresses))
        _watch(members, config.monitor.view, stopping)
    finally:
        codes = _leave(members)
        for which, handler in previous.items():
            signal.signal(which, handler)
    if signal.SIGINT in received:
        return 130
    return 0 if all(code == 0 for code in codes) else 1


def _start(
    config: NodeConfig, overrides: Sequence[str], base: Path, index: int, count: int, bootstrap: Sequence[str]
) -> Member:
    folder = base / f"node-{index}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADDRESSES).unlink(missing_ok=True)
    threads = config.model.threads or max(1, (os.cpu_count() or 1) // count)
    command = [
        sys.executable,
        "-m",
        "codezero",
        "run",
        "profile=peer",
        *overrides,
        f"run.directory={base}",
        f"run.name={folder.name}",
        f"run.logs={folder / 'logs'}",
        f"seed={config.seed + index - 1}",
        f"model.threads={threads}",
        f"swarm.identity={folder / 'swarm.pem'}",
        f"swarm.bootstrap=[{','.join(bootstrap)}]",
        f"swarm.port={config.swarm.port if index == 1 else 0}",
        "monitor.view=off",
    ]
    with (folder / "output.log").open("ab") as output:
        # A session of its own: Ctrl-C reaches the fleet alone, which passes it on once.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    return Member(folder, process)


def _founded(first: Member, stopping: threading.Event) -> list[str]:
    """The first node's addresses, once others can join there."""
    path = first.folder / ADDRESSES
    deadline = time.monotonic() + FOUNDING_SECONDS
    while time.monotonic() < deadline and not stopping.is_set():
        if path.is_file():
            return path.read_text().split()
        if first.process.poll() is not None:
            raise SwarmError(f"the first node ended before it could be joined; see {first.folder / 'output.log'}")
        stopping.wait(0.2)
    if stopping.is_set():
        return []
    raise SwarmError(f"the first node could not be joined within {FOUNDING_SECONDS:g} s; see {first.folder}/output.log")


def _watch(members: Sequence[Member], view: str, stopping: threading.Event) -> None:
    """Show the fleet until every node has ended or a signal came."""
    folders = [member.folder for member in members]
    with SwarmView(view) as shown:
        while not stopping.is_set():
            alive = [member.process.poll() is None for member in members]
            shown.update(summarise(folders, alive))
            if not any(alive):
                return
            stopping.wait(1.0)


def _leave(members: Sequence[Member]) -> list[int]:
    """Ask every node to save and go, then insist; returns their exit codes."""
    for member in members:
        if member.process.poll() is None:
            member.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + LEAVING_SECONDS
    for member in members:
        try:
            member.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            member.process.kill()
            member.process.wait()
    return [member.process.returncode for member in members]
