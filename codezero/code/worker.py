"""The static pass in a child process, so that hostile source costs only itself.

The child holds no model and no secret, may use so much memory and so much CPU time per completion, and is replaced
when it dies. A completion that kills it is unparseable; one that it did not answer for (a busy or stopped machine) is
"could not tell". Neighbours in the batch are not touched.
"""

import contextlib
import hashlib
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from codezero.code.mutations import mutate_code, transplant
from codezero.code.report import StaticReport, StaticRequest, check
from codezero.errors import EvaluatorError

__all__ = ["StaticGuard", "StaticReport", "StaticRequest"]

MAX_TEXT = 256 * 1024
"""Characters of a completion, or of a problem's question and tests together, that are looked at."""
CACHED_REPORTS = 8_192
START_SECONDS = 60.0
PATIENCE = 4.0
"""Wall seconds granted for a CPU second."""

_CHECK, _TRANSPLANT, _MUTATE = b"c", b"t", b"m"
"""First byte of a message: what is asked."""
_HEADER = struct.Struct("!I")
_RUN_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from codezero.code.worker import serve; serve(*sys.argv[2:])"


_T = TypeVar("_T")


class StaticGuard:
    """Asks one child process for reports. Starts it at the first question; `close` ends it. For one thread."""

    def __init__(self, *, seconds: float = 2.0, memory_mib: int = 512) -> None:
        """`seconds` of CPU time for one completion; `memory_mib` of address space for the child."""
        self.seconds = seconds
        self.memory_mib = memory_mib
        self.deaths = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._cache: OrderedDict[bytes, StaticReport] = OrderedDict()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(StaticReport)
        self._text_decoder = msgspec.msgpack.Decoder(str | None)
        self._texts_decoder = msgspec.msgpack.Decoder(list[str])

    def check_many(self, items: Sequence[StaticRequest]) -> list[StaticReport]:
        """A report for each item, in order. Raises EvaluatorError when no child can be started."""
        return [self._check(item) for item in items]

    def transplant_many(self, items: Sequence[tuple[str, str, str]]) -> list[str | None]:
        """`mutants.transplant` of each (source, old entry, new entry); None also where the child had to give up."""
        return [self._make(_TRANSPLANT, item, self._text_decoder) for item in items]

    def mutate_many(self, items: Sequence[tuple[str, str]], count: int, *, seed: int) -> list[list[str]]:
        """`mutants.mutate_code` of each (source, entry): the same for the same `seed`."""
        requests = [(source, entry, count, f"{seed} {number}") for number, (source, entry) in enumerate(items)]
        return [self._make(_MUTATE, request, self._texts_decoder) or [] for request in requests]

    def close(self) -> None:
        if self._child is not None:
            self._stop(self._child)
            self._child = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """Process id of the child; None while there is none."""
        return None if self._child is None else self._child.pid

    def _check(self, item: StaticRequest) -> StaticReport:
        if len(item.completion_text) > MAX_TEXT:
            return StaticReport(refusal=f"unparseable: more than {MAX_TEXT} characters")
        if len(item.question) + sum(map(len, item.tests)) > MAX_TEXT:
            return StaticReport(unavailable="the problem itself is too long")
        try:
            message = self._encoder.encode(item)
        except UnicodeEncodeError:
            return StaticReport(refusal="unparseable: not valid Unicode")
        key = hashlib.sha256(message).digest()
        report = self._cache.get(key)
        if report is None:
            report = self._ask(message)
            if report.unavailable:
                return report
            self._cache[key] = report
            if len(self._cache) > CACHED_REPORTS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return report

    def _ask(self, message: bytes) -> StaticReport:
        try:
            return self._decoder.decode(self._exchange(_CHECK + message))
        except TimeoutError:
            return StaticReport(unavailable="the static pass got no time from this machine")
        except (EOFError, OSError):
            return StaticReport(refusal="unparseable: the static pass could not finish it")

    def _make(self, kind: bytes, request: tuple[str | int, ...], decoder: msgspec.msgpack.Decoder[_T]) -> _T | None:
        """What the child makes of a source; None when it is too long, not Unicode, or too much for it."""
        if sum(len(part) for part in request if isinstance(part, str)) > MAX_TEXT:
            return None
        try:
            return decoder.decode(self._exchange(kind + self._encoder.encode(request)))
        except (UnicodeEncodeError, EOFError, OSError):  # a TimeoutError is an OSError
            return None

    def _exchange(self, message: bytes) -> bytes:
        """The child's answer. Raises TimeoutError, EOFError or OSError; the next question then gets a new child."""
        if self._child is None or self._child.poll() is not None:
            self.close()  # of one that died by itself the pipes are still open
            self._child = self._start()
        child, deadline = self._child, time.monotonic() + PATIENCE * self.seconds
        try:
            _send(child, message, deadline)
            return _receive(child, deadline)
        except (EOFError, OSError):
            self.deaths += 1
            self._stop(child)
            self._child = None
            raise

    def _start(self) -> subprocess.Popen[bytes]:
        root = Path(__file__).resolve().parents[2]
        command = [sys.executable, "-I", "-c", _RUN_CHILD, str(root), str(self.memory_mib), str(self.seconds)]
        try:
            # its own session: Ctrl-C in the terminal is for the node, which then closes the child in order
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        except OSError as error:
            raise EvaluatorError(f"the static pass cannot be started: {error}") from error
        assert child.stdin is not None
        os.set_blocking(child.stdin.fileno(), False)
        try:
            _receive(child, time.monotonic() + START_SECONDS)
        except (TimeoutError, EOFError, OSError) as error:
            self._stop(child)
            raise EvaluatorError(
                f"the static pass did not start in {self.memory_mib} MiB; try a larger evaluator.guard_memory_mib"
            ) from error
        return child

    @staticmethod
    def _stop(child: subprocess.Popen[bytes]) -> None:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def _send(child: subprocess.Popen[bytes], message: bytes, deadline: float) -> None:
    assert child.stdin is not None
    pipe = child.stdin.fileno()
    rest = memoryview(_HEADER.pack(len(message)) + message)
    while rest:
        if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
            raise TimeoutError
        rest = rest[os.write(pipe, rest) :]


