"""What a terminal was shown; and a command in a terminal of its own, at whose keyboard a test sits."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

TAKE = (
    "import fcntl, os, signal, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)  # Take the terminal, and Ctrl-C as at any: background jobs of a shell ignore it, and so would their children
CTRL_C = b"\x03"
NOISE = ("Traceback", "leaked", "Unclosed", "was destroyed", "never awaited", "Exception ignored", "Warning:")
"""What nobody who stops a node shall read."""


def read_terminal(terminal: int) -> bytes:
    """Empty at the end, which Linux reports as an error."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""


class Seat:
    """A command that is the foreground of its terminal, so that Ctrl-C reaches all of its process group."""

    def __init__(self, process: "subprocess.Popen[bytes]", keyboard: int) -> None:
        self.process, self._keyboard = process, keyboard
        self._shown = bytearray()
        self.ended = threading.Event()
        """Nobody holds the terminal any more: the command is gone, and so is every child that could write to it."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        return self._shown.decode(errors="replace")

    def press(self, keys: bytes = CTRL_C) -> None:
        os.write(self._keyboard, keys)

    def hang_up(self) -> None:
        """Close the terminal; the command gets SIGHUP once the reader has what was on its way."""
        os.close(self._keyboard)

    def wait_for(self, what: str, there: Callable[[], object] | None = None) -> None:
        """Until the terminal shows `what`, or until `there()`."""
        deadline = time.monotonic() + 180
        while not (what in self.shown if there is None else there()):
            assert time.monotonic() < deadline and self.process.poll() is None, f"no {what!r} in:\n{self.shown}"
            time.sleep(0.02)

    def end(self) -> int:
        """The exit code, once the command and its children are gone."""
        code = self.process.wait(180)
        assert self.ended.wait(60), f"somebody still holds the terminal:\n{self.shown}"
        return code

    def _read(self) -> None:
        while part := read_terminal(self._keyboard):
            self._shown += part
        self.ended.set()


@contextlib.contextmanager
def seated(words: Sequence[str], folder: Path, **environment: str) -> Generator[Seat]:
    """Run `words` in `folder`."""
    master, slave = pty.openpty()
    ends = {"stdin": slave, "stdout": slave, "stderr": slave}
    known = os.environ | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"} | environment
    with subprocess.Popen(
        [sys.executable, "-c", TAKE, *words], cwd=folder, env=known, start_new_session=True, **ends
    ) as process:
        os.close(slave)
        seat = Seat(process, master)
        try:
            yield seat
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            seat.ended.wait(10)
            with contextlib.suppress(OSError):  # hung up
                os.close(master)
