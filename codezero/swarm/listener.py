"""The other side of the gossip: look for peers' announcements, choose among them, pull what is new, check it.

A stranger's header or body that breaks a rule costs nothing but a count, and its sender some of our patience.
"""

import asyncio
import contextlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from codezero.swarm.messages import Heard
from codezero.swarm.records import Place
from codezero.swarm.schema import GROUPS, MAX_BODY, PROPOSALS, Header, Refusal
from codezero.swarm.serving import ChunkRequest
from codezero.swarm.sharding import Crowd
from codezero.swarm.transport import UNANSWERED, Transport, within
from codezero.swarm.trust import Offence, Trust
from codezero.swarm.wire import (
    body_digest,
    decode_body,
    decode_header,
    decode_proposals,
    encode_body,
    encode_proposals,
)

PULLS_AT_ONCE = 4
PULL_SECONDS = 5.0
"""Of a whole body, however many pieces it comes in: one that drips is given up."""
SEEN_DIGESTS = 8192
PULLS_PER_LOOK = 16
PULL_ATTEMPTS = 3
ALL_ROUND_EVERY = 4
"""Each this many looks all holders of a place are asked and not the nearest one, which may be this node itself and have
missed a record; and other places than those of the groups are read."""
LONGEST_PAUSE, MOST_DOUBLINGS = 8.0, 3
"""Seconds between two looks while nothing is new, unless the pause is set longer; and how often it is doubled."""
LOST_LOOKS = 2
"""After so many looks without news a node looks as widely as a newcomer: others may judge the crowd otherwise."""
PLACES_PER_LOOK = 2
"""Shards of the open round that are read at one look, where there are so many."""

OFFENCES = {
    "digest": Offence.DIGEST,
    "owner": Offence.FORGED,
    "header": Offence.FORGED,
    "gone": Offence.SILENT,
}
"""What a refusal says of its sender; anything else is a malformed body. A newer version is no offence."""


@dataclass(frozen=True, slots=True)
class News:
    """A header not dealt with yet, and who announced it."""

    peer: str
    header: Header


