"""`codezero swarm up`: N nodes on this machine, each a process with its own identity, seed and data order, in one DHT.

The first node founds the swarm; the others join at the addresses it writes. One summary view shows them all.
SIGINT and SIGTERM are passed on and every node saves, as it does when this process is killed; a node that dies is shown
as dead and makes the exit code 1.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codezero.compose import quoted
from codezero.config import NodeConfig
from codezero.errors import SwarmError
from codezero.monitor.swarm_view import SwarmView, summarise
from codezero.page import Page, announce, wanted
from codezero.stopping import LEASH, Stop

FOUNDING_SECONDS = 120.0
LEAVING_SECONDS = 30.0
LOOKING_SECONDS = 1.0
ADDRESSES = "addresses.txt"
"""In a node's run folder: one multiaddress a line, written when others can join."""


@dataclass(frozen=True)
class Member:
    """One node of the fleet."""

    folder: Path
    began: float
    """Seconds since 1970."""
    process: subprocess.Popen[bytes]


def run_fleet(config: NodeConfig, overrides: Sequence[str], count: int) -> int:
    """Start `count` nodes, show them until all have ended, and return the exit code. Raises SwarmError."""
    base = Path(config.run.directory) / (config.run.name or time.strftime("swarm_%Y-%m-%d_%H-%M-%S"))
    stop = Stop()
    members: list[Member] = []
    page = Page(config) if wanted(config) else None
    leash, held = os.pipe()  # what nobody but this process holds ends with it, and the nodes with that
    with stop.on_signals():
        try:
            members.append(_start(config, overrides, base, 1, count, config.swarm.bootstrap, leash))
            addresses = _founded(members[0], stop)
            for index in range(2, count + 1):
                if not stop:
                    members.append(_start(config, overrides, base, index, count, addresses, leash))
            if page is not None:
                announce(page)
            _watch(members, config.monitor.view, stop)
        finally:
            codes = _leave(members)
            if page is not None:
                page.close()
            os.close(leash)
            os.close(held)
    if stop.received is signal.SIGINT:
        return 130
    return 0 if all(code == 0 for code in codes) else 1


def _start(
    config: NodeConfig,
    overrides: Sequence[str],
    base: Path,
    index: int,
    count: int,
    bootstrap: Sequence[str],
    leash: int,
) -> Member:
    folder = base / f"node-{index}"
    folder.mkdir(parents=True, exist_ok=True)
    # torch's own choice of threads would be all cores, in every node
    share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // count))}
    command = [
        sys.executable,
        "-m",
        "codezero",
        "run",
        "profile=peer",
        *overrides,
        f"run.directory={quoted(base)}",
        f"run.name={folder.name}",
        f"run.logs={quoted(folder / 'logs')}",
        f"seed={config.seed + index - 1}",
        f"swarm.identity={quoted(folder / 'swarm.pem')}",
        f"swarm.bootstrap=[{','.join(bootstrap)}]",
        f"swarm.port={config.swarm.port if index == 1 else 0}",
        "monitor.view=off",
        "login.page=off",
    ]
    began = time.time()
    with (folder / "output.log").open("ab") as output:
        # A session of its own: Ctrl-C reaches the fleet alone, which passes it on once.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | share | {LEASH: str(leash)},
            pass_fds=[leash],
        )
    return Member(folder, began, process)


def _founded(first: Member, stop: Stop) -> list[str]:
    """The first node's addresses, once others can join there."""
    path = first.folder / ADDRESSES
    deadline = time.monotonic() + FOUNDING_SECONDS
    while time.monotonic() < deadline and not stop:
        if path.is_file() and path.stat().st_mtime >= first.began:  # else it is of an earlier start
            return path.read_text().split()
        if first.process.poll() is not None:
            raise SwarmError(f"the first node ended before it could be joined; see {first.folder / 'output.log'}")
        stop.event.wait(0.2)
    if stop:
        return []
    raise SwarmError(f"the first node could not be joined within {FOUNDING_SECONDS:g} s; see {first.folder}/output.log")


def _watch(members: Sequence[Member], view: str, stop: Stop) -> None:
    """Show the fleet until every node has ended or a signal came."""
    folders = [member.folder for member in members]
    with contextlib.closing(SwarmView(view)) as shown:
        while not stop:
            codes = [member.process.poll() for member in members]  # every one, which also reaps the dead
            shown.update(summarise(folders))
            if None not in codes:
                return
            stop.event.wait(LOOKING_SECONDS)


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
