"""Can others reach this node? A peer that is asked opens a plain TCP connection back to where the question came from.

Only to the asker's own address, as the daemon sees it, so nobody can have a third machine probed; the port alone is
the asker's choice. Without an answer nothing is claimed.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportArgumentType=false

import asyncio
import contextlib
import random
import re
import struct
from collections.abc import Callable

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from codezero.swarm.hivemind_dht import NETWORK_ERRORS
from codezero.swarm.transport import within

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 8.0
WITNESSES = 3
"""Peers that are asked at a time."""
COST = 16
"""Requests of its allowance that a peer pays for having itself dialled."""
YES, NO = b"\x01", b"\x00"
_PORT = struct.Struct("!H")
_ADDRESS = re.compile(r"/ip[46]/([0-9A-Fa-f:.]{2,45})/tcp/")


class ReachServicer(ServicerBase):
    """Dials back. Its name and method are part of the protocol."""

    def __init__(self, daemon: P2P, spend: Callable[[str, int], bool]) -> None:
        """`spend` takes requests from a peer's allowance; False: it has had its share."""
        self._daemon, self._spend = daemon, spend
        self._dials = asyncio.Semaphore(4)

    async def rpc_reach(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """[2] bytes of a port in; YES, NO, or nothing where it was not tried."""
        if len(request.value) != _PORT.size or not self._spend(str(context.remote_id), COST):
            return BytesValue()
        (port,) = _PORT.unpack(request.value)
        host = await self._host_of(context.remote_id)
        if not host or not port:
            return BytesValue()
        async with self._dials:
            return BytesValue(value=YES if await opens(host, port) else NO)

    async def _host_of(self, peer: PeerID) -> str:
        """The address that the peer's connection comes from; empty when it is relayed or gone."""
        try:
            connected = await within(CONNECT_SECONDS, self._daemon.list_peers())
        except NETWORK_ERRORS:
            return ""
        addresses = [str(address) for info in connected if info.peer_id == peer for address in info.addrs]
        found = (_ADDRESS.match(address) for address in addresses if "p2p-circuit" not in address)
        return next((one[1] for one in found if one), "")


async def opens(host: str, port: int) -> bool:
    """Does something listen there?"""
    try:
        _, writer = await within(CONNECT_SECONDS, asyncio.open_connection(host, port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        await within(CONNECT_SECONDS, writer.wait_closed())
    return True


async def is_reachable(node: DHTNode, swarm: str, port: int) -> bool | None:
    """What neighbours say who were asked to dial back; one yes is enough. None: nobody could tell."""
    near = list(node.protocol.routing_table.peer_id_to_uid)
    chosen = random.sample(near, min(WITNESSES, len(near)))
    answers = await asyncio.gather(*(_ask(node.p2p, swarm, peer, port) for peer in chosen))
    told = [answer == YES for answer in answers if answer in (YES, NO)]
    return any(told) if told else None


async def _ask(daemon: P2P, swarm: str, peer: PeerID, port: int) -> bytes:
    stub = ReachServicer.get_stub(daemon, peer, namespace=swarm)
    try:
        answer = await within(
            ANSWER_SECONDS, stub.rpc_reach(BytesValue(value=_PORT.pack(port)), timeout=ANSWER_SECONDS)
        )
    except NETWORK_ERRORS:
        return b""
    return answer.value
