"""Tends the network process: dials known peers, writes its status, tests whether others can reach it, and saves trust
and known peers for the next start.

To test reachability, a neighbour opens a TCP connection to the asker's address as the daemon sees it, so nobody can
have a third machine probed.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import asyncio
import ipaddress
import logging
import random
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.node import DHTNode
from hivemind.p2p import P2P, P2PContext, PeerID, PeerInfo, ServicerBase
from hivemind.utils.multiaddr import Multiaddr
from msgspec import Meta

from codezero.config import SwarmConfig
from codezero.errors import UnreachableError
from codezero.swarm.exchange import Exchange
from codezero.swarm.hivemind_dht import NETWORK_ERRORS, give_back, split_address, take_part
from codezero.swarm.hivemind_transport import call_peer
from codezero.swarm.network_status import (
    CONNECT_SECONDS,
    DIRECT,
    DIRECT_ADDRESS,
    MAX_PEERS,
    NetworkStatus,
    PeerLine,
    anybody_listens,
    opens,
    replace_file,
    write_status,
)
from codezero.swarm.schema import PeerId, WireRefusal
from codezero.swarm.transport import within
from codezero.swarm.trust import PeerTrust
from codezero.system.files import read_json

logger = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
SAVE_SECONDS = 60.0
REACH_SECONDS = {True: 600.0, False: 60.0, None: STATUS_SECONDS}
"""Between two self-tests, by the last result."""
ANSWER_SECONDS = 8.0
WITNESSES = 3
"""Peers that are asked at a time."""
COST = 16
"""Requests that a dial costs a peer's allowance."""
YES, NO = b"\x01", b"\x00"
_PORT = struct.Struct("!H")
TRUST, NEIGHBOURS = "trust.json", "neighbours.json"
DIALS_AT_ONCE = 8
KNOWN_PEERS = 512
ADDRESSES_EACH = 8
MAX_FILE = 1 << 20
LOST = 12
"""Dials in vain after which a peer that is no bootstrap is forgotten."""
TRIED, AGAIN = 3, 12
"""Pings in vain after which a connected peer is taken for one that keeps no records; every so many rounds one more."""
ALONE_POLLS = 10
"""Without a peer's record, after which it is said that the ways in may lead elsewhere."""

_Addresses = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=ADDRESSES_EACH)]
KnownPeers = Annotated[dict[PeerId, _Addresses], Meta(max_length=KNOWN_PEERS)]
"""The file: ways into the swarm by peer, as the bootstraps may be dead by the next start."""


async def connections(daemon: P2P) -> Sequence[PeerInfo]:
    """None where the daemon does not answer."""
    try:
        return await within(CONNECT_SECONDS, daemon.list_peers())
    except NETWORK_ERRORS:
        return ()


