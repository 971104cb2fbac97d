"""A whole node that its owner has claimed: it signs through its page, and no secret is anywhere to be found."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from builders.browsing import free_port, settings
from builders.users import status, wait_until

from codezero.login.login import log_out

pytestmark = pytest.mark.timeout(400)
PASSPHRASE = "nine lives of a cat"
SMALL = ["evaluator.canaries=80", "solver.problems_per_iteration=2", "evals.every=0", "proposer.model=off",
         "monitor.view=plain", "run.name=run", "chain.submit_after=1", "chain.round_seconds=3"]  # fmt: skip


class Node:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.log = folder, port, folder / "output.log"
        command = [sys.executable, "-m", "codezero", "run", *settings(folder, port), *SMALL]
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | {"OMP_NUM_THREADS": "1"})

    def said(self, pattern: str) -> str:
        found: list[str] = []
        self.until(f"it says {pattern}", lambda: bool(found.extend(re.findall(pattern, self.log.read_text())) or found))
        return found[0]

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        wait_until(what, holds, self.process)

    def post(self, path: str, body: dict[str, Any], **headers: str) -> tuple[int, Any, str]:
        connection = http.client.HTTPConnection("localhost", self.port, timeout=120)
        try:
            sent = {"Content-Type": "application/json", "Origin": f"http://localhost:{self.port}"} | headers
            connection.request("POST", path, json.dumps(body), sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), answer.headers.get("Set-Cookie", "")
        finally:
            connection.close()

    def accepted(self) -> int:
        """Submissions that the chain took, as `codezero status` tells."""
        submissions = status(self.folder / "runs")["submissions"]
        return submissions["accepted"] if submissions else 0

    def shown_by_the_system(self) -> bytes:
        """Command lines and environments of the node and everything that it started."""
        shown = b""
        for one in (psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)):
            for name in ("cmdline", "environ"):
                shown += Path(f"/proc/{one.pid}/{name}").read_bytes()
        return shown

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(120) == 0, self.log.read_text()


def assert_nowhere(folder: Path, shown: bytes, *secrets: str) -> None:
    for secret in secrets:
        assert secret.encode() not in shown
        for path in folder.rglob("*"):
            assert not path.is_file() or secret.encode() not in path.read_bytes(), path


@pytest.mark.long
def test_a_claimed_node_goes_on_being_counted_until_it_is_logged_out(tmp_path: Path) -> None:
    port = free_port()
    node = Node(tmp_path, port)
    try:
        code = node.said(r"type the code (\d{4}-\d{4})")
        claim = {"code": code, "passphrase": PASSPHRASE}
        status, session, cookie = node.post("/api/claim/passphrase", claim)
        assert status == 200 and session["unlocked"]
        assert not (tmp_path / "wallet.json.passphrase").exists()
        token = cookie.partition("=")[2].partition(";")[0]
        key = (tmp_path / "login" / "device.key").read_bytes().hex()
        shown = node.shown_by_the_system()
        node.stop()
        node.log.write_text(node.log.read_text().replace(code, ""))  # the terminal is where the code belongs
        assert_nowhere(tmp_path, shown, PASSPHRASE, code, token, key)

        node = Node(tmp_path, port)
        before = node.accepted()
        node.until("counted again, signed by the login", lambda: node.accepted() >= before + 2)
        assert not (tmp_path / "wallet.json").exists()

        assert log_out(tmp_path / "login")
        node.until("told that nobody is logged in", lambda: "log in" in node.log.read_text())
        node.stop()
    finally:
        node.process.kill()
        node.process.wait()
