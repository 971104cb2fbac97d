"""`codezero swarm up`: N nodes on this machine, each a process with its own identity, seed and data order, in one DHT.

The first node founds the swarm; the others join at the addresses it writes. GPUs are dealt to the nodes in turn; nodes
that share one, or have none, each count on their part of the memory alone. Signals are passed on and every
node saves, as it does when this process is killed; a node that dies is shown as dead and makes the exit code 1."""

import contextlib
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codezero.config import NodeConfig
from codezero.errors import SwarmError
from codezero.login.page_process import PageProcess, announce, wanted
from codezero.models.hardware import VISIBLE, assign_cards, describe_sharing, find_cards
from codezero.monitor.terminal import SwarmView, summarise
from codezero.monitor.text import clean, count
from codezero.runs import LABEL
from codezero.settings import quoted
from codezero.swarm.network_status import ADDRESSES
from codezero.system.child import Child, last_line, python
from codezero.system.files import open_regular, set_aside
from codezero.system.signals import LEAVING_SECONDS, Stop, again

# a first node that logs nothing new for so long is given up; the limits of its start itself are its own
SILENT_SECONDS = 300.0
REPORT_SECONDS = 15.0  # between two lines that say what is waited for
LOG_HEAD = re.compile(r"^[\d-]+ [\d:,]+ [A-Z]+ \S+ ")  # time, level and module of a line of a log


@dataclass(frozen=True)
class FleetNode:
    folder: Path
    began: float  # seconds since 1970
    process: Child


def run_fleet(config: NodeConfig, overrides: Sequence[str], size: int) -> int:
    """Start `size` nodes, show them until all have ended, and return the exit code. Raises SwarmError."""
    base = Path(config.run.directory) / (config.run.name or time.strftime("swarm_%Y-%m-%d_%H-%M-%S"))
    stop, nodes, bootstrap = Stop(), list[FleetNode](), config.swarm.bootstrap
    page = PageProcess(config, ["network=peer", *overrides]) if wanted(config) else None
    cards = assign_cards(find_cards(config.model.device), size)
    print(f"codezero: {'goes on with' if any(base.glob(f'*/{LABEL}')) else 'new run'} {base.name}", flush=True)
    if sharing := describe_sharing(cards):
        print(f"codezero: {sharing}", flush=True)

    def answer(which: signal.Signals, before: int) -> None:
        """Say what the first signal brings about; with the second the nodes leave at once, with the third they die."""
        if not before:
            saving = f"saving {count(len(nodes), 'node')}, up to {LEAVING_SECONDS:g} s"
            print(f"codezero: stopping: {saving}; {again(which)}", flush=True)
        for node in nodes if before else ():
            node.process.send_signal(signal.SIGTERM if before == 1 else signal.SIGKILL)

    with stop.on_signals(answer=answer), page or contextlib.nullcontext():
        try:
            for place in range(size):
                if not stop:
                    nodes.append(_start(config, overrides, base, place, cards, bootstrap))
                if len(nodes) == 1:
                    bootstrap = founded(nodes[0], stop)
            if page is not None:
                announce(page)
            _watch(nodes, config.monitor.view, stop)
        finally:
            codes = _close(nodes)
    if stop.received is signal.SIGINT or stop.insisted:
        return 128 + (stop.insisted or signal.SIGINT)
    left_early = (-signal.SIGTERM, 128 + signal.SIGTERM) if stop else ()  # while it was starting
    return 0 if all(code in (0, *left_early) for code in codes) else 1


def _start(
    config: NodeConfig, overrides: Sequence[str], base: Path, place: int, cards: Sequence[str], bootstrap: Sequence[str]
) -> FleetNode:
    """The node at `place` in the fleet, from 0; `cards`: of each node."""
    folder = base / f"node-{place + 1}"
    folder.mkdir(parents=True, exist_ok=True)
    # torch's own choice of threads would be all cores, in every node
    share = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // len(cards)))}
    card = {VISIBLE: cards[place]} if cards[place] else {}
    settings = [
        f"run.directory={quoted(folder.parent)}",
        f"run.name={folder.name}",
        f"run.logs={quoted(folder / 'logs')}",
        f"seed={config.seed + place}",
        f"swarm.identity={quoted(folder / 'swarm.pem')}",
        f"swarm.bootstrap=[{','.join(map(quoted, bootstrap))}]",
        f"swarm.port={0 if place else config.swarm.port}",
        f"model.memory_share={config.model.memory_share / cards.count(cards[place])}",
        "monitor.view=off",
        "login.page=off",
    ]
    command = python("-m", "codezero", "run", "network=peer", *overrides, *settings)
    began = time.time()
    with set_aside(folder / "output.log").open("ab") as output:
        process = Child(command, stdout=output, stderr=output, env=os.environ | share | card)
    return FleetNode(folder, began, process)


def founded(first: FleetNode, stop: Stop) -> list[str]:
    """The first node's addresses, once others can join there; none after a request to stop. However busy the machine
    is, a node that lives and goes on logging is waited for. Raises SwarmError."""
    path, output = first.folder / ADDRESSES, first.folder / "output.log"
    reported = time.time()
    while not stop:
        if path.is_file() and path.stat().st_mtime >= first.began:  # else it is of an earlier start
            return path.read_text().split()
        if first.process.poll() is not None:
            raise SwarmError(f"the first node ended before it could be joined; see {output}")
        written, line = newest_output(first)
        if time.time() - written > SILENT_SECONDS:
            silent = f"has said nothing new for {SILENT_SECONDS:g} s; see {output} and {first.folder / 'logs'}"
            raise SwarmError(f"the first node cannot be joined yet and {silent}")
        if time.time() - reported > REPORT_SECONDS:
            reported = time.time()
            last = f"; its last words: {line}" if line else ""
            print(f"codezero: waiting for the first node, {reported - first.began:.0f} s so far{last}", flush=True)
        stop.wait(0.2)
    return []


def newest_output(node: FleetNode) -> tuple[float, str]:
    """When the node last wrote to its screen or its log since it was started, and what the last line of that says."""
    newest = (node.began, "")
    for path in (node.folder / "output.log", node.folder / "logs" / "swarm.log"):
        with contextlib.suppress(OSError), open_regular(path) as file:
            if (written := os.fstat(file.fileno()).st_mtime) >= newest[0]:
                newest = (written, last_line(file))
    return newest[0], clean(LOG_HEAD.sub("", newest[1]))


def _watch(nodes: Sequence[FleetNode], view: str, stop: Stop) -> None:
    folders = [node.folder for node in nodes]
    with contextlib.closing(SwarmView(view)) as shown:
        while not stop:
            codes = [node.process.poll() for node in nodes]  # every one, which also reaps the dead
            shown.update(summarise(folders))
            if None not in codes:
                return
            stop.wait(1.0)


def _close(nodes: Sequence[FleetNode]) -> list[int]:
    """Have every node save and end, kill those that take too long, and return the exit codes."""
    for node in nodes:
        node.process.stop()
    deadline = time.monotonic() + LEAVING_SECONDS
    return [node.process.close(max(0.0, deadline - time.monotonic())) for node in nodes]
