"""What the gossip asks of a network, and nothing more: keep a small record where others look, find theirs, ask a peer.

`hivemind_transport.py` implements the Protocol on hivemind's DHT and daemon. Tests and benchmarks run the gossip
between peers of one process and over a simulated network (`benchmarks/simulation/`). Whichever it is, records are
checked by `records.py` before they are believed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from codezero.errors import UnreachableError
from codezero.swarm.records import RecordPlace

Call = Literal["chunk", "feedback"]
"""What one peer can ask of another."""
Answer = Callable[[Call, str, bytes], bytes]
"""(call, peer id of the asker as the transport authenticated it, request) -> the answer; empty for a refusal."""
BEAM, WIDE_BEAM = 8, 12
"""Nodes nearest to a key that a search asks before it ends: mostly, and when it must not be misled.

A node that finds nothing asks them all, and each may be one that it has no connection to. A holder that lies names
nodes that are not there, which take the places of some that are: hence the wide beam now and then.
"""
UNANSWERED = (UnreachableError, TimeoutError)
"""What a peer or a network that does not answer raises."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Found:
    """A record of a peer, validated."""

    peer: str
    payload: bytes
    """An encoded header."""


class Transport(Protocol):
    """One node's access to the network. Every method has a deadline of its own and raises UnreachableError after it."""

    @property
    def me(self) -> str:
        """Own peer id."""
        ...

    @property
    def neighbours(self) -> int:
        """Nodes that this one knows a way to now."""
        ...

    async def serve(self, answer: Answer) -> None:
        """Begin to answer other peers."""
        ...

    async def announce(self, place: RecordPlace, header: bytes, expiry: float, *, confirm: bool) -> bool:
        """Sign our record and keep it at `place` until `expiry`, seconds since 1970; it replaces our earlier one there.

        Was it stored? With `confirm`: was it read back from another node?
        """
        ...

    async def headers(self, places: Sequence[RecordPlace], *, thorough: bool) -> Mapping[RecordPlace, Sequence[Found]]:
        """Every peer's newest record in each of `places`. `thorough` asks all holders, not the nearest one only."""
        ...

    async def ask(self, peer: str, call: Call, request: bytes) -> bytes:
        """One question to one peer; the answer has at most serving.CHUNK bytes. Raises Refusal for one that is none."""
        ...

    async def deposit(self, digest: bytes, body: bytes, expiry: float) -> bool:
        """Keep a body of at most records.MAX_DEPOSIT bytes in the DHT under its digest: for who cannot be reached."""
        ...

    async def withdraw(self, peer: str, digest: bytes) -> bytes | None:
        """The body that `peer` deposited; None when there is none."""
        ...


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """`work` with a deadline. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        return await work
