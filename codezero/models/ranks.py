"""The other processes of a node that computes with several cards: rank 0 is the node, and each further card has a rank.

Rank 0 talks to each of them through a socket pair that both ends inherit, in msgspec, so no port is open for that. The
end of a socket is the end of who held it: a rank that dies is noticed while it is listened to, and a rank whose node
has ended ends itself. Tensors take another way (`models.group`).
"""

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

import msgspec

from codezero.errors import RankError
from codezero.system.signals import LEASH

logger = logging.getLogger(__name__)

STARTING_SECONDS = 1800.0
"""For the first answer of a rank, which loads the model and may have to download it."""
ANSWER_SECONDS = 900.0
"""For every other one, and for its share of a sum."""
LEAVING_SECONDS = 5.0
GRACE_SECONDS = 10.0
"""Between a rank's end and that of a node that has not noticed it: one that waits for a card to add never would."""
LOOK_SECONDS = 0.5
LENGTH = struct.Struct("!Q")
LAST_WORDS = 4000
"""Bytes at the end of what a rank said of its end."""

T = TypeVar("T")


class Ask(msgspec.Struct, frozen=True):
    what: str
    body: bytes


class Answer(msgspec.Struct, frozen=True):
    body: bytes
    said: list[tuple[int, str]]
    """(level, text) of what was logged meanwhile."""


class Channel:
    """Whole messages over a socket. Raises EOFError when nobody holds the other end any more."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def send(self, message: msgspec.Struct) -> None:
        raw = msgspec.msgpack.encode(message)
        try:
            self.end.sendall(LENGTH.pack(len(raw)) + raw)
        except ConnectionError as error:
            raise EOFError from error

    def receive(self, kind: type[T]) -> T:
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return msgspec.msgpack.decode(self._exactly(length), type=kind)

    def _exactly(self, count: int) -> bytearray:
        found = bytearray(count)
        view = memoryview(found)
        while view:
            try:
                got = self.end.recv_into(view)
            except ConnectionError as error:
                raise EOFError from error
            if not got:
                raise EOFError
            view = view[got:]
        return found


class Member:
    """One further rank, as rank 0 sees it."""

    def __init__(self, rank: int, environment: Mapping[str, str], leash: int) -> None:
        self.rank = rank
        # A file without a name, which is gone when both processes are.
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        own, theirs = socket.socketpair()
        with theirs:
            # A session of its own: Ctrl-C is for the node, which ends it by ending.
            self.process = subprocess.Popen(
                [sys.executable, "-m", "codezero.ops.rank", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                start_new_session=True,
                env=os.environ | environment | {LEASH: str(leash)},
                pass_fds=[theirs.fileno(), leash],
            )
        self.channel = Channel(own)

    def end(self) -> str:
        """How it ended, for a person; empty while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        size = self._words.seek(0, os.SEEK_END)
        self._words.seek(max(0, size - LAST_WORDS))
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        why = re.sub(r"^codezero\.errors\.\w+: ", "", lines[-1]) if lines else ""
        return f"exit code {code}: {why}" if why else f"exit code {code}"

    def close(self) -> None:
        self.channel.end.close()
        try:
            self.process.wait(LEAVING_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._words.close()


class Crew:
    """The further ranks, started at once; for one thread. Raises RankError as soon as one of them is gone."""

    def __init__(self, environments: Sequence[Mapping[str, str]], give_up: Callable[[str], None] | None = None) -> None:
        """One rank for each of `environments`. `give_up` ends a process that waits for who will not come."""
        self.size = len(environments) + 1
        """Of all ranks."""
        self._folder = Path(tempfile.mkdtemp(prefix="codezero-ranks-"))
        self.meeting = self._folder / "meeting"
        """A file through which the ranks find each other; only this user can read it."""
        self.leaving: list[Callable[[], None]] = []
        """What `close` does first while all ranks are there."""
        self._seconds = STARTING_SECONDS
        self._give_up = give_up or _give_up
        self._noticed = threading.Event()
        leash, self._leash = os.pipe()
        try:
            self._members = [Member(rank, one, leash) for rank, one in enumerate(environments, 1)]
        finally:
            os.close(leash)
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._watcher.start()

    @property
    def processes(self) -> list[int]:
        """Their ids, by rank."""
        return [member.process.pid for member in self._members]

    def tell(self, what: str, *bodies: object) -> None:
        """The same body to all, or one to each."""
        for i, member in enumerate(self._members):
            ask = Ask(what, msgspec.msgpack.encode(bodies[i if len(bodies) > 1 else 0] if bodies else None))
            member.channel.end.settimeout(ANSWER_SECONDS)
            try:
                member.channel.send(ask)
            except (EOFError, TimeoutError) as error:
                raise self.failure(error) from error

    def hear(self, kind: type[T]) -> list[T]:
        """What each says to what it was told last, by rank."""
        answers: list[T] = []
        deadline = time.monotonic() + self._seconds
        for member in self._members:
            member.channel.end.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                answer = member.channel.receive(Answer)
            except (EOFError, TimeoutError) as error:
                raise self.failure(error) from error
            for level, text in answer.said:
                logger.log(level, "rank %d: %s", member.rank, text)
            answers.append(msgspec.msgpack.decode(answer.body, type=kind))
        self._seconds = ANSWER_SECONDS
        return answers

    def failure(self, error: Exception) -> RankError:
        """What to raise when `error` came between the ranks: it names the one that is gone, and how it went."""
        self._noticed.set()
        deadline = time.monotonic() + LEAVING_SECONDS
        while not (gone := self._gone()) and not isinstance(error, TimeoutError) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.2)  # who went first takes others along; the first has the better words
        return RankError(self._gone() or gone or f"the ranks lost touch: {error or type(error).__name__}")

    def close(self) -> None:
        """Ends every rank. May be called twice."""
        if self._leash >= 0:
            for leave in [] if self._noticed.is_set() else self.leaving:
                leave()
            self._noticed.set()
            os.close(self._leash)
            self._leash = -1
            self._watcher.join()
            for member in self._members:
                with contextlib.suppress(OSError):
                    member.channel.end.shutdown(socket.SHUT_RDWR)
            for member in self._members:
                member.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _gone(self) -> str:
        """About the rank whose end says most; empty while all run."""
        ends = [(member.rank, end) for member in self._members if (end := member.end())]
        ends.sort(key=lambda one: "RankError" in one[1])  # those only say that another is gone
        return f"rank {ends[0][0]} of {self.size} is gone ({ends[0][1]})" if ends else ""

    def _watch(self) -> None:
        while not self._noticed.wait(LOOK_SECONDS):
            if gone := self._gone():
                if not self._noticed.wait(GRACE_SECONDS):
                    self._give_up(gone)
                return


def _give_up(gone: str) -> None:
    """End this process, as an error would, without the thread that does not come back."""
    logger.critical(gone)
    with contextlib.suppress(OSError):  # nobody may be reading
        os.write(2, f"codezero: RankError: {gone}\n".encode())
    os._exit(1)


def serve(channel: Channel, handlers: Mapping[str, Callable[[bytes], object]]) -> None:
    """Answer until rank 0 is gone. What a handler raises ends this rank, and is told by its end."""
    told = _Told()
    logging.getLogger().addHandler(told)
    with contextlib.suppress(EOFError):
        while True:
            ask = channel.receive(Ask)
            body = msgspec.msgpack.encode(handlers[ask.what](ask.body))
            said, told.said = told.said, []
            channel.send(Answer(body, said))


class _Told(logging.Handler):
    """Keeps warnings for the next answer: a rank writes no log of its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, record.getMessage()))
