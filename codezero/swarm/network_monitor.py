"""Tends the network process: dials known peers, writes its status, tests whether others can reach it, and saves trust
and known peers for the next start. And what newcomers ask of the founder's node on its one port.

To test reachability, a neighbour opens a TCP connection to the asker's address as the daemon sees it, so nobody can
have a third machine probed. Newcomers ask for the invitation or a chain's answer: bytes in, bytes out, which the
trainer's process judges. Whoever has a peer id may ask; the cost is bounded for each peer and in all."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportPrivateUsage=false

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import random
import struct
import time
from collections import Counter
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
from codezero.swarm import network_status
from codezero.swarm.calls import within
from codezero.swarm.exchange import Exchange
from codezero.swarm.hivemind_dht import NETWORK_ERRORS, call_peer, give_back, split_address, take_part
from codezero.swarm.identity import open_to_all
from codezero.swarm.network_status import CONNECT_SECONDS, DIRECT_ADDRESS
from codezero.swarm.supervisor import Answered, Question
from codezero.swarm.trust import Limits, PeerTrust
from codezero.swarm.wire import WireRefusal
from codezero.system.files import PeerId, read_json

logger = logging.getLogger(__name__)

STATUS_SECONDS = 5.0
REACH_SECONDS = {True: 600.0, False: 60.0, None: STATUS_SECONDS}  # Between two self-tests, by the last result
YES, NO = b"\x01", b"\x00"
_PORT = struct.Struct("!H")
TRUST, NEIGHBOURS = "trust.json", "neighbours.json"
KNOWN_PEERS, ADDRESSES_EACH, MAX_KNOWN = 512, 8, 1 << 20  # In the file, and its bytes
LOST = 12  # Dials in vain after which a peer that is no bootstrap is forgotten
TRIED, AGAIN = 3, 12  # Pings in vain until a connected peer is taken to keep no records; rounds until one more
ALONE_POLLS = 10  # Polls without a peer's record until the status says that the ways in may lead elsewhere

MAX_QUESTION, MAX_ANSWER = 320 << 10, 1 << 20  # Bytes; of a transaction in hex digits, and of a page of events
CHAIN_SECONDS = 10.0  # For the chain's answer, from the question's arrival
EACH = Limits(requests_per_second=16, requests_burst=512, bytes_per_second=256 << 10, bytes_burst=16 << 20)
ALL = Limits(requests_per_second=128, requests_burst=2048, bytes_per_second=2 << 20, bytes_burst=64 << 20)

_Addresses = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=ADDRESSES_EACH)]
# The file: ways into the swarm by peer, as the bootstraps may be dead by the next start.
KnownPeers = Annotated[dict[PeerId, _Addresses], Meta(max_length=KNOWN_PEERS)]


async def connections(daemon: P2P) -> Sequence[PeerInfo]:
    """List the daemon's connections; none where it does not answer."""
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
        network_status.replace_file(path, msgspec.json.encode(peers))

    def recall(self, path: Path) -> None:
        """Read what `remember` wrote. A broken file is skipped with a warning."""
        try:
            saved = read_json(path, KnownPeers, MAX_KNOWN)
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
        """Count the neighbours: peers in the routing table, or connected."""
        return len(self._connected | self._node.protocol.routing_table.peer_id_to_uid.keys())

    async def rejoin(self) -> None:
        """Dial one round."""
        connected = await connections(self._node.p2p)
        before, self._connected = self._connected, {info.peer_id for info in connected}
        self._rounds += 1
        for info in connected:
            if info.peer_id not in before:  # what was in vain before it was there says nothing
                self._in_vain.pop(info.peer_id, None)
            if len(self._known) < KNOWN_PEERS or info.peer_id in self._known:
                self._known[info.peer_id] = list(info.addrs)
        missing = [peer for peer in {**self._bootstrap, **self._known} if self._is_missing(peer)]
        chosen = random.sample(missing, min(8, len(missing)))
        for peer, reached in zip(chosen, await asyncio.gather(*map(self._dial, chosen)), strict=True):
            self._in_vain[peer] = 0 if reached else self._in_vain.get(peer, 0) + 1
            if self._in_vain[peer] >= LOST:
                self._known.pop(peer, None)
                self._in_vain.pop(peer)

    def _is_missing(self, peer: PeerID) -> bool:
        """Decide whether to dial it. One that is connected and keeps no records, as it is unreachable, is not."""
        asks_only = peer in self._connected and self._in_vain.get(peer, 0) >= TRIED and self._rounds % AGAIN
        known = self._node.protocol.routing_table.get(peer_id=peer) is not None
        return not (known or asks_only or peer == self._node.peer_id)

    async def _dial(self, peer: PeerID) -> bool:
        """Connect, clear the blacklist entry, and become neighbours."""
        addresses = self._known.get(peer, []) + ([self._bootstrap[peer]] if peer in self._bootstrap else [])
        try:
            # After each dial in vain the daemon refuses longer to try again, up to 5 minutes.
            if peer not in self._connected and not await network_status.anybody_listens([*map(str, addresses)]):
                return False
            await within(CONNECT_SECONDS, self._node.p2p._client.connect(peer, addresses))
            self._node.blacklist.register_success(peer)
            answered = await within(CONNECT_SECONDS, self._node.protocol.call_ping(peer)) is not None
            if answered and peer in self._bootstrap and self._is_missing(peer):
                # A bootstrap whose node id is of its own choosing, as hivemind-dht's, is no neighbour, but knows some.
                me = self._node.node_id
                answer = await within(CONNECT_SECONDS, self._node.protocol.call_find(peer, [me]))
                near = [other for other in answer[me][1].values() if self._is_missing(other)] if answer else []
                await asyncio.gather(*(within(CONNECT_SECONDS, self._node.protocol.call_ping(other)) for other in near))
        except NETWORK_ERRORS:
            return False
        return answered


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
        """Tend until it is cancelled."""
        tested = saved = 0.0
        while True:
            now = time.monotonic()
            if self._wanted == "auto" and now - tested >= REACH_SECONDS[self.reachable]:
                tested = now
                reachable = await is_reachable(self._node, self._swarm, port, self._trust.knows)
                if reachable is False and self.reachable is not False:
                    logger.warning("%s", _words(False, self._wanted, port))
                if reachable is not None:
                    self.reachable = reachable
                    await take_part(self._node.protocol, serving=reachable)
            if now - saved >= 60.0:
                saved = now
                self.save()
                give_back(self._node.protocol.storage)
            self._write(addresses, port)
            await asyncio.sleep(STATUS_SECONDS)

    def _note_alone(self) -> str:
        """Say why nobody is met; empty: somebody is, or this node is open and the first."""
        near, before = self._peer_store.size, self._alone
        self._alone = (near > 0 or self.reachable is False) and self._exchange.listener.alone >= ALONE_POLLS
        who = f"none of {near} nodes that answer has a record of" if near else "no open member answers in"
        text = f"{who} swarm {self._swarm}; add a way in to swarm.bootstrap"
        if self._alone and not before:
            logger.warning("%s", text)
        return text if self._alone else ""

    def _write(self, addresses: Sequence[str], port: int) -> None:
        status = network_status.NetworkStatus(
            time=time.time(),
            me=self._node.peer_id.to_base58(),
            addresses=list(addresses),
            neighbours=self._peer_store.size,
            round=self._exchange.validator.round,
            shards=self._exchange.sharding.shards,
            reachable=self.reachable,
            reachability="; ".join(filter(None, (_words(self.reachable, self._wanted, port), self._note_alone()))),
            peers=self._trust.report(self._exchange.listener.ways)[: network_status.MAX_PEERS],
        )
        network_status.replace_file(self._folder / network_status.FILE, msgspec.json.encode(status))


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
        """Take [2] bytes of a port; answer YES, NO, or nothing where it was not tried, as over a relayed connection."""
        peer = context.remote_id
        if len(request.value) != _PORT.size or not self._trust.spend(str(peer), requests=16):
            return BytesValue()
        (port,) = _PORT.unpack(request.value)
        connected = await connections(self._daemon)
        addresses = [str(address) for info in connected if info.peer_id == peer for address in info.addrs]
        matches = (DIRECT_ADDRESS.match(address) for address in addresses if "p2p-circuit" not in address)
        host = next((match[1] for match in matches if match), "")
        if not host or not port:
            return BytesValue()
        async with self._dials:
            return BytesValue(value=YES if await network_status.opens(host, port) else NO)


