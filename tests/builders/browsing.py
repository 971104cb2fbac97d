"""The system's Chromium at a page that `codezero dashboard` serves, with an authenticator as tests may have one."""

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from codezero.login.server import STATIC


def _chromium() -> str | None:
    """One that starts: on Ubuntu the command may only say that it is a snap."""
    paths = filter(None, map(shutil.which, ("chromium", "chromium-browser")))
    return next((path for path in paths if subprocess.call([path, "--version"], stdout=subprocess.DEVNULL) == 0), None)


CHROMIUM = _chromium()
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
AXE = Path(__file__).parents[2] / "modal-login" / "node_modules" / "axe-core" / "axe.min.js"

needs_browser = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(not (STATIC / "index.html").is_file(), reason="run scripts/build_page.sh: there is no page"),
    pytest.mark.timeout(400),
]


def free_port() -> int:
    """Free on both loopback addresses, where there are two."""
    while True:
        with socket.socket() as v4, socket.socket(socket.AF_INET6) as v6:
            v4.bind(("127.0.0.1", 0))
            port = int(v4.getsockname()[1])
            try:
                v6.bind(("::1", port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue
            return port


@dataclass
class Served:
    """A page of one folder."""

    folder: Path
    port: int
    code: str
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        return f"http://localhost:{self.port}"


def settings(folder: Path, port: int) -> list[str]:
    return [f"run.directory={folder}/runs", f"login.directory={folder}/login", f"login.port={port}",
            f"chain.wallet={folder}/wallet.json", f"chain.directory={folder}/chain", f"run.logs={folder}/logs",
            f"swarm.identity={folder}/swarm.pem"]  # fmt: skip


@contextlib.contextmanager
def served(folder: Path, port: int) -> Generator[Served]:
    """`codezero dashboard` as a process of its own, until the end of the block."""
    command = [sys.executable, "-m", "codezero", "dashboard", "--json", *settings(folder, port)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (folder / "page.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
    with process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            assert not ready["problem"], ready
            yield Served(folder, port, ready["code"], process)
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0


@contextlib.contextmanager
def browser(profile: Path, **options: Any) -> Generator[BrowserContext]:
    """With a profile that stays between two blocks. Every request that leaves this machine fails the test."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=CHROMIUM, headless=True, args=FLAGS, **options
        )
        urls: list[str] = []
        context.on("request", lambda request: urls.append(request.url))
        try:
            yield context
        finally:
            context.close()
        own = ("http://localhost:", "http://127.0.0.1:", "data:", "about:")
        assert all(url.startswith(own) for url in urls), urls


def authenticator(page: Page, *, verified: bool = True) -> None:
    """Give this page a passkey device."""
    device = page.context.new_cdp_session(page)
    device.send("WebAuthn.enable")
    abilities = ("hasResidentKey", "hasUserVerification", "automaticPresenceSimulation", "hasPrf")
    options = {"protocol": "ctap2", "transport": "internal", "isUserVerified": verified}
    device.send("WebAuthn.addVirtualAuthenticator", {"options": options | dict.fromkeys(abilities, True)})
