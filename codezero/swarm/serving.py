"""Answers peers' requests: pieces of own bodies, of others' and of files of versions, within allowances, and feedback.

Feedback tells the proposer alone how its problems went. It is sent once and lost when the peer is not there.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.errors import UnreachableError
from codezero.swarm.identity import open_to_all
from codezero.swarm.messages import ReceivedFeedback, SendFeedback
from codezero.swarm.schema import MAX_BODY, MAX_FILE, Digest, PeerId, WireRefusal, body_digest
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import Limits, Offence, PeerTrust
from codezero.swarm.wire import decode_feedback
from codezero.system.files import UNDECODABLE
from codezero.system.state import Newest

CHUNK = 1 << 20
"""Most bytes in one answer."""
KEPT_BODIES = 32
RELAYED_BODIES, RELAY_SECONDS = 16, 4.0
"""Bodies of others that are kept, and the time that an author has for one: less than a reader waits."""
EACH_ASKER = Limits(requests_per_second=4, requests_burst=128, bytes_per_second=128 << 10, bytes_burst=8 << 20)
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


class BodyRelay:
    """Passes on bodies of members that are connected here to members that cannot reach them; each is pulled once.

    It dials nobody on a stranger's word, carries nothing but bodies that have the announced digest, and has an
    allowance for each asker, for each author, and for all together.
    """

    def __init__(self, transport: Transport, trust: PeerTrust, *, willing: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self._willing = transport, trust, willing
        self._askers, self._authors, self._all = (
            PeerTrust(open_to_all, limits=limits) for limits in (EACH_ASKER, EACH_AUTHOR, ALL_RELAYED)
        )
        self._bodies = Newest[bytes, asyncio.Task[bytes]](RELAYED_BODIES)
        """By digest."""

    async def answer(self, peer: str, request: bytes) -> bytes:
        """At most CHUNK bytes; nothing where that is not here, not allowed, or too much."""
        try:
            wanted = msgspec.msgpack.decode(request, type=RelayRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        size = max(0, min(wanted.size - wanted.offset, CHUNK))
        allowed = self._willing and not self._trust.refusal(peer) and not self._trust.refusal(wanted.author)
        if not (allowed and self._askers.spend(peer, size=size) and self._all.spend(self._transport.me, size=size)):
            self.counts["refused_relay"] += 1
            return b""
        try:
            body = await asyncio.shield(self._body(wanted))
        except (*UNANSWERED, WireRefusal):
            self._bodies.pop(wanted.digest, None)
            return b""
        piece = body[wanted.offset : wanted.offset + CHUNK]
        self.counts["bytes_relayed"] += len(piece)
        return piece

    def _body(self, wanted: RelayRequest) -> "asyncio.Task[bytes]":
        if wanted.digest not in self._bodies:
            self._bodies[wanted.digest] = asyncio.create_task(within(RELAY_SECONDS, self._pull(wanted)))
        return self._bodies[wanted.digest]

    async def _pull(self, wanted: RelayRequest) -> bytes:
        author = wanted.author
        if author not in await self._transport.connected():
            raise UnreachableError(f"{author} is not connected")

        async def ask(offset: int) -> bytes:
            if not self._authors.spend(author, size=min(wanted.size - offset, CHUNK)):
                raise UnreachableError(f"{author} is asked for too much")
            return await self._transport.ask(
                author, "chunk", msgspec.msgpack.encode(ChunkRequest(wanted.digest, offset))
            )

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
