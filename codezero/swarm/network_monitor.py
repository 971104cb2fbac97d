"""Tends the network process: writes its status, tests whether others can reach it, and saves trust and known peers.

To test reachability, a neighbour opens a TCP connection to the asker's address as the daemon sees it, so nobody can
have a third machine probed.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false, reportArgumentType=false

import asyncio
import contextlib
import logging
import random
import re
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, P2PContext, PeerID, ServicerBase

from codezero.config import SwarmConfig
from codezero.errors import UnreachableError
from codezero.swarm.exchange import Exchange
from codezero.swarm.hivemind_dht import NETWORK_ERRORS
from codezero.swarm.hivemind_transport import call_peer, serve
from codezero.swarm.network_status import MAX_PEERS, NetworkStatus, write_status
from codezero.swarm.peer_store import PeerStore
from codezero.swarm.schema import WireRefusal
from codezero.swarm.transport import within
from codezero.swarm.trust import PeerTrust

logger = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
SAVE_SECONDS = 60.0
REACH_SECONDS = 600.0
"""Between two self-tests with a clear result; STATUS_SECONDS until there is one."""
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 8.0
WITNESSES = 3
"""Peers that are asked at a time."""
COST = 16
"""Requests that a dial costs a peer's allowance."""
YES, NO = b"\x01", b"\x00"
_PORT = struct.Struct("!H")
_ADDRESS = re.compile(r"/ip[46]/([0-9A-Fa-f:.]{2,45})/tcp/")
TRUST, NEIGHBOURS = "trust.json", "neighbours.json"


class NetworkMonitor:
    """`load` before the exchange starts, `tend` beside it, `save` at the end."""

    def __init__(
        self, node: DHTNode, exchange: Exchange, peers: PeerStore, trust: PeerTrust, settings: SwarmConfig, folder: Path
    ) -> None:
        self._node, self._exchange, self._peer_store, self._trust = node, exchange, peers, trust
        self._swarm, self._wanted, self._folder = settings.name, settings.reachable, folder
        self.reachable: bool | None = {"yes": True, "no": False}.get(self._wanted)
        exchange.announcer.reachable = self._wanted != "no"

    def load(self) -> None:
        """What an earlier process of this node learned."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._trust.load(self._folder / TRUST)
        self._peer_store.recall(self._folder / NEIGHBOURS)

    def save(self) -> None:
        self._trust.save(self._folder / TRUST)
        self._peer_store.remember(self._folder / NEIGHBOURS)

    async def serve(self) -> None:
        """Begin to dial back for others."""
        await serve(ReachServicer(self._node.p2p, self._trust), self._node.p2p, self._swarm)

    async def tend(self, addresses: Sequence[str], port: int) -> None:
        """Until it is cancelled."""
        tested = saved = 0.0
        while True:
            now = time.monotonic()
            if self._wanted == "auto" and (self.reachable is None or now - tested >= REACH_SECONDS):
                tested = now
                self._note(await is_reachable(self._node, self._swarm, port), port)
            if now - saved >= SAVE_SECONDS:
                saved = now
                self.save()
            self._write(addresses, port)
            await asyncio.sleep(STATUS_SECONDS)

    def _note(self, reachable: bool | None, port: int) -> None:
        if reachable is False and self.reachable is not False:
            logger.warning("%s", _words(False, self._wanted, port))
        if reachable is not None:
            self.reachable = reachable
            self._exchange.announcer.reachable = reachable

    def _write(self, addresses: Sequence[str], port: int) -> None:
        status = NetworkStatus(
            time=time.time(),
            me=self._node.peer_id.to_base58(),
            addresses=list(addresses),
            neighbours=self._peer_store.size,
            round=self._exchange.round,
            shards=self._exchange.sharding.shards,
            reachable=self.reachable,
            reachability=_words(self.reachable, self._wanted, port),
            peers=self._trust.report()[:MAX_PEERS],
        )
        write_status(self._folder, status)


def _words(reachable: bool | None, wanted: str, port: int) -> str:
    if wanted != "auto":
        return f"as set: swarm.reachable={wanted}"
    if reachable is None:
        return "no neighbour could tell yet"
    if reachable:
        return f"others reach TCP port {port}"
    return (
        f"others cannot reach TCP port {port}: open or forward it, or set swarm.reachable=no to be relayed; until then "
        "own rollouts are left in the DHT, once a minute and 64 KiB at most"
    )


class ReachServicer(ServicerBase):
    """Dials back. The names of the class and its method are part of the protocol."""

    def __init__(self, daemon: P2P, trust: PeerTrust) -> None:
        self._daemon, self._trust = daemon, trust
        self._dials = asyncio.Semaphore(4)

    async def rpc_reach(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """[2] bytes of a port in; YES, NO, or nothing where it was not tried."""
        if len(request.value) != _PORT.size or not self._trust.spend(str(context.remote_id), COST):
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
        matches = (_ADDRESS.match(address) for address in addresses if "p2p-circuit" not in address)
        return next((match[1] for match in matches if match), "")


async def opens(host: str, port: int) -> bool:
    """Whether something listens there."""
    try:
        _, writer = await within(CONNECT_SECONDS, asyncio.open_connection(host, port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        await within(CONNECT_SECONDS, writer.wait_closed())
    return True


async def is_reachable(node: DHTNode, swarm: str, port: int) -> bool | None:
    """Whether neighbours that dial back reach this node; one success is enough. None: unknown."""
    near = list(node.protocol.routing_table.peer_id_to_uid)
    chosen = random.sample(near, min(WITNESSES, len(near)))
    answers = await asyncio.gather(*(_ask(node.p2p, swarm, peer, port) for peer in chosen))
    clear = [answer == YES for answer in answers if answer in (YES, NO)]
    return any(clear) if clear else None


async def _ask(daemon: P2P, swarm: str, peer: PeerID, port: int) -> bytes:
    stub = ReachServicer.get_stub(daemon, peer, namespace=swarm)
    try:
        return await call_peer(stub.rpc_reach, _PORT.pack(port), ANSWER_SECONDS)
    except (UnreachableError, WireRefusal):
        return b""
