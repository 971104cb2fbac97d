"""A real node under supervision for `soak.py`, its judge behind HTTP, and everything that is read from outside it."""

import contextlib
import json
import mmap
import os
import re
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from figures import Sample

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TESTS = ROOT / "tests"
SWARM = "test"
"""The name that the hostile peer of the tests knows."""
ROUND_SECONDS = 30
MAX_DEATHS = 30
"""Far above the default of 15: where a start takes minutes faults hit the start. The most in a row is told."""
ENDING_SECONDS = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Judge:
    """The judge of the tests, which scores with the embedded weights, as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.port, self._log = free_port(), folder / "judge.log"
        self.start()
        self.await_ready()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        words = [sys.executable, str(TESTS / "fakes" / "judge_server.py"), "--port", str(self.port)]
        path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=log, env=os.environ | {"PYTHONPATH": path}
            )

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit(f"soak: the judge does not start; see {self._log}")

    def tell(self, **state: Any) -> None:
        request = urllib.request.Request(f"{self.url}/control", json.dumps(state).encode())
        with urllib.request.urlopen(request, timeout=120):
            pass

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Clock:
    """What Python processes with `environment` read; see clock/sitecustomize.py."""

    def __init__(self, folder: Path) -> None:
        path = folder / "clock"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._shown = mmap.mmap(file.fileno(), 8)
        found = os.pathsep.join(filter(None, [str(HERE / "clock"), str(ROOT), os.environ.get("PYTHONPATH")]))
        self.environment = os.environ | {"PYTHONPATH": found, "SOAK_CLOCK": str(path), "CODEZERO_LOCAL": ""}

    def move(self, seconds: float) -> None:
        struct.pack_into("d", self._shown, 0, seconds)


class Living:
    """`codezero run --supervise` with all that it writes on `disk`."""

    def __init__(self, disk: Path, keep: Path, judge: Judge, clock: Clock) -> None:
        self.disk, self.environment = disk, clock.environment
        self.run, self.chain = disk / "runs" / "soak", disk / "runs" / "chain"
        self.began = time.monotonic()
        self._births: dict[int, float] = {}
        self.steps: list[float] = []
        """When each new iteration came."""
        self._newest, self._read = 0, 0
        words = ["run", "--supervise", *self._where(), *self._what(judge.url)]
        self._terminal = keep / "terminal.log"
        with self._terminal.open("ab") as terminal:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "codezero", *words], env=self.environment, stdout=terminal, stderr=terminal
            )

    def _where(self) -> list[str]:
        return [f"run.directory={self.disk / 'runs'}", "run.name=soak"]

    def _what(self, judge: str) -> list[str]:
        disk = self.disk
        own = {"run.logs": disk / "logs", "swarm.identity": disk / "swarm.pem", "chain.directory": self.chain}
        own |= {"chain.wallet": disk / "wallet.json", "login.page": "off", "run.max_deaths": MAX_DEATHS}
        own |= {"swarm.name": SWARM, "swarm.port": free_port(), "monitor.view": "plain"}
        own |= {"evaluator.kind": "openai", "evaluator.model": "nano-judge", "evaluator.url": judge}
        own |= {"evaluator.seconds": 3, "evaluator.questions": "[yes_no]", "evaluator.canaries": 80}
        own |= {"evaluator.canaries_per_iteration": 2, "solver.problems_per_iteration": 4, "solver.group_size": 4}
        own |= {"evals.problems": 20, "evals.samples": 4, "chain.round_seconds": ROUND_SECONDS}
        own |= {"chain.submit_after": 0.75 * ROUND_SECONDS}
        return ["network=peer", *(f"{name}={value}" for name, value in own.items())]

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def child(self) -> int:
        """Process id of the node; 0: there is none now."""
        pid = next(iter(below(self.process.pid, deep=False)), 0)
        if pid:
            self._births.setdefault(pid, self.now)
        return pid

    @property
    def lives(self) -> int:
        return len(self._births)

    def chain_pid(self) -> int:
        """Of the process that serves the chain; 0: none is known."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            pid = int(json.loads((self.chain / "endpoint.json").read_bytes())["pid"])
            if b"devchain" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return 0

    def address(self) -> str:
        """Where its peer-to-peer daemon listens; empty while it does not say."""
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            return str(json.loads((self.run / "network" / "status.json").read_bytes())["addresses"][0])
        return ""

    def look(self, fault: str) -> Sample:
        """What `codezero status --json` says now, and what the processes hold."""
        words = [sys.executable, "-P", "-m", "codezero", "status", "--json", *self._where()]
        node = self.child()
        own, with_files = sizes(self.process.pid, *below(self.process.pid))
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True)
        told = json.loads(done.stdout) if done.returncode == 0 else {}
        sent = told.get("submissions") or {}
        said = [told.get("problem") or "", sent.get("problem") or ""] if told else [done.stderr.strip()[-300:]]
        return Sample(
            at=self.now,
            fault=fault,
            code=done.returncode,
            said="; ".join(filter(None, said)),
            running=bool(told.get("running")),
            age=told.get("seconds_since_step"),
            iteration=told.get("iteration"),
            accepted=sent.get("accepted"),
            mib=round(own, 2),
            pss_mib=round(with_files, 2),
            chain_mib=round(sizes(self.chain_pid())[0], 2),
            life=node,
            life_seconds=self.now - self._births.get(node, self.now),
            load=os.getloadavg()[0],
        )

    def follow(self) -> None:
        """Note the iterations that have come since the last call."""
        self.child()
        with contextlib.suppress(FileNotFoundError), (self.run / "metrics.jsonl").open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._read = 0 if size < self._read else self._read  # rows after the checkpoint were dropped
            file.seek(self._read)
            lines = file.read().split(b"\n")
            self._read = size - len(lines[-1])
            newest = max((json.loads(line)["iteration"] for line in lines[:-1]), default=0)
            if newest > self._newest:
                self._newest = newest
                self.steps.append(self.now)

    def stop(self) -> int:
        """SIGTERM, as systemd does; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(ENDING_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        if self.process.poll() is None:
            for pid in [self.process.pid, *below(self.process.pid)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()
        if (chain := self.chain_pid()) and self.process.returncode != 0:
            os.kill(chain, signal.SIGKILL)

    def deaths_in_a_row(self) -> int:
        """The most, without an iteration saved between them, as the supervisor says."""
        said = re.findall(rf"\((\d+) of {MAX_DEATHS}\)", self._terminal.read_text())
        return max(map(int, said), default=0)

    def rewards(self) -> list[float]:
        """Of the run's rows."""
        rows = map(json.loads, (self.run / "metrics.jsonl").read_bytes().splitlines())
        return [row["reward/mean"] for row in rows if row["reward/mean"] is not None and row["iteration"]]

    def counted(self) -> list[tuple[int, float]]:
        """Round and reward of all that the outbox has counted."""
        path = next(self.run.glob("outbox-*.db"), None)
        if path is None:
            raise SystemExit("soak: the node made no outbox")
        with contextlib.closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT round, reward FROM iterations ORDER BY iteration").fetchall()

    def on_chain(self, rounds: Sequence[int]) -> dict[int, int | None]:
        """What the contract holds for each round, asked by a reader that is no part of the node."""
        from codezero.chain.contract import ContractCoordinator, founded
        from codezero.chain.devchain_process import DevChainHandle
        from codezero.chain.provider import ChainClient
        from codezero.swarm.identity import Identity

        peer = Identity.load_or_create(self.disk / "swarm.pem").peer_id
        with DevChainHandle(self.chain) as chain:
            contract = ContractCoordinator(ChainClient([chain.url], chain.chain_id), founded(self.chain).contract)
            return {number: contract.reward_of(number, peer) for number in rounds}


def below(pid: int, *, deep: bool = True) -> list[int]:
    """The processes that this one has started, the embedded chain left out; `deep`: and those that they have."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z" and b"codezero.chain.devchain" not in (path / "cmdline").read_bytes():
                parents.setdefault(int(parent), []).append(int(path.name))
    found = list(parents.get(pid, []))
    for one in found if deep else []:
        found += parents.get(one, [])
    return found


def sizes(*pids: int) -> tuple[float, float]:
    """MiB of the processes: of their own making, and with mapped files. What several share is divided among them.

    Files, libraries for the most part, are divided among whoever maps them, and so depend on what else is running.
    """
    kib = {"Pss": 0, "Pss_File": 0}
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
                name, _, figure = line.partition(":")
                if name in kib:
                    kib[name] += int(figure.split()[0])
    return (kib["Pss"] - kib["Pss_File"]) / 1024, kib["Pss"] / 1024
