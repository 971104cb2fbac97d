"""Headers from the peers that announce them: whoever fills a place in the DHT hides nobody who is connected.

Ids are free and addresses are not, so networks take turns, and in each its peers.
"""

import asyncio
import ipaddress
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.swarm.records import MAX_KEY, RecordPlace, parse_key
from codezero.swarm.schema import MAX_HEADER, WireRefusal
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import PeerTrust
from codezero.system.files import UNDECODABLE
from codezero.system.state import Newest

ASKED = 4
"""Peers in one turn."""
SECONDS = 2.0
REMEMBERED = 4096
"""Peers, and networks, whose last turn is known."""
MAX_HEADERS = 8
_Headers = Annotated[
    dict[Annotated[str, Meta(max_length=MAX_KEY)], Annotated[bytes, Meta(max_length=MAX_HEADER)]],
    Meta(max_length=MAX_HEADERS),
]


def encode_headers(announced: Mapping[RecordPlace, bytes]) -> bytes:
    """The newest of these, by their places."""
    newest = sorted(announced, key=lambda place: -place.round)[:MAX_HEADERS]
    return msgspec.msgpack.encode({place.key: announced[place] for place in newest})


class DirectReader:
    """Asks some connected peers for their headers. `refuse` gets those who answer what no node of ours would."""

    def __init__(
        self, transport: Transport, trust: PeerTrust, random: Random, refuse: Callable[[str, WireRefusal], None]
    ) -> None:
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
        networks: defaultdict[str, list[str]] = defaultdict(list)
        for peer in sorted(connected, key=lambda peer: (self._turns.get(peer, -1), self._random.random())):
            networks[network_of(connected[peer])].append(peer)
        ranked = [
            (rank, self._turns.get(network, -1), self._random.random(), network, peer)
            for network, peers in networks.items()
            for rank, peer in enumerate(peers)
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
    """Places and encoded headers, as a peer says itself. Raises UnreachableError, TimeoutError and WireRefusal."""
    answer = await within(SECONDS, transport.ask(peer, "headers", b""))
    try:
        headers: dict[str, bytes] = msgspec.msgpack.decode(answer, type=_Headers) if answer else {}
    except UNDECODABLE as error:
        raise WireRefusal("format", "headers that are none") from error
    return [(parse_key(key), header) for key, header in headers.items()]


def network_of(address: str) -> str:
    """The network of a multiaddress, as large as one owner often has; empty for one that is no direct IP address."""
    _, kind, host, *rest = [*address.split("/"), "", ""]
    if kind not in ("ip4", "ip6") or "p2p-circuit" in rest:
        return ""
    try:
        return str(ipaddress.ip_network(f"{host}/{24 if kind == 'ip4' else 48}", strict=False))
    except ValueError:
        return ""
