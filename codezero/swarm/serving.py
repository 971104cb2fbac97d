"""Answers peers' requests: pieces of own bodies and of others', within allowances."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from codezero.errors import UnreachableError
from codezero.swarm.direct import announced_by, network_of
from codezero.swarm.identity import open_to_all
from codezero.swarm.schema import MAX_BODY, Digest, PeerId, WireRefusal, body_digest, decode_header
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import Limits, Offence, PeerTrust
from codezero.system.files import UNDECODABLE
from codezero.system.state import Newest

CHUNK = 1 << 20
"""Most bytes in one answer."""
KEPT_BODIES = 32
RELAYED_BYTES, RELAYED_BODIES, RELAYED_SECONDS = 32 << 20, 1024, 600.0
"""Of others' bodies that are kept; a small one takes the room of one of so many."""
RELAY_SECONDS = 4.0
"""That an author has for a body: less than a reader waits."""
LOOK_SECONDS, LOOKED_AT = 1.0, 512
"""Between two looks at what an author announces, or at who is connected; authors that are remembered."""
EACH_ASKER = Limits(requests_per_second=4, requests_burst=128, bytes_per_second=128 << 10, bytes_burst=8 << 20)
EACH_NETWORK = Limits(requests_per_second=16, requests_burst=256, bytes_per_second=256 << 10, bytes_burst=8 << 20)
"""Of askers: ids are free, and addresses are not."""
EACH_AUTHOR = Limits(requests_per_second=2, requests_burst=64, bytes_per_second=128 << 10, bytes_burst=8 << 20)
"""Less than the author allows this node, which would else find its own pulls refused."""
ALL_RELAYED = Limits(requests_per_second=64, requests_burst=4096, bytes_per_second=1 << 20, bytes_burst=16 << 20)
OWN_NETWORK = Limits(requests_per_second=32, requests_burst=1024, bytes_per_second=2 << 20, bytes_burst=128 << 20)
"""Of peers that never sent a fine body, for what is this node's own."""


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From `offset` on, a piece of the body with this digest."""

    digest: Digest
    offset: Annotated[int, Meta(ge=0, lt=MAX_BODY)]


class BodyServer:
    """Serves the newest bodies that this node announced."""

    def __init__(self, trust: PeerTrust) -> None:
        self.bodies = Newest[bytes, bytes](KEPT_BODIES)
        """By digest."""
        self.counts: Counter[str] = Counter()
        self._trust = trust

    def answer(self, peer: str, request: bytes) -> bytes:
        """At most CHUNK bytes of a body; nothing for a peer that is refused or asks too much."""
        if self._trust.refusal(peer):
            self.counts["refused_peer"] += 1
            return b""
        try:
            chunk = msgspec.msgpack.decode(request, type=ChunkRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        body = self.bodies.get(chunk.digest, b"") if self.allows(peer) else b""
        piece = body[chunk.offset : chunk.offset + CHUNK]
        if not self.allows(peer, 0, len(piece)):
            return b""
        self.counts["bytes_out"] += len(piece)
        return piece

    def allows(self, peer: str, requests: int = 1, size: int = 0) -> bool:
        """Take this of the peer's allowance."""
        allowed = self._trust.spend(peer, requests, size)
        self.counts.update(() if allowed else ("refused_allowance",))
        return allowed


async def pull(ask: Callable[[int], Awaitable[bytes]], size: int) -> bytes:
    """What comes, piece by piece, until nothing does or it is `size` bytes or more; `ask` gets an offset."""
    body = piece = await ask(0)
    while piece and len(body) < size:
        body += (piece := await ask(len(body)))
    return body


class RelayRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """From `offset` on, a piece of the body of `size` bytes that `author` announced under this digest."""

    author: PeerId
    digest: Digest
    size: Annotated[int, Meta(ge=1, le=MAX_BODY)]
    offset: Annotated[int, Meta(ge=0, lt=MAX_BODY)]


class RelayedBody(NamedTuple):
    network: str  # of its author
    size: int
    begun: float
    pulled: "asyncio.Task[bytes]"


