"""What the gossip needs of a network: keep a small record where others read, find theirs, ask a peer.

`hivemind_transport.py` implements the Protocol; tests and benchmarks run the gossip over a simulated network.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

from codezero.errors import UnreachableError
from codezero.swarm.records import RecordPlace

Call = Literal["chunk", "feedback", "headers", "relay"]
"""What one peer can ask of another."""
Answer = Callable[[Call, str, bytes], Awaitable[bytes]]
"""(call, peer id of the asker as the transport authenticated it, request) -> the answer; empty for a refusal."""
BEAM, WIDE_BEAM = 8, 12
"""Nodes nearest to a key that a search asks before it ends; wide now and then, as a holder may name invented nodes."""
UNANSWERED = (UnreachableError, TimeoutError)
"""Raised for a peer or a network that does not answer."""

Records = Mapping[str, bytes]
"""Encoded headers by peer id."""
Result = TypeVar("Result")


class Transport(Protocol):
    """One node's access to the network. Every method has a deadline of its own and raises UnreachableError after it."""

    @property
    def me(self) -> str:
        """Own peer id."""
        ...

    async def serve(self, answer: Answer) -> None:
        """Begin to answer other peers."""

    async def announce(self, place: RecordPlace, header: bytes, expiry: float, *, confirm: bool) -> bool:
        """Sign and keep a record until `expiry` (seconds since 1970). Was it stored, and if `confirm`, read back?"""
        ...

    async def headers(self, places: Sequence[RecordPlace], *, thorough: bool) -> Mapping[RecordPlace, Records]:
        """Every peer's newest valid record in each of `places`. `thorough`: asks all holders, not the nearest alone."""
        ...

    async def ask(self, peer: str, call: Call, request: bytes) -> bytes:
        """Ask one peer; the answer has at most serving.CHUNK bytes. Raises WireRefusal for a malformed one."""
        ...

    async def connected(self) -> Mapping[str, str]:
        """The multiaddress that each peer's connection leads to."""
        ...

    def relays(self, peer: str) -> Sequence[str]:
        """Neighbours that most probably are connected with `peer` too, the most likely first."""
        ...


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """`work` with a deadline. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        return await work
