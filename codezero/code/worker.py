"""The static pass in child processes, so that hostile source costs only itself.

A child holds no model and no secret, may use so much memory and so much CPU time per completion, and is replaced
when it dies. A completion that kills it is unparseable; one that it did not answer for (a busy or stopped machine) is
"could not tell"."""

import contextlib
import hashlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from codezero.code.agreement import agree
from codezero.code.mutations import transplant
from codezero.code.report import StaticReport, StaticRequest, check
from codezero.errors import EvaluatorError, translated
from codezero.system.child import Channel, Child, parent_channel, python, spawn
from codezero.system.state import Newest

MAX_TEXT = 256 * 1024  # characters of a completion, or of a problem's question and tests together, that are looked at
CACHED_REPORTS = 8_192
# children: who asks for many reports leaves a core to what goes on beside, and has two at least
WORKERS = max(2, min(16, (os.cpu_count() or 1) - 1))
START_SECONDS = 60.0
PATIENCE = 4.0  # wall seconds granted for a CPU second

Agreement = tuple[str, str, str, tuple[str, ...]]  # what `agreement.agree` takes

_RUN_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from codezero.code.worker import serve; serve(*sys.argv[2:])"

_T = TypeVar("_T")
_Item = TypeVar("_Item")


class StaticGuard(AbstractContextManager["StaticGuard"]):
    """Asks child processes for reports. Starts them at the first question; `close` ends them. One question of
    several threads at a time."""

    def __init__(self, *, seconds: float = 2.0, memory_mib: int = 512) -> None:
        """`seconds` of CPU time for one completion; `memory_mib` of address space for a child."""
        self.workers = [_Worker(seconds, memory_mib) for _ in range(WORKERS)]
        self._cache = Newest[bytes, StaticReport](CACHED_REPORTS)
        self._lock = threading.RLock()

    def check_many(self, items: Sequence[StaticRequest]) -> list[StaticReport]:
        """A report for each item, in order. Raises EvaluatorError when no child can be started."""
        encoded = [_encoded(item) for item in items]
        requests = dict.fromkeys(item for item in encoded if isinstance(item, bytes))
        with self._lock:
            new = [request for request in requests if _key(request) not in self._cache]
            answers = self._each(_Worker.check, new)
            known = {request: answers.get(request) or self._cache[_key(request)] for request in requests}
            for request, report in answers.items():
                if not report.unavailable:
                    self._cache[_key(request)] = report
        return [known[item] if isinstance(item, bytes) else item for item in encoded]

    def transplant_many(self, items: Sequence[tuple[str, str, str]]) -> list[str | None]:
        """`mutations.transplant` of each (source, old entry, new entry); None also where the child had to give up."""
        short = [item for item in items if sum(map(len, item)) <= MAX_TEXT]
        answers = self._each(lambda worker, item: worker.ask("transplant", item, tuple[str | None]), short)
        return list(map(answers.get, items))

    def agree_many(self, items: Sequence[Agreement]) -> list[bool | None]:
        """Say for each whether both programs return the same; None: not known, also where the child had to give up."""
        answers = self._each(lambda worker, item: worker.ask("agree", item, tuple[bool | None]), items)
        return [answers[item] for item in items]

    def _each(self, work: "Callable[[_Worker, _Item], _T]", items: Sequence[_Item]) -> dict[_Item, _T]:
        def share(first: int) -> list[tuple[_Item, _T]]:
            return [(item, work(self.workers[first], item)) for item in items[first::WORKERS]]

        with self._lock, ThreadPoolExecutor(WORKERS) as pool:
            return dict(chain.from_iterable(pool.map(share, range(WORKERS))))

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _encoded(item: StaticRequest) -> bytes | StaticReport:
    """Encode a request for a child, or return the report of one that no child is asked about."""
    if len(item.completion_text) > MAX_TEXT:
        return StaticReport(refusal=f"unparseable: more than {MAX_TEXT} characters")
    if len(item.question) + sum(map(len, item.tests)) > MAX_TEXT:
        return StaticReport(unavailable="the problem itself is too long")
    try:
        return msgspec.msgpack.encode(item)
    except UnicodeEncodeError:
        return StaticReport(refusal="unparseable: not valid Unicode")


