"""hivemind's peer-to-peer daemon and DHT node, with what they lack: bound node ids, careful reading, a way back in.

Runs only inside the network process. Every await has a deadline, because a dead daemon answers nothing at all.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownParameterType=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false

import asyncio
import ipaddress
import random
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hivemind.dht.node import DHTNode
from hivemind.dht.protocol import DHTProtocol
from hivemind.dht.routing import DHTID
from hivemind.dht.storage import DictionaryDHTValue
from hivemind.dht.validation import DHTRecord
from hivemind.p2p import P2P, P2PDaemonError, P2PHandlerError, PeerID, PeerInfo
from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure
from hivemind.utils.multiaddr import Multiaddr

from codezero.swarm.records import PeerRecordValidator

START_SECONDS = 30.0
DIAL_SECONDS = 3.0
DIALS_AT_ONCE = 8
KNOWN_PEERS = 512
STORED_KEYS = 1024
LOST = 12
"""Dials in vain after which a peer that is no bootstrap is forgotten."""
NETWORK_ERRORS = (TimeoutError, OSError, P2PDaemonError, P2PHandlerError, ControlFailure, asyncio.IncompleteReadError)
"""What an unreachable peer or daemon may raise."""

Result = TypeVar("Result")


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """`work` with a deadline. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        return await work


async def start_daemon(identity: Path, host: str, port: int) -> P2P:
    """The daemon, listening and knowing nobody: a swarm whose bootstraps are all dead must still start."""
    family = f"ip{ipaddress.ip_address(host).version}"
    return await within(
        START_SECONDS,
        P2P.create(
            host_maddrs=[f"/{family}/{host}/tcp/{port}"],
            identity_path=str(identity),
            check_if_identity_free=False,
            nat_port_map=not ipaddress.ip_address(host).is_loopback,
            startup_timeout=START_SECONDS,
        ),
    )


async def create_node(p2p: P2P, validator: PeerRecordValidator) -> DHTNode:
    """A DHT node whose id follows from its peer id, and which trusts no other kind."""
    node = await within(
        START_SECONDS,
        DHTNode.create(
            p2p=p2p,
            node_id=bound_id(p2p.peer_id),
            cache_locally=False,
            cache_nearest=0,
            record_validator=validator,
            strict=False,
        ),
    )
    node.protocol.storage.maxsize = STORED_KEYS
    _harden(node.protocol, validator)
    return node


def bound_id(peer: PeerID) -> DHTID:
    """The only node id that we accept from a peer: with a free choice, five nodes can take over any key."""
    return DHTID.generate(peer.to_bytes())


def _harden(protocol: DHTProtocol, validator: PeerRecordValidator) -> None:
    """Replace three methods of this one protocol object.

    Strangers with a node id of their choosing never enter the routing table, and one bad entry in a dictionary costs
    that entry, where hivemind drops the whole answer and with it everybody else's records.
    """
    update, find = protocol.update_routing_table, protocol.call_find

    async def update_routing_table(node_id: DHTID | None, peer_id: PeerID, responded: bool = True) -> None:
        if node_id is None or node_id == bound_id(peer_id):
            await update(node_id, peer_id, responded)

    async def call_find(peer: PeerID, keys: Sequence[DHTID]) -> dict[DHTID, Any] | None:
        found = await find(peer, keys)
        return found and {
            key: (value, {node: neighbour for node, neighbour in near.items() if node == bound_id(neighbour)})
            for key, (value, near) in found.items()
        }

    def validate_dictionary(key: bytes, dictionary: DictionaryDHTValue) -> bool:
        with dictionary.freeze():
            entries = list(dictionary.items())
            for subkey, (value, expiration_time) in entries:
                if not validator.validate(DHTRecord(key, protocol.serializer.dumps(subkey), value, expiration_time)):
                    del dictionary[subkey]
        return bool(dictionary)

    protocol.update_routing_table = update_routing_table
    protocol.call_find = call_find
    protocol._validate_dictionary = validate_dictionary


class Neighbourhood:
    """Keeps a node in touch: dials the bootstraps and every peer it ever met that is not a neighbour now.

    hivemind never tries again after a start in vain or a partition; this does, a few peers at a time.
    """

    def __init__(self, node: DHTNode, bootstrap: Sequence[str]) -> None:
        self._node = node
        self._bootstrap = {peer: address for peer, address in map(split_address, bootstrap) if peer != node.peer_id}
        self._known: dict[PeerID, list[Multiaddr]] = {}
        self._in_vain: dict[PeerID, int] = {}

    @property
    def size(self) -> int:
        """Neighbours in the routing table."""
        return len(self._node.protocol.routing_table.uid_to_peer_id)

    async def rejoin(self) -> None:
        """One round of dialling."""
        for info in await self._connected():
            if len(self._known) < KNOWN_PEERS or info.peer_id in self._known:
                self._known[info.peer_id] = list(info.addrs)
        missing = [peer for peer in {**self._bootstrap, **self._known} if self._is_missing(peer)]
        chosen = random.sample(missing, min(DIALS_AT_ONCE, len(missing)))
        for peer, reached in zip(chosen, await asyncio.gather(*map(self._dial, chosen)), strict=True):
            self._in_vain[peer] = 0 if reached else self._in_vain.get(peer, 0) + 1
            if self._in_vain[peer] >= LOST:
                self._known.pop(peer, None)
                self._in_vain.pop(peer)

    async def _connected(self) -> list[PeerInfo]:
        try:
            return await within(DIAL_SECONDS, self._node.p2p.list_peers())
        except NETWORK_ERRORS:
            return []

    def _is_missing(self, peer: PeerID) -> bool:
        table = self._node.protocol.routing_table
        return peer != self._node.peer_id and table.get(peer_id=peer) is None

    async def _dial(self, peer: PeerID) -> bool:
        """Connect, forgive what is past, and become neighbours."""
        addresses = self._known.get(peer, []) + ([self._bootstrap[peer]] if peer in self._bootstrap else [])
        try:
            await within(DIAL_SECONDS, self._node.p2p._client.connect(peer, addresses))
            self._node.blacklist.register_success(peer)
            return await within(DIAL_SECONDS, self._node.protocol.call_ping(peer)) is not None
        except NETWORK_ERRORS:
            return False


def split_address(address: str) -> tuple[PeerID, Multiaddr]:
    """`/ip4/../tcp/../p2p/ID` as peer and way to it."""
    way, _, peer = address.rpartition("/p2p/")
    return PeerID.from_base58(peer), Multiaddr(way)
