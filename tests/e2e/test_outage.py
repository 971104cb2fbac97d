"""A whole node whose judge dies, sleeps, raves and comes back while it trains."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.judge_server import MODEL, Judge, Server, serving

WHOLE = 1.0
SILENT = "the judge cannot be asked, so nothing is learned"


@pytest.fixture(scope="module")
def brain() -> Judge:
    return Judge()


class Node:
    """`codezero run` with a judge behind an endpoint."""

    def __init__(self, folder: Path, url: str) -> None:
        self.metrics, self.log = folder / "run" / "metrics.jsonl", folder / "out"
        settings = {
            "run.directory": folder,
            "run.name": "run",
            "run.logs": folder / "logs",
            "swarm.identity": folder / "swarm.pem",
            "evaluator.kind": "openai",
            "evaluator.model": MODEL,
            "evaluator.url": url,
            "evaluator.seconds": 2,
            "evaluator.questions": "[yes_no]",
            "evaluator.canaries": 80,
            "evaluator.canaries_per_iteration": 2,
            "solver.problems_per_iteration": 2,
            "solver.group_size": 4,
            "proposer.model": "off",
            "evals.every": 0,
            "monitor.view": "plain",
            "login.page": "off",
            "chain.kind": "clock",
        }
        command = [sys.executable, "-m", "codezero", "run", *(f"{key}={value}" for key, value in settings.items())]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ})

    def rows(self) -> list[dict[str, Any]]:
        lines = self.metrics.read_text().splitlines(keepends=True) if self.metrics.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def until(self, what: str, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The rows since the call, once they are as said."""
        before, deadline = len(self.rows()), time.monotonic() + 180
        while not holds(fresh := self.rows()[before:]):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, f"not {what}: {fresh[-1:]} {self.log.read_text()[-2000:]}"
            time.sleep(0.1)
        return fresh

    def until_said(self, words: str, times: int) -> None:
        deadline = time.monotonic() + 180
        while self.log.read_text().count(words) < times:
            assert time.monotonic() < deadline, self.log.read_text()[-2000:]
            time.sleep(0.1)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@pytest.fixture
def node(tmp_path: Path, brain: Judge) -> Iterator[tuple[Node, Server]]:
    with serving(brain) as server:
        node = Node(tmp_path, server.url)
        try:
            yield node, server
        finally:
            node.process.kill()
            node.process.wait()


def masked(rows: list[dict[str, Any]], count: int = 2) -> bool:
    """So many iterations in a row went by without a verdict."""
    return len(rows) >= count and all(row["judge/unavailable_share"] == WHOLE for row in rows[-count:])


def judged(rows: list[dict[str, Any]]) -> bool:
    """Something was judged, and learned from."""
    return bool(rows) and rows[-1]["judge/unavailable_share"] < WHOLE and rows[-1]["reward/mean"] is not None


@pytest.mark.slow
def test_training_outlives_a_judge_that_sleeps_raves_and_dies(node: tuple[Node, Server], brain: Judge):
    running, server = node
    running.until("judged at first", judged)
    for outage, (mode, seconds) in enumerate((("slow", 60.0), ("bytes", 0.0)), start=1):
        server.state.seconds, server.state.body, server.state.mode = seconds, b'{"choices": [{"score": 1e9}]}', mode
        rows = running.until(f"masked while the judge is {mode}", masked)
        running.until_said(SILENT, outage)
        assert all(row["reward/mean"] is None and not row["train/loss"] for row in rows[-2:])
        server.state.mode = "ok"
        running.until(f"judged again after {mode}", judged)

    port = server.server_port
    server.state.stopping.set()
    server.shutdown()
    server.hang_up()
    server.server_close()
    running.until("masked while nobody listens", masked)
    running.until_said(SILENT, 3)
    with serving(brain, port):
        running.until("judged again by a new server", judged)
        assert running.stop() == 0, running.log.read_text()
