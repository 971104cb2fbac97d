"""Answers peers' requests: pieces of own bodies and of files of versions within an allowance, and feedback on problems.

Feedback tells the proposer alone how its problems went. It is sent once and lost when the peer is not there.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.swarm.messages import ReceivedFeedback, SendFeedback
from codezero.swarm.schema import MAX_FILE, Digest, WireRefusal
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import Offence, PeerTrust
from codezero.swarm.wire import decode_feedback
from codezero.system.files import UNDECODABLE
from codezero.system.state import Newest

CHUNK = 1 << 20
"""Most bytes in one answer."""
KEPT_BODIES = 32
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
