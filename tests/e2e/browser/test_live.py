"""The dashboard in a real browser while a real node learns."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from builders.browsing import browser, free_port, needs_browser, settings
from playwright.sync_api import Page, expect

pytestmark = needs_browser


@pytest.mark.slow
def test_the_page_follows_a_run_as_it_goes(tmp_path: Path) -> None:
    port = free_port()
    small = ["evaluator.canaries=80", "solver.problems_per_iteration=2", "evals.problems=5", "evals.every=5",
             "evals.samples=2", "proposer.model=off", "monitor.view=plain", "run.name=live"]  # fmt: skip
    with running(tmp_path, *settings(tmp_path, port), *small) as node, browser(tmp_path / "profile") as context:
        page = context.new_page()
        wait_for_page(page, f"http://localhost:{port}", node)
        iteration = page.locator(".figures dt:has-text('iteration') + dd").first  # an exam's is elsewhere
        iteration.wait_for(timeout=120_000)
        first = iteration.inner_text()
        expect(iteration).not_to_have_text(first, timeout=60_000)
        node.send_signal(signal.SIGTERM)
        assert node.wait(100) == 0, (tmp_path / "output.log").read_text()


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Generator["subprocess.Popen[bytes]"]:
    """A node, ended at the end in any case."""
    command = [sys.executable, "-m", "codezero", "run", *words]
    with (folder / "output.log").open("wb") as output:
        node = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"OMP_NUM_THREADS": "1"})
    with node:
        try:
            yield node
        finally:
            node.kill()


def wait_for_page(page: Page, url: str, node: "subprocess.Popen[bytes]") -> None:
    """Until the node's own page answers."""
    for _ in range(200):
        assert node.poll() is None, "the node ended early"
        try:
            page.goto(url)
            return
        except Exception as error:
            if "ERR_CONNECTION_REFUSED" not in str(error):
                raise
            page.wait_for_timeout(500)
    raise AssertionError("no page was served")