def _key(request: bytes) -> bytes:
    return hashlib.sha256(request).digest()


class _Worker:
    """One child, and a new one after it."""

    def __init__(self, seconds: float, memory_mib: int) -> None:
        self.seconds, self.memory_mib, self.deaths = seconds, memory_mib, 0
        self._child: tuple[Child, Channel] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child[0].pid

    def ask(self, task: str, item: object, kind: type[tuple[_T | None]]) -> _T | None:
        """None where the child had to give up, too, or the item is no valid Unicode."""
        try:
            return self._exchange(task, item, kind)[0]
        except (UnicodeEncodeError, EOFError, OSError):  # a TimeoutError is an OSError
            return None

    def close(self) -> None:
        if self._child is not None:
            _end(*self._child)
            self._child = None

    def check(self, request: bytes) -> StaticReport:
        try:
            return self._exchange("check", msgspec.Raw(request), StaticReport)
        except TimeoutError:
            return StaticReport(unavailable="the static pass got no time from this machine")
        except (EOFError, OSError):
            return StaticReport(refusal="unparseable: the static pass could not finish it")

    def _exchange(self, task: str, request: object, kind: type[_T]) -> _T:
        """The child's answer. Raises TimeoutError, EOFError or OSError; the next request then gets a new child."""
        if self._child is None or self._child[0].poll() is not None:
            self.close()  # of one that died by itself the channel is still open
            self._child = self._start()
        channel, deadline = self._child[1], time.monotonic() + PATIENCE * self.seconds
        try:
            channel.send((task, request), deadline)
            return channel.receive(kind, deadline)
        except (EOFError, OSError):
            self.deaths += 1
            self.close()
            raise

    def _start(self) -> tuple[Child, Channel]:
        root = Path(__file__).resolve().parents[2]
        command = python("-I", "-c", _RUN_CHILD, str(root), str(self.memory_mib), str(self.seconds))
        with translated(EvaluatorError, "the static pass cannot be started", OSError):
            child, channel = spawn(command, env={}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            channel.receive(type(None), time.monotonic() + START_SECONDS)
        except (EOFError, OSError) as error:
            _end(child, channel)
            raise EvaluatorError(f"the static pass did not start in {self.memory_mib} MiB of address space") from error
        return child, channel


def _end(child: Child, channel: Channel) -> None:
    channel.close()
    child.kill()
    child.close()


def serve(memory_mib: str, seconds: str) -> None:
    """The child: answer requests until the parent is gone. The first, empty answer says that it is ready."""
    import resource

    bounds = ((resource.RLIMIT_AS, int(memory_mib) << 20), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0))
    for what, most in bounds:
        # macOS refuses RLIMIT_AS; the limits of parsing.py hold there too
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
    channel = parent_channel()
    check(StaticRequest("```python\ndef f(x):\n    return x\n```", ("assert f(1) == 1",), "f", "f(x)"))  # warm up
    answer: object = None
    with contextlib.suppress(EOFError):
        while True:
            channel.send(answer)
            task, request = channel.receive(tuple[str, msgspec.Raw])
            # its default action ends the process, also in the middle of a long call in C
            signal.setitimer(signal.ITIMER_PROF, float(seconds))
            if task == "transplant":
                answer = (transplant(*msgspec.msgpack.decode(request, type=tuple[str, str, str])),)
            elif task == "agree":
                answer = (agree(*msgspec.msgpack.decode(request, type=Agreement)),)
            else:
                answer = check(msgspec.msgpack.decode(request, type=StaticRequest))
            signal.setitimer(signal.ITIMER_PROF, 0)
