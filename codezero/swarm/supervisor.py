"""The trainer's side of the network process: its messages, the bounded pipe, and how it is started and restarted.

Neither side waits for the other: the oldest message is dropped. An identity belongs to one living node; a daemon that a
dead one left is ended, as it holds its port and peer id."""

import atexit
import contextlib
import ipaddress
import itertools
import logging
import os
import re
import signal
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from pathlib import Path

import msgspec

from codezero.config import SwarmConfig
from codezero.errors import ChainError, ConfigError, IdentityError, SwarmError, UnreachableError, translated
from codezero.swarm.identity import AllowList
from codezero.swarm.network_status import port_of, replace_file
from codezero.swarm.wire import Kind
from codezero.system.child import Channel, how_it_ended, python, spawn
from codezero.system.files import read_known, take_lock
from codezero.system.signals import Backoff

logger = logging.getLogger(__name__)

CLOSE_SECONDS = 6.0  # For the process to end in good order; it is killed then
ANSWER_SECONDS = 8.0  # A newcomer waits so long for a chain that is being started
WAITING_MESSAGES = 64  # In a pipe; of each of these the oldest are dropped
WAITING_BODIES = 64  # That wait for the trainer
FILE, MAX_FILE = "daemon.json", 64 << 10  # Where a process notes its daemon, and the bytes of that
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LISTENING = re.compile(r"/(ip4|ip6|dns|dns4|dns6)/[^/\s]{1,255}/tcp/[1-9][0-9]{0,4}")
ADDRESS = re.compile(r"/.+/p2p/[1-9A-HJ-NP-Za-km-z]{32,64}")


def network_settings(config: SwarmConfig) -> SwarmConfig:
    """`config` with absolute paths. Raises ConfigError for a bad name, host, address or members file."""
    if not NAME.fullmatch(config.name):
        raise ConfigError(f"swarm.name={config.name} must be 1 to 64 letters, digits, '.', '_' or '-'")
    fault = f"swarm.host={config.host} must be an IP address of this machine, or 0.0.0.0"
    with translated(ConfigError, fault, ValueError, reason=False):
        ipaddress.ip_address(config.host)
    for address in config.announce:
        if not LISTENING.fullmatch(address):
            raise ConfigError(f"swarm.announce: {address} is no address; write /ip4/HOST/tcp/PORT with a port above 0")
    for address in config.bootstrap:
        if not ADDRESS.fullmatch(address):
            raise ConfigError(f"swarm.bootstrap: {address} is no address; write /ip4/HOST/tcp/PORT/p2p/PEER_ID")
    members = str(Path(config.members).resolve()) if config.members else ""
    if members:
        AllowList(Path(members))
    return replace(config, identity=str(Path(config.identity).resolve()), members=members)


class OpenRound(msgspec.Struct, frozen=True, tag=True):
    """Trainer: this round is open now."""

    round: int
    hungry: bool = False  # What had arrived was taken: refill the pull budget
    environment: bytes = b""  # As in a header: of the problems that are learned from


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Trainer: these are our groups, problems or message to the market of a round; announce them."""

    kind: Kind
    round: int
    body: bytes  # As `wire.ENCODE` makes it
    rewards: list[float | None] = []  # Mean reward of each group, None where there is none; empty for anything else
    tokenizer: bytes = bytes(32)  # Zeros where there are no token ids


class Question(msgspec.Struct, frozen=True, tag=True):
    """Trainer: ask a founder's node. Network: a newcomer asks this one, about its chain, or for its invitation."""

    id: int  # That the `Answered` repeats
    body: bytes  # Empty: for the invitation
    address: str = ""  # Of the node, ending in its peer id; empty: it is asked here
    seconds: float = 0.0


class Answered(msgspec.Struct, frozen=True, tag=True):
    """Either: the answer to a `Question`."""

    id: int
    body: bytes = b""  # Empty: a refusal
    failure: str = ""  # Why there is no answer of the node that was asked; empty: there is


class NetworkReady(msgspec.Struct, frozen=True, tag="Ready"):  # the tag is in files of earlier versions too
    """Network: the daemon is up."""

    addresses: list[str]  # Multiaddresses others can join with
    daemon: int  # Process id of the peer-to-peer daemon
    sockets: list[str]  # Paths that a killed process leaves behind


