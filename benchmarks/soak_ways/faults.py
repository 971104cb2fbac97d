"""The faults of `soak.py`. Each is begun, lasts a while and is healed; none pretends.

Judge: its endpoint answers 503, sleeps, or its process is killed. Chain: its process hangs (SIGSTOP), and is killed at
the end. Disk: the file system that everything is on is filled to its last byte, again and again. Peer: a process that
floods the node's peer-to-peer port with what no honest node sends. Clock: an hour forward or back, as Python reads it.
Child: the node is killed with SIGKILL."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from living import TESTS, Clock, Judge, Living, below

HOUR = 3600.0
PATIENCE = 45.0  # Seconds to wait for a process that a fault is to hit


class Fault(Protocol):
    def begin(self, node: Living) -> str:
        """How. Empty: what it was to hit was not there."""
        ...

    def heal(self, node: Living) -> None: ...


class JudgeDown:
    def __init__(self, judge: Judge) -> None:
        self._judge, self._ways, self._way = judge, cycle(["503", "slow", "killed"]), ""

    def begin(self, node: Living) -> str:
        self._way = next(self._ways)
        if self._way == "killed":
            self._judge.kill()
            self._judge.start()  # as whoever runs it does; loading takes its time
        else:
            self._judge.tell(mode=self._way, seconds=60.0, bodies=[])
        return self._way

    def heal(self, node: Living) -> None:
        if self._way == "killed":
            self._judge.await_ready()
        else:
            self._judge.tell(mode="ok", bodies=[])


class ChainDown:
    def begin(self, node: Living) -> str:
        self._pid = waited_for(node.chain_pid)
        if not self._pid:
            return ""
        os.kill(self._pid, signal.SIGSTOP)
        return "hangs, then killed"

    def heal(self, node: Living) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


class DiskFull:
    """Whatever the node deletes to make room is taken too, until it is healed."""

    def begin(self, node: Living) -> str:
        self._ballast, self._over = node.disk / "ballast", threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)
        self._thread.start()
        return f"{Path(node.disk).name} filled"

    def _fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            while not self._over.wait(0.1):
                for size in (1 << 20, 1 << 12):
                    try:
                        while file.write(bytes(size)) == size:
                            pass
                    except OSError:
                        continue

    def heal(self, node: Living) -> None:
        self._over.set()
        self._thread.join()
        self._ballast.unlink()


class HostilePeer:
    """tests/fakes/hostile_peer.py, one attack after the other."""

    ATTACKS: tuple[dict[str, Any], ...] = (
        {"noise": {"count": 4}},
        {"flood_records": {"count": 1000}},
        {"find_bomb": {"times": 64}},
        {"wrong_rounds": {}},
        {"flood_requests": {"count": 1000}},
        {"stream_bomb": {"megabytes": 8}},
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "hostile"
        self._folder.mkdir(exist_ok=True)
        self.answered = 0

    def begin(self, node: Living) -> str:
        address = waited_for(node.address)
        if not address or not waited_for(node.child):
            return ""
        open_round = max((number for number, _ in node.counted()), default=0)
        words = [sys.executable, str(TESTS / "fakes" / "hostile_peer.py"), str(self._folder), str(open_round), address]
        path = os.pathsep.join([str(TESTS), str(TESTS.parent / "benchmarks"), node.environment["PYTHONPATH"]])
        with (self._folder / "errors.log").open("ab") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                env=node.environment | {"PYTHONPATH": path},
            )  # fmt: skip
        self._thread = threading.Thread(target=self._attack, daemon=True)
        self._thread.start()
        return "floods and nonsense"

    def _attack(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            for attack in self._endless():
                print(json.dumps(attack), file=self._process.stdin, flush=True)
                if not self._process.stdout.readline():
                    return
                self.answered += 1
        except (OSError, ValueError):
            return  # healed in the middle of an attack

    def _endless(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for attack in cycle(self.ATTACKS):
            yield from attack.items()

    def heal(self, node: Living) -> None:
        for pid in below(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._thread.join(10)


class ClockJump:
    def __init__(self, clock: Clock) -> None:
        self._clock, self._jumps = clock, cycle([HOUR, -HOUR])

    def begin(self, node: Living) -> str:
        jump = next(self._jumps)
        self._clock.move(jump)
        return f"{jump:+.0f} s"

    def heal(self, node: Living) -> None:
        self._clock.move(0.0)


class ChildKilled:
    def begin(self, node: Living) -> str:
        pid = waited_for(node.child)
        if not pid:
            return ""
        os.kill(pid, signal.SIGKILL)
        return "SIGKILL"

    def heal(self, node: Living) -> None:
        """The supervisor does it."""


def waited_for(look: Any) -> Any:
    """What it returns once that is true; its last answer when that takes too long."""
    end = time.monotonic() + PATIENCE
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.2)
    return found
