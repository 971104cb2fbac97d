"""Headers from the peers that announce them: whoever fills a place in the DHT hides nobody who is connected.

Ids are free and addresses are not, so networks take turns, and in each its peers. And feedback, which tells a proposer
alone how its problems went. It is sent once and lost when the peer is not there.
"""

import asyncio
import contextlib
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.swarm.messages import ReceivedFeedback, SendFeedback
from codezero.swarm.records import MAX_KEY, OTHER_KIND, RecordPlace, parse_key
from codezero.swarm.schema import MAX_HEADER, WireRefusal
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import PeerTrust
from codezero.swarm.wire import decode_feedback
from codezero.system.files import UNDECODABLE
from codezero.system.state import Newest

ASKED = 4
"""Peers in one turn."""
SECONDS = 2.0
REMEMBERED = 4096
"""Peers, and networks, whose last turn is known."""
MAX_HEADERS = 8
Refuse = Callable[[str, WireRefusal], None]
"""Gets who sends what no node of ours would."""
_Headers = Annotated[
    dict[Annotated[str, Meta(max_length=MAX_KEY)], Annotated[bytes, Meta(max_length=MAX_HEADER)]],
    Meta(max_length=MAX_HEADERS),
]
WAITING, AT_ONCE = 64, 8
"""Most peers that feedback waits for, the oldest is dropped; to how many it is sent at one time."""
TAKEN = b"\x01"
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Of the addresses that a translator makes of all of IPv4."""


def encode_headers(announced: Mapping[RecordPlace, bytes]) -> bytes:
    """The newest of these, by their places."""
    newest = sorted(announced, key=lambda place: -place.round)[:MAX_HEADERS]
    return msgspec.msgpack.encode({place.key: announced[place] for place in newest})


class DirectReader:
    """Asks some connected peers for their headers."""

    def __init__(self, transport: Transport, trust: PeerTrust, random: Random, refuse: Refuse) -> None:
        self._transport, self._trust, self._random, self._refuse = transport, trust, random, refuse
        self._turns = Newest[str, int](REMEMBERED)
        """The last turn of a peer or network."""
        self._turn = 0
        self.connected: Mapping[str, str] = {}
        """The addresses of the peers that were connected at the last turn."""

    async def read(self) -> list[tuple[RecordPlace, str, bytes]]:
        """Places in this swarm, who announces there, and the encoded headers. Raises nothing for what a peer does."""
        try:
            self.connected = await self._transport.connected()
        except UNANSWERED:
            return []
        chosen = self._chosen({peer: way for peer, way in self.connected.items() if not self._trust.refusal(peer)})
        return [header for headers in await asyncio.gather(*map(self._ask, chosen)) for header in headers]

    def _chosen(self, connected: Mapping[str, str]) -> list[str]:
        """Whoever waits longest, of the networks that wait longest."""
        waiting = sorted(connected, key=lambda peer: (self._turns.get(peer, -1), self._random.random()))
        ranked = [
            (rank, self._turns.get(network, -1), self._random.random(), network, peer)
            for rank, network, peer in by_network(waiting, connected)
        ]
        self._turn += 1
        chosen = sorted(ranked)[:ASKED]
        for *_, network, peer in chosen:
            self._turns[network] = self._turns[peer] = self._turn
        return [peer for *_, peer in chosen]

    async def _ask(self, peer: str) -> list[tuple[RecordPlace, str, bytes]]:
        try:
            return [(place, peer, header) for place, header in await announced_by(peer, self._transport)]
        except UNANSWERED:  # an earlier version, too, has no answer
            return []
        except WireRefusal as refusal:
            self._refuse(peer, refusal)
            return []


async def announced_by(peer: str, transport: Transport) -> list[tuple[RecordPlace, bytes]]:
    """Places of known kinds and encoded headers, as a peer says itself. Raises UnreachableError, TimeoutError and
    WireRefusal."""
    answer = await within(SECONDS, transport.ask(peer, "headers", b""))
    try:
        headers: dict[str, bytes] = msgspec.msgpack.decode(answer, type=_Headers) if answer else {}
    except UNDECODABLE as error:
        raise WireRefusal("format", "headers that are none") from error
    return [(parse_key(key), header) for key, header in headers.items() if not OTHER_KIND.match(key)]


def by_network(peers: Iterable[str], addresses: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Of each peer its place in its network, that network, and the peer."""
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
    """Sends and takes feedback. `on_feedback` gets what peers send, schema-checked and within their allowance."""

    def __init__(
        self, transport: Transport, trust: PeerTrust, refuse: Refuse, on_feedback: Callable[[ReceivedFeedback], None]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._trust, self._refuse, self._on_feedback = transport, trust, refuse, on_feedback
        self._waiting = Newest[str, bytes](WAITING)

    def add(self, message: SendFeedback) -> None:
        """Queue the newest feedback for a peer; it replaces an older one that was not sent yet."""
        self._waiting[message.peer] = message.feedback

    async def send(self) -> None:
        """Send to AT_ONCE peers, for SECONDS each at most."""
        some = [self._waiting.popitem(last=False) for _ in range(min(AT_ONCE, len(self._waiting)))]
        await asyncio.gather(*(self._send(peer, feedback) for peer, feedback in some))

    def take(self, peer: str, request: bytes) -> bytes:
        """Feedback of `peer` on our problems. Nothing comes back when it was not taken."""
        if not self._trust.spend(peer, size=len(request)):
            self.counts["refused_allowance"] += 1
            return b""
        try:
            decode_feedback(request)
        except WireRefusal as refusal:
            self._refuse(peer, refusal)
            return b""
        self.counts["feedback_in"] += 1
        self._on_feedback(ReceivedFeedback(peer, request, self._trust.chance(peer)))
        return TAKEN

    async def _send(self, peer: str, feedback: bytes) -> None:
        taken = b""
        with contextlib.suppress(*UNANSWERED, WireRefusal):
            if not self._trust.refusal(peer):
                taken = await within(SECONDS, self._transport.ask(peer, "feedback", feedback))
        self.counts["feedback_out" if taken else "feedback_in_vain"] += 1
