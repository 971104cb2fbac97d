"""Calls between peers, within allowances: headers, feedback, and pieces of own bodies and of others'.

`Transport` is what the gossip needs of a network: keep a small record where others read, find theirs, ask a peer.
`hivemind_dht.py` implements it; tests and benchmarks run the gossip over a simulated network.

Headers come from the peers that announce them, too: who fills a place in the DHT hides nobody who is connected. Ids are
free and addresses are not, so networks take turns, and in each its peers."""

import asyncio
import contextlib
import ipaddress
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Annotated, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Meta

from codezero.errors import UnreachableError, translated
from codezero.swarm import wire
from codezero.swarm.identity import open_to_all
from codezero.swarm.records import MAX_KEY, OTHER_KIND, RecordPlace, parse_key
from codezero.swarm.supervisor import PeerFeedback
from codezero.swarm.trust import Limits, Offence, PeerTrust
from codezero.swarm.wire import MAX_BODY, Digest, WireRefusal
from codezero.system.files import UNDECODABLE, PeerId
from codezero.system.state import Newest

Call = Literal["chunk", "feedback", "headers", "relay"]  # What one peer can ask of another
Answer = Callable[[Call, str, bytes], Awaitable[bytes]]  # (call, authenticated peer id, request); empty: refused
BEAM, WIDE_BEAM = 8, 12  # Nodes nearest to a key that a search asks; at times more, as a holder may name invented ones
UNANSWERED = (UnreachableError, TimeoutError)  # Raised for a peer or a network that does not answer
Records = Mapping[str, bytes]  # Encoded headers by peer id
Result = TypeVar("Result")

READ_AT_ONCE = 4  # Peers that are asked for their headers in one turn
CALL_SECONDS = 2.0
MAX_HEADERS = 8
Refuse = Callable[[str, WireRefusal], None]  # Gets who sends what no node of ours would
_Headers = Annotated[
    dict[Annotated[str, Meta(max_length=MAX_KEY)], Annotated[bytes, Meta(max_length=wire.MAX_HEADER)]],
    Meta(max_length=MAX_HEADERS),
]
FEEDBACK_AT_ONCE = 8  # Peers
CHUNK = 1 << 20  # Most bytes in one answer
RELAYED_BYTES, RELAYED_BODIES, RELAYED_SECONDS = 32 << 20, 1024, 600.0  # Kept ones; a small one counts as 1 of 1024
RELAY_SECONDS = 4.0  # That an author has for a body: less than a reader waits
LOOK_SECONDS = 1.0  # Between two looks at an author, or at who is connected
EACH_ASKER = Limits(requests_per_second=4, requests_burst=128, bytes_per_second=128 << 10, bytes_burst=8 << 20)
# Of askers: ids are free, and addresses are not.
EACH_NETWORK = Limits(requests_per_second=16, requests_burst=256, bytes_per_second=256 << 10, bytes_burst=8 << 20)
# Less than the author allows this node, which would else find its own pulls refused.
EACH_AUTHOR = Limits(requests_per_second=2, requests_burst=64, bytes_per_second=128 << 10, bytes_burst=8 << 20)
ALL_RELAYED = Limits(requests_per_second=64, requests_burst=4096, bytes_per_second=1 << 20, bytes_burst=16 << 20)
# Of peers that never sent a fine body, for what is this node's own.
OWN_NETWORK = Limits(requests_per_second=32, requests_burst=1024, bytes_per_second=2 << 20, bytes_burst=128 << 20)
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # Of the addresses that a translator makes of all of IPv4


class Transport(Protocol):
    """One node's access to the network. Every method has a deadline of its own and raises UnreachableError after it."""

    @property
    def me(self) -> str: ...  # Own peer id

    async def serve(self, answer: Answer) -> None:
        """Begin to answer other peers."""

    async def announce(self, place: RecordPlace, header: bytes, expiry: float, *, confirm: bool) -> bool:
        """Sign and keep a record until `expiry` (seconds since 1970). Was it stored, and if `confirm`, read back?"""
        ...

    async def headers(self, places: Sequence[RecordPlace], *, thorough: bool) -> Mapping[RecordPlace, Records]:
        """Every peer's newest valid record in each of `places`. `thorough`: asks all holders, not the nearest alone."""
        ...

    async def ask(self, peer: str, call: Call, request: bytes) -> bytes:
        """Ask one peer; the answer has at most CHUNK bytes. Raises WireRefusal for a malformed one."""
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


def encode_headers(announced: Mapping[RecordPlace, bytes]) -> bytes:
    """Encode the newest of these, by their places."""
    newest = sorted(announced, key=lambda place: -place.round)[:MAX_HEADERS]
    return msgspec.msgpack.encode({place.key: announced[place] for place in newest})


