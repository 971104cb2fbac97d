"""Feedback: what became of a peer's problems where they were attempted, said to that peer and to nobody else.

It is advice and no record: sent once, lost when the peer is not there, and bounded in both directions.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable

from codezero.swarm.link import Tell, Told
from codezero.swarm.schema import Refusal
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import Offence, Trust
from codezero.swarm.wire import decode_feedback

WAITING = 64
"""Peers that wait to be told; the one that waits longest is dropped."""
AT_ONCE = 8
TELL_SECONDS = 2.0
TAKEN = b"\x01"


class Feedback:
    """One node's part in it. `on_told` gets what peers say, schema-checked and within their allowance."""

    def __init__(self, transport: Transport, trust: Trust, *, on_told: Callable[[Told], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self._on_told = transport, trust, on_told
        self._waiting: OrderedDict[str, bytes] = OrderedDict()

    def add(self, message: Tell) -> None:
        """Queue the newest word for a peer; it replaces an older one that was not sent yet."""
        self._waiting[message.peer] = message.feedback
        self._waiting.move_to_end(message.peer)
        while len(self._waiting) > WAITING:
            self._waiting.popitem(last=False)

    async def send(self) -> None:
        """Some of what waits, each peer asked once and for TELL_SECONDS at most."""
        some = [self._waiting.popitem(last=False) for _ in range(min(AT_ONCE, len(self._waiting)))]
        await asyncio.gather(*(self._tell(peer, feedback) for peer, feedback in some))

    def take(self, peer: str, request: bytes) -> bytes:
        """What `peer` says of our problems. Nothing comes back when it was not taken."""
        if not self._trust.spend(peer, size=len(request)):
            self.counts["refused_allowance"] += 1
            return b""
        try:
            decode_feedback(request)
        except Refusal as refusal:
            self.counts[f"refused_{refusal.reason}"] += 1
            if refusal.reason != "version":
                self._trust.blame(peer, Offence.MALFORMED)
            return b""
        self.counts["feedback_in"] += 1
        self._on_told(Told(peer, request, self._trust.chance(peer)))
        return TAKEN

    async def _tell(self, peer: str, feedback: bytes) -> None:
        try:
            taken = not self._trust.refusal(peer) and await within(
                TELL_SECONDS, self._transport.ask(peer, "feedback", feedback)
            )
        except (*UNANSWERED, Refusal):
            taken = b""
        self.counts["feedback_out" if taken else "feedback_in_vain"] += 1