class BodyRelay:
    """Passes on bodies of members that are connected here to members that cannot reach them; each is pulled once.

    It dials nobody on a stranger's word, and carries nothing but what its author announces itself, of the size that
    this one says. There is an allowance for each asker, for the network of its address, for each author, and for all.
    """

    def __init__(
        self, transport: Transport, trust: PeerTrust, announced: dict[tuple[str, bytes], int], *, willing: bool
    ) -> None:
        """announced: sizes of bodies in headers that this node has read, by author and digest."""
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self.announced, self._willing = transport, trust, announced, willing
        self._askers, self._authors, self._all = (
            PeerTrust(open_to_all, limits=limits) for limits in (EACH_ASKER, EACH_AUTHOR, ALL_RELAYED)
        )
        self._networks = PeerTrust(lambda _: True, limits=EACH_NETWORK)
        self._bodies: dict[tuple[str, bytes], RelayedBody] = {}
        """By author and digest, the oldest first: who names another's digest does not stand in its way."""
        self._looks = Newest[str, tuple[float, "asyncio.Task[None]"]](LOOKED_AT)
        """The last one at each author, and when it began."""
        self.network_by_peer, self._listed = dict[str, str](), -LOOK_SECONDS
        """Of the addresses of who was connected when they were listed."""

    async def answer(self, peer: str, request: bytes) -> bytes:
        """At most CHUNK bytes; nothing where that is not here, not allowed, or too much."""
        try:
            wanted = msgspec.msgpack.decode(request, type=RelayRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        network, piece = self.network_by_peer.get(peer, ""), b""
        allowed = self._willing and not self._trust.refusal(peer) and not self._trust.refusal(wanted.author)
        if allowed and self._spend(peer, network, 1, 0):
            try:
                with contextlib.suppress(*UNANSWERED, WireRefusal):
                    piece = await within(RELAY_SECONDS, self._piece(peer, network, wanted))
            finally:  # what brings nothing takes nothing from other networks
                self._all.spend(self._transport.me, 0 if piece else -1)
        self.counts["bytes_relayed" if piece else "refused_relay"] += len(piece) or 1
        return piece

    async def list_connected(self) -> None:
        """Once in LOOK_SECONDS."""
        if (now := asyncio.get_running_loop().time()) - self._listed >= LOOK_SECONDS:
            self._listed = now
            with contextlib.suppress(UnreachableError):
                connected = await self._transport.connected()
                self.network_by_peer = {peer: network_of(address) for peer, address in connected.items()}

    async def _piece(self, peer: str, network: str, wanted: RelayRequest) -> bytes:
        """Raises UnreachableError and WireRefusal."""
        key, last = (wanted.author, wanted.digest), time.monotonic() - RELAYED_SECONDS
        self._bodies = {key: body for key, body in self._bodies.items() if body.begun > last}
        announced = 0 if key in self._bodies else await self._is_announced(wanted)
        kept = self._bodies.get(key)
        size = kept.size if kept else announced
        if not size or wanted.size != size > CHUNK:  # a smaller one goes out whole, and shows who lies about its size
            return b""
        wanted = msgspec.structs.replace(wanted, size=size)
        paid = kept is None and self._pays(peer, network, wanted)
        if paid:
            pulled = asyncio.create_task(within(RELAY_SECONDS, self._pull(wanted)))
            pulled.add_done_callback(lambda it: (it.cancelled() or it.exception()) and self._bodies.pop(key, None))
            kept = self._bodies[key] = RelayedBody(self.network_by_peer.get(key[0], ""), size, time.monotonic(), pulled)
            self._make_room()
        body = await asyncio.shield(kept.pulled) if kept else b""
        return body[wanted.offset : wanted.offset + CHUNK] if paid or self._pays(peer, network, wanted) else b""

    def _pays(self, peer: str, network: str, wanted: RelayRequest) -> bool:
        """Who has a body pulled pays for all of it, as it could ask for the last byte of each."""
        piece = max(0, min(wanted.size - wanted.offset, CHUNK))
        return self._spend(peer, network, 0, piece if (wanted.author, wanted.digest) in self._bodies else wanted.size)

    def _spend(self, peer: str, network: str, requests: int, size: int) -> bool:
        """Of every allowance, or of none."""
        payers = ((self._askers, peer), (self._networks, network), (self._all, self._transport.me))
        for number, (allowance, payer) in enumerate(payers):
            if not allowance.spend(payer, requests, size):
                for before, paid in payers[:number]:
                    before.spend(paid, -requests, -size)
                return False
        return True

    def _make_room(self) -> None:
        """The oldest of the network that has most here goes: a crowd behind one address drives out its own alone."""
        sizes, least = Counter[str](), RELAYED_BYTES // RELAYED_BODIES
        for body in self._bodies.values():
            sizes[body.network] += max(body.size, least)
        while sizes.total() > RELAYED_BYTES:
            ((fullest, _),) = sizes.most_common(1)
            oldest = next(key for key, body in self._bodies.items() if body.network == fullest)
            sizes[fullest] -= max(self._bodies.pop(oldest).size, least)

    async def _is_announced(self, wanted: RelayRequest) -> int:
        """Its size, as its author says; 0: it is not. It is asked once in LOOK_SECONDS, else others would use it up."""
        author, key = wanted.author, (wanted.author, wanted.digest)
        begun, look = last = self._looks.get(author, (-LOOK_SECONDS, None))
        if look and key not in self.announced:
            await asyncio.shield(look)
        if key not in self.announced:
            await asyncio.sleep(begun + LOOK_SECONDS - time.monotonic())
            if self._looks.get(author, last) == last:
                self._looks[author] = time.monotonic(), asyncio.create_task(self._look(author))
            await asyncio.shield(self._looks[author][1])
        return self.announced.get(key, 0)

    async def _look(self, author: str) -> None:
        with contextlib.suppress(*UNANSWERED, WireRefusal):
            if author in await self._transport.connected():
                for _, payload in await announced_by(author, self._transport):
                    header = decode_header(payload)
                    self.announced[author, header.digest] = header.size

    async def _pull(self, wanted: RelayRequest) -> bytes:
        author, received = wanted.author, 0

        async def ask(offset: int) -> bytes:
            nonlocal received
            if not self._authors.spend(author, size=min(wanted.size - offset, CHUNK)):
                raise UnreachableError(f"{author} is asked for too much")
            chunk = msgspec.msgpack.encode(ChunkRequest(wanted.digest, offset))
            received += len(piece := await self._transport.ask(author, "chunk", chunk))
            return piece

        try:
            if author not in await self._transport.connected():
                raise UnreachableError(f"{author} is not connected")
            body = await pull(ask, wanted.size)
        finally:  # as above
            self._all.spend(self._transport.me, 0, received - wanted.size)
        if len(body) != wanted.size or body_digest(body) != wanted.digest:
            if len(body) >= wanted.size:
                self._trust.blame(author, Offence.DIGEST)
            raise WireRefusal("digest")
        return body