class DirectReader:
    """Asks some connected peers for their headers."""

    def __init__(self, transport: Transport, trust: PeerTrust, random: Random, refuse: Refuse) -> None:
        self._transport, self._trust, self._random, self._refuse = transport, trust, random, refuse
        self._turns = Newest[str, int](4096)  # The last turn of a peer or network
        self._turn = 0
        self.connected: Mapping[str, str] = {}  # The addresses of the peers that were connected at the last turn

    async def read(self) -> list[tuple[RecordPlace, str, bytes]]:
        """Return places in this swarm, who announces there, and the encoded headers. Ignores what a peer does wrong."""
        try:
            self.connected = await self._transport.connected()
        except UNANSWERED:
            return []
        allowed = [peer for peer in self.connected if not self._trust.refusal(peer)]
        waiting = sorted(allowed, key=lambda peer: (self._turns.get(peer, -1), self._random.random()))
        ranked = by_network(waiting, self.connected)
        ranked = sorted(ranked, key=lambda it: (it[0], self._turns.get(it[1], -1), self._random.random()))
        self._turn += 1
        chosen = ranked[:READ_AT_ONCE]  # whoever waits longest, of the networks that wait longest
        for _, network, peer in chosen:
            self._turns[network] = self._turns[peer] = self._turn
        answers = await asyncio.gather(*(self._ask(peer) for *_, peer in chosen))
        return [header for headers in answers for header in headers]

    async def _ask(self, peer: str) -> list[tuple[RecordPlace, str, bytes]]:
        try:
            return [(place, peer, header) for place, header in await announced_by(peer, self._transport)]
        except UNANSWERED:  # an earlier version, too, has no answer
            return []
        except WireRefusal as refusal:
            self._refuse(peer, refusal)
            return []


async def announced_by(peer: str, transport: Transport) -> list[tuple[RecordPlace, bytes]]:
    """Ask a peer for its places of known kinds and headers. Raises UnreachableError, TimeoutError and WireRefusal."""
    answer = await within(CALL_SECONDS, transport.ask(peer, "headers", b""))
    with translated(WireRefusal, "format: headers that are none", *UNDECODABLE, reason=False):
        headers: dict[str, bytes] = msgspec.msgpack.decode(answer, type=_Headers) if answer else {}
    return [(parse_key(key), header) for key, header in headers.items() if not OTHER_KIND.match(key)]


