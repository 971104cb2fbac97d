"""The messages between a trainer and its network process, and the bounded pipe between the two.

Neither side waits for the other: the oldest message is dropped.
"""

import contextlib
import ipaddress
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from codezero.config import SwarmConfig
from codezero.errors import ConfigError, translated
from codezero.swarm.identity import AllowList
from codezero.swarm.schema import Kind
from codezero.system.child import Channel

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


WAITING_MESSAGES = 64


class OpenRound(msgspec.Struct, frozen=True, tag=True):
    """Trainer: this round is open now."""

    round: int
    hungry: bool = False
    """What had arrived was taken: refill the pull budget."""
    environment: bytes = b""
    """As in a header: of the problems that are learned from."""


class Publish(msgspec.Struct, frozen=True, tag=True):
    """Trainer: these are our groups, problems or message to the market of a round; announce them."""

    kind: Kind
    round: int
    body: bytes
    """As `wire.ENCODE` makes it."""
    rewards: list[float | None]
    """Mean reward of each group, None where there is none; empty for anything else."""
    tokenizer: bytes


class SendFeedback(msgspec.Struct, frozen=True, tag=True):
    """Trainer: send this to one peer, whose problems we attempted."""

    peer: str
    feedback: bytes
    """As `wire.encode_feedback` makes it."""


class Question(msgspec.Struct, frozen=True, tag=True):
    """Trainer: ask a founder's node. Network: a newcomer asks this one, about its chain, or for its invitation."""

    id: int
    """That the `Answered` repeats."""
    body: bytes
    """Empty: for the invitation."""
    address: str = ""
    """Of the node, ending in its peer id; empty: it is asked here."""
    seconds: float = 0.0


class Answered(msgspec.Struct, frozen=True, tag=True):
    """To a `Question`."""

    id: int
    body: bytes = b""
    """Empty: a refusal."""
    failure: str = ""
    """Why there is no answer of the node that was asked; empty: there is."""


class NetworkReady(msgspec.Struct, frozen=True, tag="Ready"):  # the tag is in files of earlier versions too
    """Network: the daemon is up."""

    addresses: list[str]
    """Multiaddresses others can join with."""
    daemon: int
    """Process id of the peer-to-peer daemon."""
    sockets: list[str]
    """Paths that a killed process leaves behind."""


class ReceivedBody(msgspec.Struct, frozen=True, tag=True):
    """Network: a peer's body, checked against its signed header and encoded anew."""

    kind: Kind
    peer: str
    round: int
    body: bytes
    tokenizer: bytes


class ReceivedFeedback(msgspec.Struct, frozen=True, tag=True):
    """Network: a peer's feedback on problems, decodable."""

    peer: str
    feedback: bytes
    trust: float = 1.0
    """(0, 1], as `PeerTrust.chance` has it."""


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
    """Network: why the process cannot go on."""

    reason: str


_OfTrainer = OpenRound | Publish | SendFeedback | Question | Answered
_OfNetwork = Question | Answered | NetworkReady | ReceivedBody | ReceivedFeedback | Counted | Logged | Failed
Message = _OfTrainer | _OfNetwork
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


class MessagePipe:
    """One end of the pipe: a thread that writes, and one that reads and calls `on_message`; last, once, `on_closed`."""

    def __init__(
        self, channel: Channel, on_message: Callable[[Message], None], on_closed: Callable[[], None] = lambda: None
    ) -> None:
        self._channel, self._on_message, self._on_closed = channel, on_message, on_closed
        self._waiting: deque[msgspec.Raw] = deque(maxlen=WAITING_MESSAGES)
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
