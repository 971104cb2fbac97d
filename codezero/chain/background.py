"""A thread that does one small job again and again until it is closed, and whose failures are told once each."""

import logging
import threading
from collections.abc import Callable

from codezero.errors import ChainError

logger = logging.getLogger(__name__)


class Repeating:
    """Calls `job` every `seconds`. A ChainError is a warning when its text is new; anything else is a bug and raises
    in the thread, which ends it."""

    def __init__(self, name: str, job: Callable[[], object], seconds: float, *, once: bool = False) -> None:
        """once: only until it succeeds."""
        self._name, self._job, self._seconds, self._once = name, job, seconds, once
        self._closing = threading.Event()
        self._said = ""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for a job under way, which has deadlines of its own."""
        self._closing.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                self._job()
            except ChainError as error:
                if str(error) != self._said:
                    self._said = str(error)
                    logger.warning("%s: %s", self._name, error)
            else:
                if self._once:
                    return
                self._said = ""
            if self._closing.wait(self._seconds):
                return
