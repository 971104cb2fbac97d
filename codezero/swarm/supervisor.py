"""Starts the network process, passes messages, cleans up after it, and restarts it when it dies.

An identity belongs to one living node; a daemon that a dead one left is ended, as it holds its port and peer id.
"""

import atexit
import contextlib
import itertools
import logging
import os
import signal
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from codezero.config import SwarmConfig
from codezero.errors import IdentityError, SwarmError, UnreachableError
from codezero.swarm import messages
from codezero.swarm.messages import Message, MessagePipe, NetworkReady
from codezero.swarm.network_status import port_of, replace_file
from codezero.system.child import how_it_ended, python, spawn
from codezero.system.files import read_json, take_lock
from codezero.system.signals import Backoff

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
STABLE_SECONDS = 60.0
"""A process that lived this long restarts without a longer pause."""
CLOSE_SECONDS = 6.0
"""For the process to end in good order; it is killed then."""
ANSWER_SECONDS = 8.0
"""That a newcomer waits for a chain that is being started."""
UNSENT_MESSAGES = 8
"""Own bodies that wait for a process; the oldest are dropped."""
WAITING_BODIES = 64
WAITING_FEEDBACK = 256
"""Bodies and feedback that wait for the trainer; the oldest are dropped."""
FILE, MAX_FILE = "daemon.json", 64 << 10
"""Where a process notes its daemon, and the bytes of that."""


class IdentityLock:
    """The lock on one identity file, and the note of the own daemon."""

    def __init__(self, identity: Path, folder: Path) -> None:
        """`folder`: where the note survives a kill -9."""
        self._identity, self._file = identity, folder / FILE
        self._lock: int | None = None
        self._ready: NetworkReady | None = None

    def take(self) -> None:
        """Hold the identity and end what a dead node left running. Raises IdentityError when a living node holds it."""
        try:
            self._lock = os.open(self._identity, os.O_RDONLY)
            if not take_lock(self._lock):
                self.release()
                raise IdentityError(
                    f"{self._identity} is in use: another node on this machine is this peer. Stop it, or give this "
                    "one an identity of its own: swarm.identity=FILE"
                )
        except OSError as error:  # a file system without locks
            logger.warning("%s cannot be locked (%s): see to it that one node alone uses it", self._identity, error)
        with contextlib.suppress(OSError, ValueError):
            self._ready = read_json(self._file, NetworkReady, MAX_FILE)
        self.clean()

    def note(self, ready: NetworkReady) -> None:
        self._ready = ready
        replace_file(self._file, msgspec.json.encode(ready))

    def clean(self) -> None:
        """Kill the daemon of a dead network process and remove its sockets, if they are still there.

        The socket's random name in its command line tells the daemon from a stranger that was given its process id.
        """
        ready, self._ready = self._ready, None
        if ready is None or not ready.sockets:
            return
        name = os.path.basename(ready.sockets[0]).encode()
        with contextlib.suppress(OSError):
            if name and name in Path(f"/proc/{ready.daemon}/cmdline").read_bytes():
                os.kill(ready.daemon, signal.SIGKILL)
        for socket in ready.sockets:
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.lstat(socket).st_mode):
                    os.unlink(socket)
        with contextlib.suppress(OSError):
            self._file.unlink()

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