def by_network(peers: Iterable[str], addresses: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield each peer's rank in its network, that network, and the peer."""
    places: Counter[str] = Counter()
    for peer in peers:
        network = network_of(addresses.get(peer, ""))
        yield places[network], network, peer
        places[network] += 1


def network_of(address: str) -> str:
    """The network of a multiaddress, as large as one owner often has; empty for one that is no direct IP address."""
    _, kind, host, *rest = [*address.split("/"), "", ""]
    if kind not in ("ip4", "ip6") or "p2p-circuit" in rest:
        return ""
    try:
        ip = ipaddress.ip_address(host)
        if isinstance(ip, ipaddress.IPv6Address) and (ip.ipv4_mapped or ip in NAT64):
            ip = ipaddress.IPv4Address(ip.packed[12:])
        return str(ipaddress.ip_network(f"{ip}/{24 if ip.version == 4 else 48}", strict=False))
    except ValueError:
        return ""


class FeedbackExchange:
    """Feedback tells a proposer alone how its problems went; it is sent once, and lost when the peer is not there.

    `on_feedback` gets what peers send, schema-checked and within their allowance."""

    def __init__(
        self, transport: Transport, trust: PeerTrust, refuse: Refuse, on_feedback: Callable[[PeerFeedback], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self._refuse, self._on_feedback = transport, trust, refuse, on_feedback
        self._waiting = Newest[str, bytes](64)  # By peer; the oldest is dropped

    def add(self, message: PeerFeedback) -> None:
        """Queue the newest feedback for a peer; it replaces an older one that was not sent yet."""
        self._waiting[message.peer] = message.feedback

    async def send(self) -> None:
        """Send to FEEDBACK_AT_ONCE peers, for CALL_SECONDS each at most."""

        async def send(peer: str, feedback: bytes) -> None:
            taken = b""
            with contextlib.suppress(*UNANSWERED, WireRefusal):
                if not self._trust.refusal(peer):
                    taken = await within(CALL_SECONDS, self._transport.ask(peer, "feedback", feedback))
            self.counts["feedback_out" if taken else "feedback_in_vain"] += 1

        some = [self._waiting.popitem(last=False) for _ in range(min(FEEDBACK_AT_ONCE, len(self._waiting)))]
        await asyncio.gather(*(send(peer, feedback) for peer, feedback in some))

    def take(self, peer: str, request: bytes) -> bytes:
        """Take feedback of `peer` on our problems; returns nothing when it was not taken."""
        if not self._trust.spend(peer, size=len(request)):
            self.counts["refused_allowance"] += 1
            return b""
        try:
            wire.decode_feedback(request)
        except WireRefusal as refusal:
            self._refuse(peer, refusal)
            return b""
        self.counts["feedback_in"] += 1
        self._on_feedback(PeerFeedback(peer, request, self._trust.chance(peer)))
        return b"\x01"  # taken


class ChunkRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Asks for a piece of the body with this digest, from `offset` on."""

    digest: Digest
    offset: Annotated[int, Meta(ge=0, lt=MAX_BODY)]


class RelayRequest(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Asks for a piece of the body of `size` bytes that `author` announced under this digest, from `offset` on."""

    author: PeerId
    digest: Digest
    size: Annotated[int, Meta(ge=1, le=MAX_BODY)]
    offset: Annotated[int, Meta(ge=0, lt=MAX_BODY)]


class BodyServer:
    """Serves the newest bodies that this node announced."""

    def __init__(self, trust: PeerTrust) -> None:
        self.bodies = Newest[bytes, bytes](32)  # By digest
        self.counts: Counter[str] = Counter()
        self._trust = trust

    def answer(self, peer: str, request: bytes) -> bytes:
        """Return at most CHUNK bytes of a body; nothing to a peer that is refused or asks too much."""
        if self._trust.refusal(peer):
            self.counts["refused_peer"] += 1
            return b""
        try:
            chunk = msgspec.msgpack.decode(request, type=ChunkRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        body = self.bodies.get(chunk.digest, b"") if self.allows(peer) else b""
        piece = body[chunk.offset : chunk.offset + CHUNK]
        if not self.allows(peer, 0, len(piece)):
            return b""
        self.counts["bytes_out"] += len(piece)
        return piece

    def allows(self, peer: str, requests: int = 1, size: int = 0) -> bool:
        """Take this of the peer's allowance."""
        allowed = self._trust.spend(peer, requests, size)
        self.counts.update(() if allowed else ("refused_allowance",))
        return allowed


async def pull(ask: Callable[[int], Awaitable[bytes]], size: int) -> bytes:
    """Ask for pieces by their offsets until nothing comes or there are `size` bytes or more."""
    body = piece = await ask(0)
    while piece and len(body) < size:
        body += (piece := await ask(len(body)))
    return body


class RelayedBody(NamedTuple):
    network: str  # of its author
    size: int
    begun: float
    pulled: "asyncio.Task[bytes]"


class BodyRelay:
    """Passes on bodies of members that are connected here to members that cannot reach them; each is pulled once.

    It dials nobody on another's word, and carries nothing but what its author announces itself, of the size that this
    one says. There is an allowance for each asker, for the network of its address, for each author, and for all."""

    def __init__(
        self, transport: Transport, trust: PeerTrust, announced: dict[tuple[str, bytes], int], *, willing: bool
    ) -> None:
        """announced: sizes of bodies in headers that this node has read, by author and digest."""
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self.announced, self._willing = transport, trust, announced, willing
        self._askers, self._authors, self._all = (
            PeerTrust(open_to_all, limits=limits) for limits in (EACH_ASKER, EACH_AUTHOR, ALL_RELAYED)
        )
        self._networks = PeerTrust(lambda _: True, limits=EACH_NETWORK)
        self._bodies: dict[tuple[str, bytes], RelayedBody] = {}  # By author too: naming another's digest blocks nothing
        self._looks = Newest[str, tuple[float, "asyncio.Task[None]"]](512)  # By author, and when it began
        self.network_by_peer, self._listed = dict[str, str](), -LOOK_SECONDS  # Those connected when last listed

    async def answer(self, peer: str, request: bytes) -> bytes:
        """Return at most CHUNK bytes; nothing where that is not here, not allowed, or too much."""
        try:
            wanted = msgspec.msgpack.decode(request, type=RelayRequest)
        except UNDECODABLE:
            self.counts["refused_request"] += 1
            return b""
        network, piece = self.network_by_peer.get(peer, ""), b""
        allowed = self._willing and not self._trust.refusal(peer) and not self._trust.refusal(wanted.author)
        if allowed and self._spend(peer, network, 1, 0):
            try:
                with contextlib.suppress(*UNANSWERED, WireRefusal):
                    piece = await within(RELAY_SECONDS, self._piece(peer, network, wanted))
            finally:  # what brings nothing takes nothing from other networks
                self._all.spend(self._transport.me, 0 if piece else -1)
        self.counts["bytes_relayed" if piece else "refused_relay"] += len(piece) or 1
        return piece

    async def list_connected(self) -> None:
        """List the networks of connected peers, once in LOOK_SECONDS."""
        if (now := asyncio.get_running_loop().time()) - self._listed >= LOOK_SECONDS:
            self._listed = now
            with contextlib.suppress(UnreachableError):
                connected = await self._transport.connected()
                self.network_by_peer = {peer: network_of(address) for peer, address in connected.items()}

    async def _piece(self, peer: str, network: str, wanted: RelayRequest) -> bytes:
        """Raises UnreachableError and WireRefusal."""
        key, last = (wanted.author, wanted.digest), time.monotonic() - RELAYED_SECONDS
        self._bodies = {key: body for key, body in self._bodies.items() if body.begun > last}
        announced = 0 if key in self._bodies else await self._is_announced(wanted)
        kept = self._bodies.get(key)
        size = kept.size if kept else announced
        if not size or wanted.size != size > CHUNK:  # a smaller one goes out whole, and shows who lies about its size
            return b""
        if kept is None:
            if not self._spend(peer, network, 0, size):  # all of it, as it could ask for the last byte of each
                return b""
            wanted = msgspec.structs.replace(wanted, size=size)
            pulled = asyncio.create_task(within(RELAY_SECONDS, self._pull(wanted)))
            pulled.add_done_callback(lambda it: (it.cancelled() or it.exception()) and self._bodies.pop(key, None))
            kept = RelayedBody(self.network_by_peer.get(wanted.author, ""), size, time.monotonic(), pulled)
            self._bodies[key] = kept
            self._make_room()
            body = await asyncio.shield(pulled)
        else:
            body = await asyncio.shield(kept.pulled)
            if not self._spend(peer, network, 0, max(0, min(size - wanted.offset, CHUNK))):
                return b""
        return body[wanted.offset : wanted.offset + CHUNK]

    def _spend(self, peer: str, network: str, requests: int, size: int) -> bool:
        """Take of every allowance, or of none."""
        payers = ((self._askers, peer), (self._networks, network), (self._all, self._transport.me))
        for number, (allowance, payer) in enumerate(payers):
            if not allowance.spend(payer, requests, size):
                for before, paid in payers[:number]:
                    before.spend(paid, -requests, -size)
                return False
        return True

    def _make_room(self) -> None:
        """Drop the oldest of the network that has most here: a crowd behind one address drives out its own alone."""
        sizes, least = Counter[str](), RELAYED_BYTES // RELAYED_BODIES
        for body in self._bodies.values():
            sizes[body.network] += max(body.size, least)
        while sizes.total() > RELAYED_BYTES:
            ((fullest, _),) = sizes.most_common(1)
            oldest = next(key for key, body in self._bodies.items() if body.network == fullest)
            sizes[fullest] -= max(self._bodies.pop(oldest).size, least)

    async def _is_announced(self, wanted: RelayRequest) -> int:
        """Return the size that its author says, who is asked once in LOOK_SECONDS, as others would use it up; or 0."""
        author, key = wanted.author, (wanted.author, wanted.digest)
        begun, look = last = self._looks.get(author, (-LOOK_SECONDS, None))
        if look and key not in self.announced:
            await asyncio.shield(look)
        if key not in self.announced:
            await asyncio.sleep(begun + LOOK_SECONDS - time.monotonic())
            if self._looks.get(author, last) == last:
                self._looks[author] = time.monotonic(), asyncio.create_task(self._look(author))
            await asyncio.shield(self._looks[author][1])
        return self.announced.get(key, 0)

    async def _look(self, author: str) -> None:
        with contextlib.suppress(*UNANSWERED, WireRefusal):
            if author in await self._transport.connected():
                for _, payload in await announced_by(author, self._transport):
                    header = wire.decode_header(payload)
                    self.announced[author, header.digest] = header.size

    async def _pull(self, wanted: RelayRequest) -> bytes:
        author, received = wanted.author, 0

        async def ask(offset: int) -> bytes:
            nonlocal received
            if not self._authors.spend(author, size=min(wanted.size - offset, CHUNK)):
                raise UnreachableError(f"{author} is asked for too much")
            chunk = msgspec.msgpack.encode(ChunkRequest(wanted.digest, offset))
            received += len(piece := await self._transport.ask(author, "chunk", chunk))
            return piece

        try:
            if author not in await self._transport.connected():
                raise UnreachableError(f"{author} is not connected")
            body = await pull(ask, wanted.size)
        finally:  # as above
            self._all.spend(self._transport.me, 0, received - wanted.size)
        if len(body) != wanted.size or wire.body_digest(body) != wanted.digest:
            if len(body) >= wanted.size:
                self._trust.blame(author, Offence.DIGEST)
            raise WireRefusal("digest")
        return body
