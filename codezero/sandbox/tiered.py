"""Two sandboxes, the quick one first; and how to open the one that the settings name."""

import logging

from codezero.errors import SandboxError
from codezero.sandbox.base import Execution, Job, Outcome, Sandbox
from codezero.sandbox.bubblewrap import BubblewrapSandbox
from codezero.sandbox.monty import MontySandbox

_log = logging.getLogger(__name__)


class TieredSandbox(Sandbox):
    """Asks the first; where that cannot tell or fails provisionally, the second if there is one.

    A provisional failure stands where the second cannot tell. Both end with `close`.
    """

    def __init__(self, first: Sandbox, second: Sandbox | None = None) -> None:
        self._first = first
        self._second = second

    def run(self, job: Job) -> Execution:
        """Raises SandboxError when a sandbox that is asked cannot be used."""
        first = self._first.run(job)
        if self._second is None or not (first.outcome is Outcome.UNKNOWN or first.provisional):
            return first
        second = self._second.run(job)
        return first if second.outcome is Outcome.UNKNOWN and first.provisional else second

    def close(self) -> None:
        try:
            self._first.close()
        finally:
            if self._second is not None:
                self._second.close()


def open_sandbox(which: str) -> TieredSandbox:
    """The sandbox named `auto`, `monty` or `bubblewrap`.

    auto: Monty, and bubblewrap behind it where this machine allows it. Raises SandboxError, with the reason and the
    remedy, when bubblewrap is asked for by name and cannot be had.
    """
    if which == "monty":
        return TieredSandbox(MontySandbox())
    if which == "bubblewrap":
        return TieredSandbox(BubblewrapSandbox())
    if which != "auto":
        raise ValueError(f"no sandbox is called {which!r}")
    try:
        second = BubblewrapSandbox()
    except SandboxError as reason:
        _log.info("what Monty cannot tell stays unknown; no second sandbox: %s", reason)
        second = None
    return TieredSandbox(MontySandbox(), second)
