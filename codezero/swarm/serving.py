"""Answers peers' requests: pieces of own bodies, of others' and of files of versions, within allowances, and feedback.

Feedback tells the proposer alone how its problems went. It is sent once and lost when the peer is not there.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from codezero.errors import UnreachableError
from codezero.swarm.direct import announced_by, network_of
from codezero.swarm.identity import open_to_all
from codezero.swarm.messages import ReceivedFeedback, SendFeedback
from codezero.swarm.schema import MAX_BODY, MAX_FILE, Digest, PeerId, WireRefusal, body_digest, decode_header
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import Limits, Offence, PeerTrust
from codezero.swarm.wire import decode_feedback
from codezero.system.files import UNDECODABLE
from codezero.system.state import Newest

CHUNK = 1 << 20
"""Most bytes in one answer."""
KEPT_BODIES = 32
RELAYED_BYTES, RELAY_SECONDS = 32 << 20, 4.0
"""Of others' bodies that are kept, and the time that an author has for one: less than a reader waits."""
LOOK_SECONDS, LOOKED_AT, LOOKED_BODIES = 1.0, 512, 32
"""Between two looks at what an author announces, authors that are remembered, and bodies of each."""
EACH_ASKER = Limits(requests_per_second=4, requests_burst=128, bytes_per_second=128 << 10, bytes_burst=8 << 20)
EACH_NETWORK = Limits(requests_per_second=16, requests_burst=256, bytes_per_second=256 << 10, bytes_burst=8 << 20)
"""Of askers: ids are free, and addresses are not."""
EACH_AUTHOR = Limits(requests_per_second=2, requests_burst=64, bytes_per_second=128 << 10, bytes_burst=8 << 20)
"""Less than the author allows this node, which would else find its own pulls refused."""
ALL_RELAYED = Limits(requests_per_second=64, requests_burst=1024, bytes_per_second=1 << 20, bytes_burst=16 << 20)
FILE_SHARE = 8
"""A byte of a file costs a peer an eighth of a byte of its allowance: who shares a policy means it to be pulled."""


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From `offset` on, a piece of the body with this digest, or of the file that is named by it."""

    digest: Digest
    offset: Annotated[int, Meta(ge=0, le=MAX_FILE)]


class BodyServer:
    """Serves the newest bodies that this node announced, and the files that its newest manifest names."""

    def __init__(self, trust: PeerTrust) -> None:
        self.bodies = Newest[bytes, bytes](KEPT_BODIES)
        """By digest."""
        self.files: dict[bytes, Path] = {}
        """By the digest in their names: no path comes from a peer."""
        self.counts: Counter[str] = Counter()
        self._trust = trust

    def answer(self, peer: str, request: bytes) -> bytes:
        """At most CHUNK bytes of a body or file; nothing for a peer that is refused or asks too much."""
        if self._trust.refusal(peer):
            self.counts["refused_peer"] += 1
            return b""
        try:
            chunk = msgspec.msgpack.decode(request, type=ChunkRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        piece = self._piece(chunk) if self._trust.spend(peer) else None  # nothing is read beyond the allowance
        size = len(piece or b"") // (FILE_SHARE if chunk.digest in self.files else 1)
        if piece is None or not self._trust.spend(peer, requests=0, size=size):
            self.counts["refused_allowance"] += 1
            return b""
        self.counts["bytes_out"] += len(piece)
        return piece

    def allows(self, peer: str) -> bool:
        """Take one request of the peer's allowance."""
        if allowed := self._trust.spend(peer):
            return allowed
        self.counts["refused_allowance"] += 1
        return allowed

    def _piece(self, chunk: ChunkRequest) -> bytes:
        if chunk.digest not in self.files:
            return self.bodies.get(chunk.digest, b"")[chunk.offset : chunk.offset + CHUNK]
        try:
            with self.files[chunk.digest].open("rb") as file:
                file.seek(chunk.offset)
                return file.read(CHUNK)
        except OSError:  # the next manifest does not list it any more
            return b""


async def pull(ask: Callable[[int], Awaitable[bytes]], size: int) -> bytes:
    """A body of `size` bytes, piece by piece; `ask` gets an offset. Raises what `ask` raises, and WireRefusal."""
    body = bytearray()
    while len(body) < size:
        piece = await ask(len(body))
        if not piece:
            raise WireRefusal("gone", "announced and not served")
        if len(body) + len(piece) > size:
            raise WireRefusal("size", "longer than announced")
        body += piece
    return bytes(body)


class RelayRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From `offset` on, a piece of the body of `size` bytes that `author` announced under this digest."""

    author: PeerId
    digest: Digest
    size: Annotated[int, Meta(ge=1, le=MAX_BODY)]
    offset: Annotated[int, Meta(ge=0, lt=MAX_BODY)]


class RelayedBody(NamedTuple):
    network: str
    """Of its author."""
    size: int
    pulled: "asyncio.Task[bytes]"


class AnnouncedSizes(NamedTuple):
    begun: float
    """Seconds on the clock of `time.monotonic`."""
    sizes: "asyncio.Task[dict[bytes, int]]"
    """Of the bodies that an author announces or announced, by digest."""


class BodyRelay:
    """Passes on bodies of members that are connected here to members that cannot reach them; each is pulled once.

    It dials nobody on a stranger's word, and carries nothing but what its author announces itself. There is an
    allowance for each asker, for the network of its address, for each author, and for all together.
    """

    def __init__(self, transport: Transport, trust: PeerTrust, *, willing: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self._willing = transport, trust, willing
        self._askers, self._authors, self._all = (
            PeerTrust(open_to_all, limits=limits) for limits in (EACH_ASKER, EACH_AUTHOR, ALL_RELAYED)
        )
        self._networks = PeerTrust(lambda _: True, limits=EACH_NETWORK)
        self._bodies: dict[tuple[str, bytes], RelayedBody] = {}
        """By author and digest, the oldest first: who names another's digest does not stand in its way."""
        self._looks = Newest[str, AnnouncedSizes](LOOKED_AT)
        self.announced: Mapping[tuple[str, bytes], int] = {}
        """Sizes of bodies in headers that this node has read itself, by author and digest."""
        self._connected, self._listed = dict[str, str](), 0.0

    async def answer(self, peer: str, request: bytes) -> bytes:
        """At most CHUNK bytes; nothing where that is not here, not allowed, or too much."""
        try:
            wanted = msgspec.msgpack.decode(request, type=RelayRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        try:
            allowed = self._willing and not self._trust.refusal(peer) and not self._trust.refusal(wanted.author)
            if not (allowed and self._pays(peer, await self._network(peer), wanted)):
                self.counts["refused_relay"] += 1
                return b""
            body = await within(RELAY_SECONDS, self._body(wanted))
        except (*UNANSWERED, WireRefusal):
            return b""
        piece = body[wanted.offset : wanted.offset + CHUNK]
        self.counts["bytes_relayed"] += len(piece)
        return piece

    def _pays(self, peer: str, network: str, wanted: RelayRequest) -> bool:
        """Who has a body pulled pays for all of it, as it could ask for the last byte of each."""
        piece = max(0, min(wanted.size - wanted.offset, CHUNK))
        size = piece if (wanted.author, wanted.digest) in self._bodies else wanted.size
        payers = ((self._askers, peer), (self._networks, network), (self._all, self._transport.me))
        return all(allowance.spend(payer, size=size) for allowance, payer in payers)

    async def _network(self, peer: str) -> str:
        """Of a peer's address; empty for one that came just now. Raises UnreachableError."""
        if time.monotonic() - self._listed >= LOOK_SECONDS:
            self._connected, self._listed = {**await self._transport.connected()}, time.monotonic()
        return network_of(self._connected.get(peer, ""))

    async def _body(self, wanted: RelayRequest) -> bytes:
        key = wanted.author, wanted.digest
        if key not in self._bodies:
            if not await self._is_announced(wanted):
                raise UnreachableError(f"{wanted.author} does not announce it")
            network = await self._network(wanted.author)
            if key not in self._bodies:  # nobody else was as quick
                pulled = asyncio.create_task(within(RELAY_SECONDS, self._pull(wanted)))
                self._bodies[key] = RelayedBody(network, wanted.size, pulled)
                self._make_room()
        try:
            return await asyncio.shield(self._bodies[key].pulled)
        except (*UNANSWERED, WireRefusal):
            self._bodies.pop(key, None)
            raise

    def _make_room(self) -> None:
        """The oldest of the network that has most here goes: a crowd behind one address drives out its own alone."""
        while sum(body.size for body in self._bodies.values()) > RELAYED_BYTES:
            sizes: Counter[str] = Counter()
            for body in self._bodies.values():
                sizes[body.network] += body.size
            ((fullest, _),) = sizes.most_common(1)
            del self._bodies[next(key for key, body in self._bodies.items() if body.network == fullest)]

    async def _is_announced(self, wanted: RelayRequest) -> bool:
        """By its author, which is asked once in LOOK_SECONDS whatever others ask for: else they would use it up."""
        if self.announced.get((wanted.author, wanted.digest)) == wanted.size:
            return True
        look = self._looks.get(wanted.author)
        sizes = await asyncio.shield(look.sizes) if look else {}
        if sizes.get(wanted.digest) != wanted.size:
            await asyncio.sleep(look.begun + LOOK_SECONDS - time.monotonic() if look else 0)
            if self._looks.get(wanted.author) is look:
                looking = asyncio.create_task(self._look(wanted.author, sizes))
                self._looks[wanted.author] = AnnouncedSizes(time.monotonic(), looking)
            sizes = await asyncio.shield(self._looks[wanted.author].sizes)
        return sizes.get(wanted.digest) == wanted.size

    async def _look(self, author: str, before: Mapping[bytes, int]) -> dict[bytes, int]:
        """What it announces, after what it announced before: a reader may have read that."""
        sizes = dict(before)
        with contextlib.suppress(*UNANSWERED, WireRefusal):
            if author in await self._transport.connected():
                headers = [decode_header(payload) for _, payload in await announced_by(author, self._transport)]
                sizes |= {header.digest: header.size for header in headers}
        return dict(list(sizes.items())[-LOOKED_BODIES:])

    async def _pull(self, wanted: RelayRequest) -> bytes:
        author = wanted.author
        if author not in await self._transport.connected():
            raise UnreachableError(f"{author} is not connected")

        async def ask(offset: int) -> bytes:
            if not self._authors.spend(author, size=min(wanted.size - offset, CHUNK)):
                raise UnreachableError(f"{author} is asked for too much")
            chunk = msgspec.msgpack.encode(ChunkRequest(wanted.digest, offset))
            return await self._transport.ask(author, "chunk", chunk)

        body = await pull(ask, wanted.size)
        if body_digest(body) != wanted.digest:
            raise WireRefusal("digest")
        return body


WAITING = 64
"""Most peers that feedback waits for; the oldest is dropped."""
AT_ONCE = 8
SEND_SECONDS = 2.0
TAKEN = b"\x01"


class FeedbackExchange:
    """Sends and takes feedback. `on_feedback` gets what peers send, schema-checked and within their allowance."""

    def __init__(self, transport: Transport, trust: PeerTrust, on_feedback: Callable[[ReceivedFeedback], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self._on_feedback = transport, trust, on_feedback
        self._waiting = Newest[str, bytes](WAITING)

    def add(self, message: SendFeedback) -> None:
        """Queue the newest feedback for a peer; it replaces an older one that was not sent yet."""
        self._waiting[message.peer] = message.feedback

    async def send(self) -> None:
        """Send to AT_ONCE peers, for SEND_SECONDS each at most."""
        some = [self._waiting.popitem(last=False) for _ in range(min(AT_ONCE, len(self._waiting)))]
        await asyncio.gather(*(self._send(peer, feedback) for peer, feedback in some))

    def take(self, peer: str, request: bytes) -> bytes:
        """Feedback of `peer` on our problems. Nothing comes back when it was not taken."""
        if not self._trust.spend(peer, size=len(request)):
            self.counts["refused_allowance"] += 1
            return b""
        try:
            decode_feedback(request)
        except WireRefusal as refusal:
            self.counts[f"refused_{refusal.reason}"] += 1
            if refusal.reason != "version":
                self._trust.blame(peer, Offence.MALFORMED)
            return b""
        self.counts["feedback_in"] += 1
        self._on_feedback(ReceivedFeedback(peer, request, self._trust.chance(peer)))
        return TAKEN

    async def _send(self, peer: str, feedback: bytes) -> None:
        try:
            taken = not self._trust.refusal(peer) and await within(
                SEND_SECONDS, self._transport.ask(peer, "feedback", feedback)
            )
        except (*UNANSWERED, WireRefusal):
            taken = b""
        self.counts["feedback_out" if taken else "feedback_in_vain"] += 1
