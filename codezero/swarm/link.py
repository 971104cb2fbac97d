"""What a trainer and its network process say to each other, and the bounded pipe they say it over.

Only MessagePack bytes cross. Both directions drop the oldest message when the other side does not keep up: training
never waits for the network, and the network never waits for training.
"""

import re
import threading
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection

import msgspec

from codezero.swarm.schema import Kind

WAITING_MESSAGES = 64
MAX_MESSAGE = 4 << 20
"""Bytes: a body and its few words of context."""


class Playing(msgspec.Struct, frozen=True, tag=True):
    """Trainer: this round is open now."""

    round: int
    hungry: bool = False
    """What was heard has been taken; as much again is welcome."""


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Trainer: these are our groups, problems or withdrawals of a round; announce them."""

    kind: Kind
    round: int
    body: bytes
    """As `wire.encode_body`, `encode_proposals` or `encode_withdrawals` makes it. Withdrawals are all that are to be
    announced in that round."""
    rewards: list[float | None]
    """Mean reward of each group, None where there is none; empty for anything else."""
    tokenizer: bytes


class Tell(msgspec.Struct, frozen=True, tag=True):
    """Trainer: say this to one peer, whose problems we attempted."""

    peer: str
    feedback: bytes
    """As `wire.encode_feedback` makes it."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Trainer: end in good order."""


class Ready(msgspec.Struct, frozen=True, tag=True):
    """Network: the daemon is up."""

    addresses: list[str]
    """Multiaddresses others can join with."""
    daemon: int
    """Process id of the peer-to-peer daemon."""
    sockets: list[str]
    """Paths that a killed process leaves behind."""


class Heard(msgspec.Struct, frozen=True, tag=True):
    """Network: a peer's body, checked against its signed header and encoded anew."""

    kind: Kind
    peer: str
    round: int
    body: bytes
    tokenizer: bytes


class Told(msgspec.Struct, frozen=True, tag=True):
    """Network: a peer's feedback on problems, decodable."""

    peer: str
    feedback: bytes
    trust: float = 1.0
    """(0, 1], as `Trust.chance` has it."""


class Counted(msgspec.Struct, frozen=True, tag=True):
    """Network: how often what happened since the last time, by name."""

    counts: dict[str, int]
    neighbours: int
    """Nodes in the DHT's routing table now."""


class Logged(msgspec.Struct, frozen=True, tag=True):
    """Network: a warning for the trainer's log."""

    level: int
    text: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Network: the last words of a process that cannot go on."""

    reason: str


Message = Playing | Publish | Tell | Stop | Ready | Heard | Told | Counted | Logged | Failed
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class Link:
    """One end of the pipe: a thread that reads and a thread that writes.

    `on_message` and `on_closed` are called in the reading thread; `on_closed` once, when the other side is gone.
    """

    def __init__(
        self, connection: Connection, on_message: Callable[[Message], None], on_closed: Callable[[], None]
    ) -> None:
        self._connection, self._on_message, self._on_closed = connection, on_message, on_closed
        self._waiting: deque[bytes] = deque(maxlen=WAITING_MESSAGES)
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=target, name=f"swarm-link-{target.__name__}", daemon=True)
            for target in (self._read, self._write)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def send(self, message: Message) -> None:
        """Never blocks; the oldest waiting message is dropped when WAITING_MESSAGES are."""
        with self._changed:
            self._waiting.append(msgspec.msgpack.encode(message))
            self._changed.notify()

    def flush(self, seconds: float) -> None:
        """Wait until everything was written, the other side is gone, or the time is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._waiting, seconds)

    def join(self, seconds: float) -> None:
        """Wait for both threads; they end when the other side is gone."""
        for thread in self._threads:
            thread.join(seconds)

    def _read(self) -> None:
        while True:
            try:
                data = self._connection.recv_bytes(MAX_MESSAGE)
            except (EOFError, OSError):
                break
            self._on_message(_decoder.decode(data))
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
                self._connection.send_bytes(data)
            except OSError:
                return
            with self._changed:
                if self._waiting and self._waiting[0] is data:
                    self._waiting.popleft()
                self._changed.notify_all()


def port_of(addresses: list[str]) -> int | None:
    """The TCP port in the first multiaddress that has one."""
    ports = (re.search(r"/tcp/(\d+)/", address) for address in addresses)
    return next((int(port[1]) for port in ports if port), None)