def _receive(child: subprocess.Popen[bytes], deadline: float) -> bytes:
    assert child.stdout is not None
    pipe = child.stdout.fileno()

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(pipe, count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    return exactly(_HEADER.unpack(exactly(_HEADER.size))[0])


def serve(memory_mib: str, seconds: str) -> None:
    """The child: answer requests from stdin on stdout until stdin ends. The first, empty answer says it is ready."""
    _limit(int(memory_mib))
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    check(StaticRequest("```python\ndef f(x):\n    return x\n```", ("assert f(1) == 1",), "f", "f(x)"))  # warm up
    reply = b""
    while True:
        replies.write(_HEADER.pack(len(reply)) + reply)
        replies.flush()
        header = requests.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return
        message = requests.read(_HEADER.unpack(header)[0])
        # its default action ends the process, also in the middle of a long call in C
        signal.setitimer(signal.ITIMER_PROF, float(seconds))
        reply = _answer(message[:1], message[1:])
        signal.setitimer(signal.ITIMER_PROF, 0)


_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS = msgspec.msgpack.Decoder(StaticRequest)
_RENAMINGS = msgspec.msgpack.Decoder(tuple[str, str, str])
_MUTATIONS = msgspec.msgpack.Decoder(tuple[str, str, int, str])


def _answer(kind: bytes, body: bytes) -> bytes:
    if kind == _TRANSPLANT:
        return _ENCODER.encode(transplant(*_RENAMINGS.decode(body)))
    if kind == _MUTATE:
        source, entry, count, seed = _MUTATIONS.decode(body)
        return _ENCODER.encode(mutate_code(source, Random(seed), count, entry=entry))
    return _ENCODER.encode(check(_REQUESTS.decode(body)))


def _limit(memory_mib: int) -> None:
    import resource

    size = memory_mib * 1024 * 1024
    for what, most in ((resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0)):
        # macOS refuses RLIMIT_AS; the limits of syntax.py hold there too
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