class ReceivedBody(msgspec.Struct, frozen=True, tag=True):
    """Network: a peer's body, checked against its signed header and encoded anew."""

    kind: Kind
    peer: str
    round: int
    body: bytes
    tokenizer: bytes


class PeerFeedback(msgspec.Struct, frozen=True, tag=True):
    """Trainer: feedback for one peer, whose problems we attempted. Network: feedback of one, decodable."""

    peer: str
    feedback: bytes  # As `wire.encode_feedback` makes it
    trust: float = 1.0  # In the sender, (0, 1], as `PeerTrust.chance` has it


class Counted(msgspec.Struct, frozen=True, tag=True):
    """Network: how often what happened since the last time, by name."""

    counts: dict[str, int]
    neighbours: int  # Nodes in the DHT's routing table now


class Logged(msgspec.Struct, frozen=True, tag=True):
    """Network: a warning for the trainer's log."""

    level: int
    text: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Network: why the process cannot go on."""

    reason: str


Message = (
    OpenRound | Publish | PeerFeedback | Question | Answered | NetworkReady | ReceivedBody | Counted | Logged | Failed
)
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class MessagePipe:
    """One end of the pipe: a thread that writes, and one that reads and calls `on_message`; last, once, `on_closed`."""

    def __init__(
        self, channel: Channel, on_message: Callable[[Message], None], on_closed: Callable[[], None] = lambda: None
    ) -> None:
        self._channel, self._on_message, self._on_closed = channel, on_message, on_closed
        self._waiting: deque[msgspec.Raw] = deque(maxlen=WAITING_MESSAGES)
        self._changed, self._closed = threading.Condition(), False
        ends = (self._read, self._write)
        self._threads = [threading.Thread(target=end, name=f"swarm-link-{end.__name__}", daemon=True) for end in ends]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Never blocks; the oldest waiting message is dropped when WAITING_MESSAGES are."""
        with self._changed:
            self._waiting.append(msgspec.Raw(msgspec.msgpack.encode(message)))
            self._changed.notify()

    def flush(self, seconds: float) -> None:
        """Wait until everything was written, the other side is gone, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._waiting, seconds)

    def join(self, seconds: float) -> None:
        """Wait for both threads, which end when the other side is gone, and close the channel."""
        for thread in self._threads:
            thread.join(seconds)
        self._channel.close()

    def _read(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._on_message(_decoder.decode(self._channel.receive(msgspec.Raw)))
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._on_closed()

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._waiting))
                if self._closed:
                    return
                data = self._waiting[0]
            try:
                self._channel.send(data)
            except (EOFError, OSError):
                return
            with self._changed:
                if self._waiting and self._waiting[0] is data:
                    self._waiting.popleft()
                self._changed.notify_all()


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
                    f"{self._identity} is in use: another node on this machine is this peer. Stop it, or give this one "
                    "an identity of its own: swarm.identity=FILE"
                )
        except OSError as error:  # a file system without locks
            logger.warning("%s cannot be locked (%s): see to it that one node alone uses it", self._identity, error)
        self._ready = read_known(self._file, NetworkReady, MAX_FILE)
        self.clean()

    def note(self, ready: NetworkReady) -> None:
        self._ready = ready
        replace_file(self._file, msgspec.json.encode(ready))

    def clean(self) -> None:
        """Kill the daemon of a dead network process and remove its sockets, if they are still there. The socket's
        random name in its command line tells the daemon from another process that was given its id."""
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
        self.bodies: deque[ReceivedBody] = deque(maxlen=WAITING_BODIES)
        self.feedback: deque[PeerFeedback] = deque(maxlen=256)  # Both are for the trainer to empty
        self.pid: int | None = None  # Process id of the network process; None while there is none
        self._settings, self._port, self._state = settings, settings.port, state.resolve()
        self._identity_lock = IdentityLock(Path(settings.identity), self._state)
        self._playing: OpenRound | None = None
        self._current_round: Callable[[], int] | None = None
        self._unsent: deque[Message] = deque(maxlen=8)  # Own bodies that wait for a process
        self._changed, self._closing = threading.Condition(), threading.Event()
        self._failure: str | None = None
        self._replies: dict[int, Future[Answered]] = {}  # To own questions, by their ids
        self._ids = itertools.count(1)
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
        """Wait for the process's addresses and daemon. Raises SwarmError when it failed or the time is over."""
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
        if failure:
            raise SwarmError(failure)

    def send(self, message: Message) -> None:
        """Send to the process, or to the next one while there is none. Every new process gets the open round."""
        with self._changed:
            if isinstance(message, OpenRound):
                self._playing = message
            if self._pipe is not None:
                self._pipe.send(message)
            elif not isinstance(message, OpenRound):
                self._unsent.append(message)

    def follow(self, current_round: Callable[[], int]) -> None:
        """Once the trainer plays, keep the process in the round that is open, however long an iteration takes."""
        self._current_round = current_round

    def ask(self, address: str, body: bytes, seconds: float) -> bytes:
        """Ask a founder's node; see `Question`. For any thread. Raises UnreachableError."""
        end = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closing.is_set(), seconds)
            left = end - time.monotonic()
            if self._pipe is None or left <= 0 or self._closing.is_set():
                raise UnreachableError("the network process is not ready yet")
            question = Question(next(self._ids), body, address, left)
            reply = self._replies[question.id] = Future[Answered]()
            self._pipe.send(question)
        try:
            answered = reply.result(left + CLOSE_SECONDS)
        except (TimeoutError, CancelledError) as error:
            raise UnreachableError("the network process did not answer") from error
        finally:
            self._replies.pop(question.id, None)
        if answered.failure:
            raise UnreachableError(answered.failure)
        return answered.body

    def serve(self, answer: Callable[[bytes], bytes]) -> None:
        """Answer newcomers' questions with `answer`, in threads of their own."""
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
        deaths = Backoff(1.0, 30.0)
        while True:
            began = time.monotonic()
            self._live()
            if self._closing.is_set():
                return
            self.restarts += 1
            if time.monotonic() - began >= 60.0:
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
            playing, current_round = self._playing, self._current_round
            with contextlib.suppress(ChainError):  # The last known round is kept
                if playing and current_round and (now := current_round()) != playing.round:
                    self.send(msgspec.structs.replace(playing, round=now, hungry=False))
        code = process.close(CLOSE_SECONDS)
        pipe.join(CLOSE_SECONDS)
        with self._changed:
            ready, self._pipe, self._ready, self.pid, self.neighbours = self._ready, None, None, None, 0
            for reply in list(self._replies.values()):
                reply.cancel()
            if not self._closing.is_set():
                self._failure = self._failure or f"the network process {how_it_ended(code)}; it is started again"
            if ready is None:
                self._port = self._settings.port  # perhaps the port it had last time was taken meanwhile
            self._changed.notify_all()
        self._identity_lock.clean()

    def _on_message(self, message: Message) -> None:
        """Note or answer a message, in the reading thread."""
        with self._changed:
            match message:
                case ReceivedBody():
                    self.counts["dropped"] += len(self.bodies) == WAITING_BODIES
                    self.bodies.append(message)
                case PeerFeedback():
                    self.feedback.append(message)
                case Answered(id=id):
                    if (reply := self._replies.get(id)) and not reply.done():
                        reply.set_result(message)
                case Question():
                    threading.Thread(target=self._answer, args=(self._pipe, message), daemon=True).start()
                case Counted(counts=counts, neighbours=neighbours):
                    self.counts.update(counts)
                    self.neighbours = neighbours
                case NetworkReady(addresses=addresses):
                    self._ready = message
                    self._identity_lock.note(message)
                    self._port = port_of(*addresses) or self._port  # neighbours will look for us there
                case Failed(reason=reason):
                    self._failure = f"the network process failed and is started again: {reason}"
                case Logged(level=level, text=text):
                    logger.log(level, "%s", text)
                case _:
                    logger.warning("the network process sent %s", type(message).__name__)
            self._changed.notify_all()

    def _answer(self, asker: MessagePipe, question: Question) -> None:
        """Answer the process that asked, as each counts its questions anew. Runs in a thread of its own."""
        with self._changed:
            self._changed.wait_for(lambda: self._serving or self._closing.is_set(), ANSWER_SECONDS)
            serving = self._serving
        asker.send(Answered(question.id, serving(question.body) if serving else b""))