class PeerStore:
    """Dials bootstraps and known peers that are no neighbours, as hivemind never retries after a partition."""

    def __init__(self, node: DHTNode, bootstrap: Sequence[str]) -> None:
        self._node = node
        self._bootstrap = {peer: address for peer, address in map(split_address, bootstrap) if peer != node.peer_id}
        self._known: dict[PeerID, list[Multiaddr]] = {}
        self._in_vain: dict[PeerID, int] = {}
        self._connected, self._rounds = set[PeerID](), 0

    def remember(self, path: Path) -> None:
        """Write the known peers. A failure is a warning."""
        peers = {peer.to_base58(): [*map(str, ways[:ADDRESSES_EACH])] for peer, ways in self._known.items()}
        replace_file(path, msgspec.json.encode(peers))

    def recall(self, path: Path) -> None:
        """Read what `remember` wrote. A broken file is skipped with a warning."""
        try:
            saved = read_json(path, KnownPeers, MAX_FILE)
            known = {PeerID.from_base58(peer): list(map(Multiaddr, addresses)) for peer, addresses in saved.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            logger.warning("%s cannot be read and is left out: %s", path, error)
            return
        known.pop(self._node.peer_id, None)
        self._known |= known

    @property
    def size(self) -> int:
        """Neighbours: in the routing table, or connected."""
        return len(self._connected | self._node.protocol.routing_table.peer_id_to_uid.keys())

    async def rejoin(self) -> None:
        """One round of dialling."""
        connected = await connections(self._node.p2p)
        before, self._connected = self._connected, {info.peer_id for info in connected}
        self._rounds += 1
        for info in connected:
            if info.peer_id not in before:  # what was in vain before it was there says nothing
                self._in_vain.pop(info.peer_id, None)
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
        """Whether it should be dialled. Who is connected and keeps no records, as nobody reaches it, is left alone."""
        asks_only = peer in self._connected and self._in_vain.get(peer, 0) >= TRIED and self._rounds % AGAIN
        known = self._node.protocol.routing_table.get(peer_id=peer) is not None
        return not (known or asks_only or peer == self._node.peer_id)

    async def _dial(self, peer: PeerID) -> bool:
        """Connect, clear the blacklist entry, and become neighbours."""
        addresses = self._known.get(peer, []) + ([self._bootstrap[peer]] if peer in self._bootstrap else [])
        try:
            # After each dial in vain the daemon refuses longer to try again, up to 5 minutes.
            if peer not in self._connected and not await anybody_listens([*map(str, addresses)]):
                return False
            await within(CONNECT_SECONDS, self._node.p2p._client.connect(peer, addresses))
            self._node.blacklist.register_success(peer)
            answered = await within(CONNECT_SECONDS, self._node.protocol.call_ping(peer)) is not None
            if answered and peer in self._bootstrap and self._is_missing(peer):
                await self._ask_the_way(peer)
        except NETWORK_ERRORS:
            return False
        return answered

    async def _ask_the_way(self, guide: PeerID) -> None:
        """A bootstrap whose node id is of its own choosing, such as `hivemind-dht`, is no neighbour, but knows some."""
        me = self._node.node_id
        answer = await within(CONNECT_SECONDS, self._node.protocol.call_find(guide, [me]))
        near = [peer for peer in answer[me][1].values() if self._is_missing(peer)] if answer else []
        await asyncio.gather(*(within(CONNECT_SECONDS, self._node.protocol.call_ping(peer)) for peer in near))


class NetworkMonitor:
    """Begins with what an earlier process of this node learned; `tend` beside the exchange, `save` at the end."""

    def __init__(
        self, node: DHTNode, exchange: Exchange, peers: PeerStore, trust: PeerTrust, settings: SwarmConfig, folder: Path
    ) -> None:
        self._node, self._exchange, self._peer_store, self._trust = node, exchange, peers, trust
        self._swarm, self._wanted, self._folder = settings.name, settings.reachable, folder
        self.reachable: bool | None = {"yes": True, "no": False}.get(self._wanted)
        self._alone = False
        folder.mkdir(parents=True, exist_ok=True)
        trust.load(folder / TRUST)
        peers.recall(folder / NEIGHBOURS)

    def save(self) -> None:
        self._trust.save(self._folder / TRUST)
        self._peer_store.remember(self._folder / NEIGHBOURS)

    async def tend(self, addresses: Sequence[str], port: int) -> None:
        """Until it is cancelled."""
        tested = saved = 0.0
        while True:
            now = time.monotonic()
            if self._wanted == "auto" and now - tested >= REACH_SECONDS[self.reachable]:
                tested = now
                await self._note(await is_reachable(self._node, self._swarm, port, self._trust.knows), port)
            if now - saved >= SAVE_SECONDS:
                saved = now
                self.save()
                give_back(self._node.protocol.storage)
            self._write(addresses, port)
            await asyncio.sleep(STATUS_SECONDS)

    async def _note(self, reachable: bool | None, port: int) -> None:
        if reachable is None:
            return
        if not reachable and self.reachable is not False:
            logger.warning("%s", _words(False, self._wanted, port))
        self.reachable = reachable
        await take_part(self._node.protocol, serving=reachable)

    def _note_alone(self) -> str:
        """Why nobody is met; empty: somebody is, or this node is open and the first."""
        near, before = self._peer_store.size, self._alone
        self._alone = (near > 0 or self.reachable is False) and self._exchange.listener.alone >= ALONE_POLLS
        who = f"none of {near} nodes that answer has a record of" if near else "no open member answers in"
        text = f"{who} swarm {self._swarm}; add a way in to swarm.bootstrap"
        if self._alone and not before:
            logger.warning("%s", text)
        return text if self._alone else ""

    def _write(self, addresses: Sequence[str], port: int) -> None:
        status = NetworkStatus(
            time=time.time(),
            me=self._node.peer_id.to_base58(),
            addresses=list(addresses),
            neighbours=self._peer_store.size,
            round=self._exchange.validator.round,
            shards=self._exchange.sharding.shards,
            reachable=self.reachable,
            reachability="; ".join(filter(None, (_words(self.reachable, self._wanted, port), self._note_alone()))),
            peers=[self._with_way(line) for line in self._trust.report()[:MAX_PEERS]],
        )
        write_status(self._folder, status)

    def _with_way(self, line: PeerLine) -> PeerLine:
        way = self._exchange.listener.ways.get(line.peer, "")
        return msgspec.structs.replace(line, way=DIRECT if way == line.peer else way)


def _words(reachable: bool | None, wanted: str, port: int) -> str:
    if wanted != "auto":
        return f"as set: swarm.reachable={wanted}"
    if reachable is None:
        return "no neighbour could tell yet"
    if reachable:
        return f"others reach TCP port {port}"
    return f"others cannot reach TCP port {port} and get this node's rollouts by relays; an open port is quicker"


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
        connected = await connections(self._daemon)
        addresses = [str(address) for info in connected if info.peer_id == peer for address in info.addrs]
        matches = (DIRECT_ADDRESS.match(address) for address in addresses if "p2p-circuit" not in address)
        return next((match[1] for match in matches if match), "")


async def is_reachable(node: DHTNode, swarm: str, port: int, knows: Callable[[str], bool]) -> bool | None:
    """Whether connected peers that dial back reach this node; one success is enough. None: unknown.

    Peers outside the own local network come first, and known ones: strangers could keep everybody from keeping records.
    """
    connected = await connections(node.p2p)
    near = [info.peer_id for info in connected]
    outside = [info.peer_id for info in connected if any(map(_is_global, info.addrs))]
    shuffled = random.sample(outside or near, len(outside or near))
    chosen = [peer for wanted in (True, False) for peer in shuffled if knows(str(peer)) is wanted][:WITNESSES]
    answers = await asyncio.gather(*(_ask(node.p2p, swarm, peer, port) for peer in chosen))
    clear = [answer == YES for answer in answers if answer in (YES, NO)]
    return any(clear) if clear else None


def _is_global(address: Multiaddr) -> bool:
    match = DIRECT_ADDRESS.match(str(address))
    return match is not None and ipaddress.ip_address(match[1]).is_global


async def _ask(daemon: P2P, swarm: str, peer: PeerID, port: int) -> bytes:
    stub = ReachServicer.get_stub(daemon, peer, namespace=swarm)
    try:
        return await call_peer(stub.rpc_reach, _PORT.pack(port), ANSWER_SECONDS)
    except (UnreachableError, WireRefusal):
        return b""
