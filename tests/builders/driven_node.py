"""Nodes in processes of their own that tests tell what to do (`fakes/driven_node.py`)."""

import contextlib
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from builders.swarm import eventually

PROGRAM = Path(__file__).parents[1] / "fakes" / "driven_node.py"
questions = (f"question {number}" for number in itertools.count())


class Node:
    """A node in a process group of its own, told what to do over a pipe."""

    def __init__(self, folder: Path, name: str, host: str, port: int, bootstrap: str, prefix: list[str]) -> None:
        command = [*prefix, sys.executable, str(PROGRAM), str(folder), name, host, str(port), bootstrap]
        self.name = name
        self.process = subprocess.Popen(
            [part for part in command if part], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            process_group=0,
        )  # fmt: skip

    def tell(self, word: str, question: str = "") -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([word, question]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the node ended"
        return json.loads(answer)

    def network(self) -> psutil.Process | None:
        pid = self.tell("process")
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(pid) if pid else None
        return None

    def daemon(self) -> psutil.Process | None:
        network = self.network()
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in network.children(recursive=True) if network else ():
                if "p2pd" in child.name():
                    return child
        return None

    def kill(self) -> None:
        """kill -9 of everything the node is: its daemon and its network process too."""
        left = psutil.Process(self.process.pid).children(recursive=True)
        for process in (*left, self.process):
            process.kill()
        self.close()
        eventually(lambda: all(map(gone, left)))

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def reaches(sender: Node, *receivers: Node, seconds: float = 180.0) -> None:
    """A fresh group of `sender` comes to each of `receivers`."""
    question = next(questions)
    sender.tell("publish", question)
    for receiver in receivers:
        eventually(lambda receiver=receiver: receiver.tell("heard", question), seconds)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