class Listener:
    """One node's ear. `look` is one turn."""

    def __init__(
        self,
        transport: Transport,
        crowd: Crowd,
        trust: Trust,
        *,
        swarm: str,
        pull_groups: int,
        on_heard: Callable[[Heard], None],
        random: Random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._crowd, self._trust, self._swarm = transport, crowd, trust, swarm
        self._pull_groups, self._on_heard, self._random = pull_groups, on_heard, random
        self._attempts: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        """Pulls begun, by peer and digest; PULL_ATTEMPTS: done with it. Without the peer, one who announces another's
        body and serves nothing would keep us from it."""
        self._looks = self._idle = 0
        self._phase = random.randrange(ALL_ROUND_EVERY)
        self._all_round = True
        """Is this one of the looks that see more?"""
        self._met = False
        """Did the last look see anybody?"""
        self._budget = pull_groups
        """Groups that the trainer has room for."""
        self._pulls = asyncio.Semaphore(PULLS_AT_ONCE)

    def pause(self, seconds: float) -> float:
        """How long to wait for the next look: `seconds`, doubled for each of the last looks that brought nothing."""
        return max(seconds, min(seconds * 2**self._idle, LONGEST_PAUSE))

    def feed(self) -> None:
        """The trainer took what was heard: there is room for as much again."""
        self._budget = self._pull_groups

    def awake(self) -> None:
        """Something may be new from now on."""
        self._idle = 0

    async def look(self, round_number: int) -> None:
        """Read some places of this round and the last, and pull from those who announced there.

        Nothing at all while the trainer has no room: traffic follows what is learned from, and not the clock.
        """
        if self._budget > 0:
            self._all_round = self._looks == 0 or (self._looks + self._phase) % ALL_ROUND_EVERY == 0
            news = await self._read(round_number)
            self._idle = 0 if news else min(self._idle + 1, MOST_DOUBLINGS)
            await self._hear(news)
            self._looks += 1

    def places(self, round_number: int) -> list[Place]:
        """Where this look reads groups, at own number of shards."""
        shards, shard = self._crowd.shards, self._random.randrange
        open_round = self._random.sample(range(shards), min(shards, PLACES_PER_LOOK))
        places = [Place(self._swarm, GROUPS, round_number, shards, at) for at in open_round]
        if round_number > 0:
            places.append(Place(self._swarm, GROUPS, round_number - 1, shards, shard(shards)))
        return places

    def other_places(self, round_number: int) -> list[Place]:
        """Now and then: problems, and groups at other numbers of shards.

        Often nothing lies there, and then a search asks a whole beam of nodes before it ends.
        """
        shards, shard = self._crowd.shards, self._random.randrange
        rounds = [number for number in (round_number, round_number - 1) if number >= 0]
        places: list[Place] = []
        if self._all_round:
            asked = rounds if shards == 1 else [self._random.choice(rounds)]
            places += [Place(self._swarm, PROPOSALS, number, shards, shard(shards)) for number in asked]
        if self._all_round or self._crowd.alone or self._idle:
            for other in self._crowd.elsewhere(lost=self._idle >= LOST_LOOKS):
                places.append(Place(self._swarm, GROUPS, self._random.choice(rounds), other, shard(other)))
        return list(dict.fromkeys(places))

    async def _read(self, round_number: int) -> list[News]:
        """New headers of the places of this look, in the order in which they are worth pulling."""
        places = [*self.places(round_number), *self.other_places(round_number)]
        well_read = places[:1] if self._all_round or not self._met else []
        try:
            found = dict(await self._transport.headers(places[len(well_read) :], thorough=False))
            found |= await self._transport.headers(well_read, thorough=True)
        except UNANSWERED:
            self.counts["reads_in_vain"] += 1
            return []
        for place in places:
            if place.kind == GROUPS and place.round < round_number:  # the open round is still filling
                self._crowd.note(place.shards, len(found.get(place, ())))
        told = [(one.peer, one.payload, place) for place, records in found.items() for one in records]
        self._met = any(peer != self._transport.me for peer, _, _ in told)
        return self._chosen([news for peer, payload, place in told if (news := self._news(peer, payload, place))])

    def _news(self, peer: str, payload: bytes, place: Place) -> News | None:
        """The header in a peer's record when it announces a body not dealt with yet, by a peer to deal with."""
        if peer == self._transport.me or self._trust.refusal(peer):
            return None
        digest = body_digest(payload)
        try:
            header = decode_header(payload)
            if (header.kind, header.round) != (place.kind, place.round):
                raise Refusal("header", "not about the place it lies in")
        except Refusal as refusal:
            if (peer, digest) not in self._attempts:  # a bad header is read at every look and counted once
                self._begin(peer, digest)
                self._refuse(peer, refusal)
            return None
        return News(peer, header) if self._attempts.get((peer, header.digest), 0) < PULL_ATTEMPTS else None

    def _chosen(self, news: Sequence[News]) -> list[News]:
        """Peers that were believed so far first, at random; then those with problems that no other brings."""
        # Efraimidis & Spirakis, "Weighted random sampling with a reservoir", 2006: the largest u^(1/w) first
        by_chance = sorted(news, key=lambda one: -(self._random.random() ** (1 / self._trust.chance(one.peer))))
        seen: set[bytes] = set()
        fresh: list[News] = []
        rest: list[News] = []
        for one in by_chance:
            (rest if seen.issuperset(one.header.problems) else fresh).append(one)
            seen.update(one.header.problems)
        return [*fresh, *rest]

    async def _hear(self, news: Sequence[News]) -> None:
        """Pull the bodies, as far as the budget of groups goes. Problems are few and cost none."""
        async with asyncio.TaskGroup() as tasks:
            for one in news[:PULLS_PER_LOOK]:
                wanted = one.header.count
                if one.header.kind == GROUPS:
                    wanted = min(self._budget, wanted)
                    self._budget -= wanted
                if wanted:
                    tasks.create_task(self._pull(one, wanted))

    async def _pull(self, news: News, wanted: int) -> None:
        """One body from the peer that announced it, checked against the header, told to the trainer."""
        peer, header = news.peer, news.header
        self._begin(peer, header.digest)
        try:
            async with self._pulls:
                body = await self._body(peer, header)
            if body is None:
                self._refund(header, wanted)
                self.counts["pulls_in_vain"] += 1
                self._trust.blame(peer, Offence.TIMEOUT)
                return
            heard = self._checked(peer, header, body, wanted)
        except Refusal as refusal:
            self._refund(header, wanted)
            self._refuse(peer, refusal)
        else:
            if self._trust.first_time(header.digest):
                self._trust.praise(peer, groups=wanted if header.kind == GROUPS else 0, size=len(body))
                self._on_heard(heard)
            else:
                self._refund(header, wanted)
                self.counts["refused_duplicate"] += 1
                self._trust.blame(peer, Offence.DUPLICATE)
        self._attempts[peer, header.digest] = PULL_ATTEMPTS

    def _refund(self, header: Header, wanted: int) -> None:
        self._budget += wanted if header.kind == GROUPS else 0

    async def _body(self, peer: str, header: Header) -> bytes | None:
        """From its holder, or as its author left it in the DHT; None: neither."""
        with contextlib.suppress(*UNANSWERED):
            return await within(PULL_SECONDS, self._fetch(peer, header))
        try:
            return await self._transport.withdraw(peer, header.digest)
        except UNANSWERED:
            return None

    async def _fetch(self, peer: str, header: Header) -> bytes:
        body = bytearray()
        while len(body) < header.size:
            request = msgspec.msgpack.encode(ChunkRequest(header.digest, len(body)))
            piece = await self._transport.ask(peer, "chunk", request)
            self.counts["bytes_in"] += len(piece)
            if not piece:
                raise Refusal("gone", "announced and not served")
            if len(body) + len(piece) > min(header.size, MAX_BODY):
                raise Refusal("size", "longer than announced")
            body += piece
        return bytes(body)

    def _checked(self, peer: str, header: Header, body: bytes, wanted: int) -> Heard:
        """Raises Refusal. What the trainer gets was written by our own encoder."""
        if body_digest(body) != header.digest:
            raise Refusal("digest")
        if header.kind == GROUPS:
            groups = decode_body(body)
            said = (groups[0].peer_id, groups[0].round, len(groups))
            again = encode_body(groups[:wanted], peer=peer, round_number=header.round) if said[0] == peer else b""
        else:
            author, round_number, problems = decode_proposals(body)
            said = (author, round_number, len(problems))
            again = encode_proposals(problems, peer=peer, round_number=header.round)
        if said != (peer, header.round, header.count):
            raise Refusal("header", "the body is another's, of another round or size")
        return Heard(kind=header.kind, peer=peer, round=header.round, body=again, tokenizer=header.tokenizer)

    def _begin(self, peer: str, digest: bytes) -> None:
        self._attempts[peer, digest] = self._attempts.get((peer, digest), 0) + 1
        while len(self._attempts) > SEEN_DIGESTS:
            self._attempts.popitem(last=False)

    def _refuse(self, peer: str, refusal: Refusal) -> None:
        self.counts[f"refused_{refusal.reason}"] += 1
        if refusal.reason != "version":
            self._trust.blame(peer, OFFENCES.get(refusal.reason, Offence.MALFORMED))
