"""Known peers: dials those that are not neighbours, and saves them for the next start."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportArgumentType=false, reportAttributeAccessIssue=false

import asyncio
import logging
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from hivemind.dht.node import DHTNode
from hivemind.p2p import PeerID, PeerInfo
from hivemind.utils.multiaddr import Multiaddr
from msgspec import Meta

from codezero.swarm.hivemind_dht import NETWORK_ERRORS, split_address
from codezero.swarm.network_status import replace_file
from codezero.swarm.schema import PeerId
from codezero.swarm.transport import within
from codezero.system.files import read_json

logger = logging.getLogger(__name__)

DIAL_SECONDS = 3.0
DIALS_AT_ONCE = 8
KNOWN_PEERS = 512
ADDRESSES_EACH = 8
MAX_FILE = 1 << 20
LOST = 12
"""Dials in vain after which a peer that is no bootstrap is forgotten."""


class KnownPeer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A peer of the file, and the ways to it."""

    peer: PeerId
    addresses: Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=ADDRESSES_EACH)]


class KnownPeers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: ways into the swarm, as the bootstraps may be dead by the next start."""

    peers: Annotated[list[KnownPeer], Meta(max_length=KNOWN_PEERS)]


class PeerStore:
    """Dials bootstraps and known peers that are no neighbours, as hivemind never retries after a partition."""

    def __init__(self, node: DHTNode, bootstrap: Sequence[str]) -> None:
        self._node = node
        self._bootstrap = {peer: address for peer, address in map(split_address, bootstrap) if peer != node.peer_id}
        self._known: dict[PeerID, list[Multiaddr]] = {}
        self._in_vain: dict[PeerID, int] = {}

    def remember(self, path: Path) -> None:
        """Write the known peers. A failure is a warning."""
        peers = [
            KnownPeer(peer.to_base58(), [str(address) for address in addresses[:ADDRESSES_EACH]])
            for peer, addresses in self._known.items()
        ]
        replace_file(path, msgspec.json.encode(KnownPeers(peers)))

    def recall(self, path: Path) -> None:
        """Read what `remember` wrote. A broken file is skipped with a warning."""
        try:
            saved = read_json(path, KnownPeers, MAX_FILE)
            known = {PeerID.from_base58(entry.peer): list(map(Multiaddr, entry.addresses)) for entry in saved.peers}
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read and is left out: %s", path, error)
            return
        known.pop(self._node.peer_id, None)
        self._known |= known

    @property
    def size(self) -> int:
        """Neighbours in the routing table."""
        return len(self._node.protocol.routing_table.uid_to_peer_id)

    async def rejoin(self) -> None:
        """One round of dialling."""
        try:
            connected: Sequence[PeerInfo] = await within(DIAL_SECONDS, self._node.p2p.list_peers())
        except NETWORK_ERRORS:
            connected = ()
        for info in connected:
            if len(self._known) < KNOWN_PEERS or info.peer_id in self._known:
                self._known[info.peer_id] = list(info.addrs)
        missing = [peer for peer in {**self._bootstrap, **self._known} if self._is_missing(peer)]
        chosen = random.sample(missing, min(DIALS_AT_ONCE, len(missing)))
        for peer, reached in zip(chosen, await asyncio.gather(*map(self._dial, chosen)), strict=True):
            self._in_vain[peer] = 0 if reached else self._in_vain.get(peer, 0) + 1
            if self._in_vain[peer] >= LOST:
                self._known.pop(peer, None)
                self._in_vain.pop(peer)

    def _is_missing(self, peer: PeerID) -> bool:
        table = self._node.protocol.routing_table
        return peer != self._node.peer_id and table.get(peer_id=peer) is None

    async def _dial(self, peer: PeerID) -> bool:
        """Connect, clear the blacklist entry, and become neighbours."""
        addresses = self._known.get(peer, []) + ([self._bootstrap[peer]] if peer in self._bootstrap else [])
        try:
            await within(DIAL_SECONDS, self._node.p2p._client.connect(peer, addresses))
            self._node.blacklist.register_success(peer)
            answered = await within(DIAL_SECONDS, self._node.protocol.call_ping(peer)) is not None
            if answered and peer in self._bootstrap and self._is_missing(peer):
                await self._ask_the_way(peer)
        except NETWORK_ERRORS:
            return False
        return answered

    async def _ask_the_way(self, guide: PeerID) -> None:
        """A bootstrap whose node id is of its own choosing, such as `hivemind-dht`, is no neighbour, but knows some."""
        me = self._node.node_id
        answer = await within(DIAL_SECONDS, self._node.protocol.call_find(guide, [me]))
        near = [peer for peer in answer[me][1].values() if self._is_missing(peer)] if answer else []
        await asyncio.gather(*(within(DIAL_SECONDS, self._node.protocol.call_ping(peer)) for peer in near))
