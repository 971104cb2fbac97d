"""`codezero swarm up`: N nodes on this machine, each a process with its own identity, seed and data order, in one DHT.

The first node founds the swarm; the others join at the addresses it writes. One summary view shows them all. Cards are
dealt to the nodes in turn; nodes that share one, or have none, each count on their part of the memory alone.
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
from codezero.login.page_process import Page, announce, wanted
from codezero.monitor.swarm_view import SwarmView, summarise
from codezero.monitor.text import clean
from codezero.monitor.text import count as many
from codezero.runs import LABEL
from codezero.swarm.network_status import ADDRESSES
from codezero.system.files import set_aside
from codezero.system.signals import LEASH, Stop, again
from codezero.wiring.hardware import Seat, deal, find_cards, told

SILENT_SECONDS = 300.0
"""A first node that says nothing new for so long is given up; the limits of its start itself are its own."""
TELLING_SECONDS = 15.0
"""From one line that says what is waited for to the next."""
MOST_WORDS = 4096
"""Bytes at the end of a file in which its last line is looked for."""
LEAVING_SECONDS = 30.0
LEFT_EARLY = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Codes of a node that was asked to stop while it was starting."""
LOOKING_SECONDS = 1.0


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
    page = Page(config, ["network=peer", *overrides]) if wanted(config) else None
    seats = deal(find_cards(config.model.device), count)
    print(f"codezero: {'goes on with' if any(base.glob(f'*/{LABEL}')) else 'new run'} {base.name}", flush=True)
    if sharing := told(seats):
        print(f"codezero: {sharing}", flush=True)
    leash, held = os.pipe()  # what nobody but this process holds ends with it, and the nodes with that

    def answer(which: signal.Signals, before: int) -> None:
        """Say what the first signal brings about; with the second the nodes leave at once, with the third they die."""
        if not before:
            saving = f"saving {many(len(members), 'node')}, up to {LEAVING_SECONDS:g} s"
            print(f"codezero: stopping: {saving}; {again(which)}", flush=True)
        for member in members if before else ():
            member.process.send_signal(signal.SIGTERM if before == 1 else signal.SIGKILL)

    with stop.on_signals(answer=answer):
        try:
            members.append(_start(config, overrides, base, 1, seats, config.swarm.bootstrap, leash))
            addresses = founded(members[0], stop)
            for index in range(2, count + 1):
                if not stop:
                    members.append(_start(config, overrides, base, index, seats, addresses, leash))
            if page is not None:
                announce(page)
            _watch(members, config.monitor.view, stop)
        finally:
            codes = _leave(members)
            if page is not None:
                page.close()
            os.close(leash)
            os.close(held)
    if stop.received is signal.SIGINT or stop.insisted:
        return 128 + (stop.insisted or signal.SIGINT)
    return 0 if all(code == 0 or (stop and code in LEFT_EARLY) for code in codes) else 1


def _start(
    config: NodeConfig,
    overrides: Sequence[str],
    base: Path,
    index: int,
    seats: Sequence[Seat],
    bootstrap: Sequence[str],
    leash: int,
) -> Member:
    folder = base / f"node-{index}"
    folder.mkdir(parents=True, exist_ok=True)
    # torch's own choice of threads would be all cores, in every node
    share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // len(seats)))}
    seat = seats[index - 1]
    command = [
        sys.executable,
        "-m",
        "codezero",
        "run",
        "network=peer",
        *overrides,
        f"run.directory={quoted(base)}",
        f"run.name={folder.name}",
        f"run.logs={quoted(folder / 'logs')}",
        f"seed={config.seed + index - 1}",
        f"swarm.identity={quoted(folder / 'swarm.pem')}",
        f"swarm.bootstrap=[{','.join(map(quoted, bootstrap))}]",
        f"swarm.port={config.swarm.port if index == 1 else 0}",
        f"model.memory_share={config.model.memory_share * seat.share}",
        "monitor.view=off",
        "login.page=off",
    ]
    began = time.time()
    with set_aside(folder / "output.log").open("ab") as output:
        # A session of its own: Ctrl-C reaches the fleet alone, which passes it on once.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=os.environ | share | seat.environment | {LEASH: str(leash)},
            pass_fds=[leash],
        )
    return Member(folder, began, process)


def founded(first: Member, stop: Stop) -> list[str]:
    """The first node's addresses, once others can join there; none after a wish to stop.

    However busy the machine is, a node that lives and goes on saying something is waited for. Raises SwarmError.
    """
    path = first.folder / ADDRESSES
    began = heard = told = time.monotonic()
    known = (0, "")
    while not stop:
        if path.is_file() and path.stat().st_mtime >= first.began:  # else it is of an earlier start
            return path.read_text().split()
        if first.process.poll() is not None:
            raise SwarmError(f"the first node ended before it could be joined; see {first.folder / 'output.log'}")
        now = time.monotonic()
        if (words := said(first)) != known:
            known, heard = words, now
        if now - heard > SILENT_SECONDS:
            raise SwarmError(
                f"the first node cannot be joined yet and has said nothing new for {SILENT_SECONDS:g} s; see "
                f"{first.folder / 'output.log'} and {first.folder / 'logs'}"
            )
        if now - told > TELLING_SECONDS:
            last = f"; its last words: {known[1]}" if known[1] else ""
            print(f"codezero: waiting for the first node, {now - began:.0f} s so far{last}", flush=True)
            told = now
        stop.wait(0.2)
    return []


def said(member: Member) -> tuple[int, str]:
    """How many bytes its screen and its log hold, and the newest line of those written since it was started."""
    size, newest = 0, (0.0, "")
    for path in (member.folder / "output.log", member.folder / "logs" / "swarm.log"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            about = os.fstat(file.fileno())
            size += about.st_size
            file.seek(max(0, about.st_size - MOST_WORDS))
            lines = file.read(MOST_WORDS).decode(errors="replace").strip().splitlines()
            if about.st_mtime >= member.began and lines:
                newest = max(newest, (about.st_mtime, lines[-1]))
    return size, clean(newest[1])


def _watch(members: Sequence[Member], view: str, stop: Stop) -> None:
    """Show the fleet until every node has ended or a signal came."""
    folders = [member.folder for member in members]
    with contextlib.closing(SwarmView(view)) as shown:
        while not stop:
            codes = [member.process.poll() for member in members]  # every one, which also reaps the dead
            shown.update(summarise(folders))
            if None not in codes:
                return
            stop.wait(LOOKING_SECONDS)


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