async def is_reachable(node: DHTNode, swarm: str, port: int, knows: Callable[[str], bool]) -> bool | None:
    """Have connected peers dial back to this node; one success is enough. None: unknown. Peers outside the own local
    network come first, and known ones: others could keep everybody from keeping records."""

    def is_global(address: Multiaddr) -> bool:
        match = DIRECT_ADDRESS.match(str(address))
        return match is not None and ipaddress.ip_address(match[1]).is_global

    async def ask(peer: PeerID) -> bytes:
        stub = ReachServicer.get_stub(node.p2p, peer, namespace=swarm)
        try:
            return await call_peer(stub.rpc_reach, _PORT.pack(port), 8.0)
        except (UnreachableError, WireRefusal):
            return b""

    connected = await connections(node.p2p)
    near = [info.peer_id for info in connected]
    outside = [info.peer_id for info in connected if any(map(is_global, info.addrs))]
    shuffled = random.sample(outside or near, len(outside or near))
    chosen = [peer for wanted in (True, False) for peer in shuffled if knows(str(peer)) is wanted][:3]
    clear = [answer == YES for answer in await asyncio.gather(*map(ask, chosen)) if answer in (YES, NO)]
    return any(clear) if clear else None


class FounderServicer(ServicerBase):
    """Serves newcomers. Its name and method are part of the protocol."""

    def __init__(self, me: str, send: Callable[[Question], None]) -> None:
        """`send` brings a question to the trainer, whose replies go to `take`."""
        self._me, self._send = me, send
        self._each, self._all = PeerTrust(open_to_all, limits=EACH), PeerTrust(open_to_all, limits=ALL)
        self._busy: Counter[str] = Counter()  # Questions that wait, by peer
        self._slots = asyncio.Semaphore(4)  # Questions that the trainer has at one time
        self._replies: dict[int, asyncio.Future[bytes]] = {}
        self._ids = itertools.count(1)

    async def rpc_ask(self, request: BytesValue, context: P2PContext) -> BytesValue:
        """Answer an empty request with the invitation, any other as the chain does, and a refused peer with nothing."""
        peer, question, answer = str(context.remote_id), request.value, b""
        refused = len(question) > MAX_QUESTION or self._busy[peer] >= 8 or self._busy.total() >= 64
        if refused or not self._spend(peer, len(question)):
            return BytesValue()
        self._busy[peer] += 1
        id, reply = next(self._ids), asyncio.get_running_loop().create_future()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHAIN_SECONDS), self._slots:
                    self._replies[id] = reply
                    self._send(Question(id, question))
                    answer = await reply
        finally:
            self._replies.pop(id, None)
            self._busy -= Counter([peer])  # which also forgets who has nothing left
        return BytesValue(value=answer if len(answer) <= MAX_ANSWER and self._spend(peer, len(answer), 0) else b"")

    def take(self, reply: Answered) -> None:
        """Take the trainer's answer; one that comes too late is dropped."""
        if (waiting := self._replies.get(reply.id)) is not None and not waiting.done():
            waiting.set_result(reply.body)

    def _spend(self, peer: str, size: int, requests: int = 1) -> bool:
        return self._each.spend(peer, requests, size) and self._all.spend(self._me, requests, size)


async def ask_founder(daemon: P2P, question: Question) -> Answered:
    """Dial a founder's node and ask it, within the question's seconds. Raises nothing for what the node does."""
    try:
        peer, way = split_address(question.address)
        async with asyncio.timeout(question.seconds):
            await daemon._client.connect(peer, [way])  # at once where there is a connection
            answer = await call_peer(FounderServicer.get_stub(daemon, peer).rpc_ask, question.body, question.seconds)
        if answer and len(answer) <= MAX_ANSWER:
            return Answered(question.id, answer)
        failure = f"more than {MAX_ANSWER} bytes" if answer else "nothing: it is not the founder's, or refuses for now"
        return Answered(question.id, failure=f"{question.address} answers with {failure}")
    except (UnreachableError, WireRefusal, *NETWORK_ERRORS, ValueError) as error:
        reason = " ".join(str(error).split())[:200] or "no answer in time"
        return Answered(question.id, failure=f"{question.address} cannot be asked: {reason}")
