"""Child processes that never outlive this one, whole messages between the two, and which process wrote a report.

A child belongs to its parent through a pipe that nobody writes to: its end is the end of the parent, also after
kill -9. PR_SET_PDEATHSIG would not do: it fires when the starting thread ends, and macOS has none. node.json and
supervisor.json of a run folder name the process that wrote them, what it reports, and whether it lives."""

import json
import math
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeVar

import msgspec

from codezero.system.files import read_known, write_atomic
from codezero.system.signals import PARENT_PIPE

MAX_MESSAGE = 64 << 20  # Bytes of a message that is received
SUPERVISOR_FILE = "supervisor.json"  # In the run folder
_LENGTH = struct.Struct("!I")
_SIGNALS = {which.value: which.name for which in signal.Signals}
T = TypeVar("T")


def python(*words: str) -> list[str]:
    """Return the command of a Python process of ours, which imports nothing from the folder it is started in."""
    return [sys.executable, "-P", *words]


class Child(subprocess.Popen[bytes]):
    """A process that gets SIGTERM when this one is gone, provided that it calls `signals.end_with_parent`. It has a
    session of its own: Ctrl-C in the terminal reaches this process alone."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] = os.environ, **options: Any) -> None:
        """options: those of Popen; stdin is DEVNULL unless it is given. Raises OSError."""
        self._stopped = False
        inherited, own = os.pipe()
        self._parent_pipe = open(own, "wb")  # noqa: SIM115 - until `close`
        try:
            with open(inherited, "rb"):
                options = {"stdin": subprocess.DEVNULL, "env": {**env, PARENT_PIPE: str(inherited)}, **options}
                super().__init__(command, pass_fds=[inherited], start_new_session=True, **options)
        except BaseException:
            self._parent_pipe.close()
            raise

    def stop(self) -> None:
        """Send SIGTERM, once however often this is called: a second one would cut short what the first began."""
        if not self._stopped:
            self._stopped = True
            self.terminate()

    def close(self, seconds: float = 5.0) -> int:
        """Stop it, kill it after `seconds`, and reap it; its exit code, negative for a signal. May be called again."""
        self.stop()
        try:
            self.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()
        self._parent_pipe.close()
        return self.returncode

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        super().__exit__(kind, error, at)


class Channel:
    """Messages over one end of a socket pair, as msgpack behind their length. Raises EOFError when the other end is
    closed, TimeoutError at a deadline, a time.monotonic(); neither is recovered."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: object, deadline: float = math.inf) -> None:
        body = msgspec.msgpack.encode(message)
        self._wait_until(deadline)
        try:
            self._end.sendall(_LENGTH.pack(len(body)) + body)
        except ConnectionError as error:
            raise EOFError from error

    def receive(self, kind: type[T], deadline: float = math.inf) -> T:
        """Receive the next message. Raises msgspec.MsgspecError when it is no `kind`, EOFError when it is too large."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, deadline))
        if length > MAX_MESSAGE:
            raise EOFError(f"a message of {length} bytes, above {MAX_MESSAGE}")
        return msgspec.msgpack.decode(self._exactly(length, deadline), type=kind)

    def readable(self, seconds: float) -> bool:
        """Wait so long for a message, or the end, to begin to arrive."""
        return bool(select.select([self._end], [], [], seconds)[0])

    def close(self) -> None:
        self._end.close()

    def _exactly(self, count: int, deadline: float) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            self._wait_until(deadline)
            try:
                size = self._end.recv_into(view)
            except ConnectionError as error:
                raise EOFError from error
            if not size:
                raise EOFError
            view = view[size:]
        return data

    def _wait_until(self, deadline: float) -> None:
        # For the next call on the socket. After the deadline what is there already is still taken.
        self._end.settimeout(None if deadline == math.inf else max(1e-3, deadline - time.monotonic()))


def spawn(command: Sequence[str], **options: Any) -> tuple[Child, Channel]:
    """Start a child whose standard input is the other end of the channel (`parent_channel`). Raises OSError."""
    own, inherited = socket.socketpair()
    try:
        with inherited:
            return Child(command, stdin=inherited, **options), Channel(own)
    except BaseException:
        own.close()
        raise


def parent_channel() -> Channel:
    """Take the child's end of the channel, which its own children do not inherit."""
    end = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return Channel(end)


def last_line(file: IO[bytes]) -> str:
    """Return the last line in the last 4000 bytes of a seekable file; empty: none."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 4000))
    return (file.read().decode(errors="replace").strip().splitlines() or [""])[-1]


def how_it_ended(code: int, errors: IO[bytes] | None = None) -> str:
    """Say how it ended, with the last line of what it wrote to `errors`, a seekable file."""
    if code < 0:
        return f"was ended by {_SIGNALS.get(-code, f'signal {-code}')}"
    last = last_line(errors) if errors else ""
    return f"ended with code {code}" + (f": {last}" if last else "")


class ProcessReport(msgspec.Struct, frozen=True):
    """A process's report on itself; the defaults stand for what it has not written."""

    pid: int = 0
    start_ticks: int | None = None
    stopped: str | None = None  # Why it ended; None: it runs, or was killed
    peer_id: str = ""
    began: float | None = None  # Seconds since 1970
    facts: dict[str, str] = {}
    stand_ins: str = ""
    time: float = 0.0  # Of a supervisor's words, in seconds since 1970
    words: str = ""  # What becomes of the node that died
    last: bool = False  # The supervisor has given the node up and ends

    @property
    def alive(self) -> bool:
        """True while the process that wrote this is there and has not reported its end."""
        return self.pid > 0 and self.stopped is None and is_there(self.pid, self.start_ticks)


def start_of(pid: int) -> int | None:
    """Return when a process began, in clock ticks since the boot; None: unknown."""
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else None


def is_there(pid: int, start: int | None = None) -> bool:
    """Tell whether a process exists, and is the one that began at `start`. Numbers are reused; a zombie is gone."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # somebody else's
    return _stat(pid)[:1] not in (["Z"], ["X"]) and (start is None or start_of(pid) in (None, start))


def write_process(path: Path, report: Mapping[str, object]) -> None:
    """Write this process and its report, all or nothing. Raises OSError."""
    pid = os.getpid()
    write_atomic(path, json.dumps({**report, "pid": pid, "start_ticks": start_of(pid)}) + "\n")


def read_process(path: Path) -> ProcessReport:
    """Return the newest report; an empty one while there is none, or it cannot be read."""
    return read_known(path, ProcessReport, 16_384) or ProcessReport()


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5) from the state on; none where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def supervisor_words(folder: Path, node: ProcessReport) -> str:
    """Return the supervisor's words on the node of node.json; none for an older one, or of a supervisor that died."""
    report = read_process(folder / SUPERVISOR_FILE)
    return report.words if report.time >= (node.began or 0.0) and (report.last or report.alive) else ""