class NetworkProcess:
    """The trainer's side of the network process. `start` acts; everything else returns at once."""

    def __init__(self, settings: SwarmConfig, state: Path) -> None:
        """`settings`: of `network_settings`. `state`: folder for what outlives the process."""
        self.counts: Counter[str] = Counter()
        self.neighbours = self.restarts = 0
        self.bodies: deque[messages.ReceivedBody] = deque(maxlen=WAITING_BODIES)
        self.feedback: deque[messages.ReceivedFeedback] = deque(maxlen=WAITING_FEEDBACK)
        """Both are for the trainer to empty."""
        self.pid: int | None = None
        """Process id of the network process; None while there is none."""
        self._settings, self._port, self._state = settings, settings.port, state.resolve()
        self._identity_lock = IdentityLock(Path(settings.identity), self._state)
        self._playing: messages.OpenRound | None = None
        self._unsent: deque[Message] = deque(maxlen=UNSENT_MESSAGES)
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._failure: str | None = None
        self._replies: dict[int, messages.Answered | None] = {}
        """To what waits, by its id; None: there is none yet."""
        self._questions = itertools.count(1)
        self._serving: Callable[[bytes], bytes] | None = None
        self._pipe: MessagePipe | None = None
        self._ready: NetworkReady | None = None
        self._thread = threading.Thread(target=self._supervise, name="swarm-supervisor", daemon=True)

    def start(self) -> None:
        """Start; the process is ready seconds later. Raises IdentityError when a living node has this identity."""
        self._identity_lock.take()
        self._thread.start()
        atexit.register(self.close)

    def wait_ready(self, seconds: float) -> NetworkReady:
        """The process's addresses and daemon. Raises SwarmError when it failed or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._failure or self._closing.is_set(), seconds)
            if self._ready is not None:
                return self._ready
        self.check()
        raise SwarmError(f"the network process was not ready within {seconds:g} s")

    def check(self) -> None:
        """Raise SwarmError once for each death of the process."""
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise SwarmError(failure)

    def send(self, message: Message) -> None:
        """Send to the process, or to the next one while there is none. Every new process gets the open round."""
        with self._changed:
            if isinstance(message, messages.OpenRound):
                self._playing = message
            if self._pipe is not None:
                self._pipe.send(message)
            elif not isinstance(message, messages.OpenRound):
                self._unsent.append(message)

    def ask(self, address: str, body: bytes, seconds: float) -> bytes:
        """What a founder's node answers; see `messages.Question`. For any thread. Raises UnreachableError."""
        end = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closing.is_set(), seconds)
            pipe, left = self._pipe, end - time.monotonic()
            if pipe is None or left <= 0 or self._closing.is_set():
                raise UnreachableError("the network process is not ready yet")
            question = messages.Question(next(self._questions), body, address, left)
            self._replies[question.id] = None
            pipe.send(question)
            try:
                self._changed.wait_for(
                    lambda: self._replies[question.id] or self._pipe is not pipe or self._closing.is_set(),
                    left + CLOSE_SECONDS,
                )
            finally:
                reply = self._replies.pop(question.id)
        if reply is None or reply.failure:
            raise UnreachableError(reply.failure if reply else "the network process did not answer")
        return reply.body

    def serve(self, answer: Callable[[bytes], bytes]) -> None:
        """Answer what newcomers ask with this, in threads of their own."""
        with self._changed:
            self._serving = answer
            self._changed.notify_all()

    def close(self) -> None:
        """End the process and wait for it. May be called again."""
        atexit.unregister(self.close)
        with self._changed:
            self._closing.set()
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._identity_lock.release()

    def _supervise(self) -> None:
        deaths = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            began = time.monotonic()
            self._live()
            if self._closing.is_set():
                return
            self.restarts += 1
            if time.monotonic() - began >= STABLE_SECONDS:
                deaths.succeeded()
            if self._closing.wait(deaths.failed()):
                return

    def _live(self) -> None:
        process, channel = spawn(python("-m", "codezero.swarm.network_process"))
        with contextlib.suppress(EOFError):
            channel.send((replace(self._settings, port=self._port), str(self._state)))
        pipe = MessagePipe(channel, self._on_message)
        with self._changed:
            self._pipe, self.pid = pipe, process.pid
            if self._playing is not None:
                pipe.send(self._playing)
            while self._unsent:
                pipe.send(self._unsent.popleft())
        pipe.start()
        while process.poll() is None and not self._closing.wait(0.1):
            pass
        code = process.close(CLOSE_SECONDS)
        pipe.join(CLOSE_SECONDS)
        with self._changed:
            ready, self._pipe, self._ready, self.pid, self.neighbours = self._ready, None, None, None, 0
            if not self._closing.is_set():
                self._failure = self._failure or f"the network process {how_it_ended(code)}; it is started again"
            if ready is None:
                self._port = self._settings.port  # perhaps the port it had last time was taken meanwhile
            self._changed.notify_all()
        self._identity_lock.clean()

    def _on_message(self, message: Message) -> None:
        """Called in the reading thread."""
        with self._changed:
            match message:
                case messages.ReceivedBody():
                    self.counts["dropped"] += len(self.bodies) == WAITING_BODIES
                    self.bodies.append(message)
                case messages.ReceivedFeedback():
                    self.feedback.append(message)
                case messages.Answered(id=id):
                    self._replies.update({id: message} if id in self._replies else {})
                case messages.Question():
                    threading.Thread(target=self._answer, args=(self._pipe, message), daemon=True).start()
                case messages.Counted(counts=counts, neighbours=neighbours):
                    self.counts.update(counts)
                    self.neighbours = neighbours
                case NetworkReady(addresses=addresses):
                    self._ready = message
                    self._identity_lock.note(message)
                    self._port = port_of(*addresses) or self._port  # neighbours will look for us there
                case messages.Failed(reason=reason):
                    self._failure = f"the network process failed and is started again: {reason}"
                case messages.Logged(level=level, text=text):
                    logger.log(level, "%s", text)
                case _:
                    logger.warning("the network process sent %s", type(message).__name__)
            self._changed.notify_all()

    def _answer(self, asker: MessagePipe, question: messages.Question) -> None:
        """In a thread: the process asks a few at a time. To the process that asked, as each begins to count anew."""
        with self._changed:
            self._changed.wait_for(lambda: self._serving or self._closing.is_set(), ANSWER_SECONDS)
            serving = self._serving
        asker.send(messages.Answered(question.id, serving(question.body) if serving else b""))
