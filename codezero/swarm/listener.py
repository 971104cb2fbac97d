"""Reads peers' announcements, chooses among them, pulls the bodies that are new and checks them.

A header or body that breaks a rule is counted and costs its sender some trust.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from random import Random

import msgspec

from codezero.errors import UnreachableError, translated
from codezero.swarm.direct import DirectReader, by_network
from codezero.swarm.messages import ReceivedBody
from codezero.swarm.records import RecordPlace, ShardEstimate, place_of
from codezero.swarm.schema import GROUPS, MARKET, PROPOSALS, Header, WireRefusal, body_digest, decode_header
from codezero.swarm.serving import ChunkRequest, RelayRequest, pull
from codezero.swarm.transport import UNANSWERED, Records, Transport, within
from codezero.swarm.trust import Offence, PeerTrust
from codezero.swarm.wire import DECODE, ENCODE, environment_of
from codezero.system.state import Newest

PULLS_AT_ONCE = 4
RELAYS = 3
"""Most that are asked for one body."""
PULL_SECONDS, DIAL_SECONDS = 5.0, 2.5
"""Most for a whole body, in however many pieces; from an author without a connection, when others may relay it."""
SEEN_DIGESTS = 8192
PULLS_PER_POLL, PULL_ATTEMPTS = 16, 3
ALL_ROUND_EVERY = 4
"""Every so many polls all holders of a place are asked, as the nearest may lack a record, and problems are read."""
LONGEST_PAUSE, MOST_DOUBLINGS = 8.0, 3
"""Most seconds between two polls while nothing is new, unless the pause is set longer; most doublings of it."""
LOST_POLLS = 2
"""Polls without news after which a node reads as widely as a newcomer: others may estimate other shard counts."""
PLACES_PER_POLL = 2
"""Most shards of the open round that one poll reads."""

NEWCOMER_SHARE = 8
"""Of the budget, for each unknown peer that was asked itself: it comes first, and has an eighth at most."""

OFFENCES = {
    "digest": Offence.DIGEST,
    "owner": Offence.FORGED,
    "header": Offence.FORGED,
    "gone": Offence.SILENT,
}
"""Offence by reason of a refusal; any other is a malformed body. A newer version is no offence."""

pack = msgspec.msgpack.encode
News = tuple[str, Header]
"""An announcer, and a header of it that was not handled yet."""


class Listener:
    """Pulls peers' bodies. `poll` is one turn."""

    def __init__(
        self,
        transport: Transport,
        sharding: ShardEstimate,
        trust: PeerTrust,
        swarm: str,
        *,
        pull_groups: int,
        on_body: Callable[[ReceivedBody], None],
        random: Random,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._sharding, self._trust, self._swarm = transport, sharding, trust, swarm
        self._pull_groups, self._on_body, self._random = pull_groups, on_body, random
        self._direct = DirectReader(transport, trust, random, self.refuse)
        self.ways = Newest[str, str](SEEN_DIGESTS)
        """By author who its last body came from: itself, or a relay."""
        self._newcomers: set[str] = set()
        """Unknown peers that were asked themselves in this poll."""
        self.announced = Newest[tuple[str, bytes], int](SEEN_DIGESTS)
        """Sizes of bodies in headers that were read, by author and digest."""
        self._attempts = Newest[tuple[str, bytes], int](SEEN_DIGESTS)
        """Pulls begun; PULL_ATTEMPTS: finished. By peer too, so that nobody blocks another's body by announcing it."""
        self._polls = self.idle = 0
        """Polls, and those of them since the last news, which lengthen the pause."""
        self._phase = random.randrange(ALL_ROUND_EVERY)
        self._all_round = True
        """Whether this poll is one of those that read more."""
        self.alone = 1
        """Polls in a row that saw no record of a peer."""
        self._budget = pull_groups
        """Groups that the trainer has room for."""
        self.market, self.environment = False, b""
        """Whether to read what peers of the own shard post to the market, even without room for groups."""
        self._pulls = asyncio.Semaphore(PULLS_AT_ONCE)

    def pause(self, seconds: float) -> float:
        """Time until the next poll: `seconds`, doubled for each of the last polls without news."""
        return max(seconds, min(seconds * 2**self.idle, LONGEST_PAUSE))

    def refill(self) -> None:
        """Allow `pull_groups` groups again: the trainer took what had arrived."""
        self._budget = self._pull_groups

    async def poll(self, round_number: int) -> None:
        """Read some places of this round and the last, and pull what is announced there, if the trainer has room."""
        if self._budget > 0 or self.market:
            self._all_round = self._polls == 0 or (self._polls + self._phase) % ALL_ROUND_EVERY == 0
            news = await self._read(round_number)
            self.idle = 0 if news else min(self.idle + 1, MOST_DOUBLINGS)
            await self._pull_all(news)
            self._polls += 1

    def _places(self, round_number: int) -> list[RecordPlace]:
        """Groups at the own number of shards; at times problems, and groups at others: a vain search is dear."""
        shards, shard = self._sharding.shards, self._random.randrange
        rounds = [number for number in (round_number, round_number - 1) if number >= 0]
        posted = (rounds if self._all_round else rounds[:1]) if self.market else []
        market = [place_of(self._transport.me, self._swarm, MARKET, number, shards) for number in posted]
        if self._budget <= 0:
            return market
        open_round = self._random.sample(range(shards), min(shards, PLACES_PER_POLL))
        places = [RecordPlace(self._swarm, GROUPS, round_number, shards, at) for at in open_round]
        # Where the chain is gone, some have read one round more than others, and stay in it.
        beside = [*rounds[1:], *([round_number + 1] if self._all_round else [])]
        places += [RecordPlace(self._swarm, GROUPS, number, shards, shard(shards)) for number in beside]
        if self._all_round:
            chosen = rounds if shards == 1 else [self._random.choice(rounds)]
            places += [RecordPlace(self._swarm, PROPOSALS, number, shards, shard(shards)) for number in chosen]
        if self._all_round or self._sharding.alone or self.idle:
            for other in self._sharding.elsewhere(lost=self.idle >= LOST_POLLS):
                places.append(RecordPlace(self._swarm, GROUPS, self._random.choice(rounds), other, shard(other)))
        return list(dict.fromkeys([*places[:1], *market, *places[1:]]))  # the first are to be read well

    async def _read(self, round_number: int) -> list[News]:
        """New headers in the places of this poll, in the order in which to pull them."""
        places = self._places(round_number)
        well_read = places[: 1 + self.market] if self._all_round or self.alone else []
        self.alone += 1
        direct = asyncio.create_task(self._direct.read())
        records: dict[RecordPlace, Records] = {}
        try:
            records |= await self._transport.headers(places[len(well_read) :], thorough=False)
            records |= await self._transport.headers(well_read, thorough=True)
        except UNANSWERED:
            self.counts["reads_in_vain"] += 1
        else:
            for place in places:
                if place.kind == GROUPS and place.round < round_number:  # the open round is still filling
                    self._sharding.note(place.shards, len(records.get(place, ())))
        wanted = {(place.kind, place.round) for place in places} | {(PROPOSALS, round_number)}
        asked = [record for record in await direct if (record[0].kind, record[0].round) in wanted]
        self._newcomers = {peer for _, peer, _ in asked if not self._trust.knows(peer)}
        if asked or any(there.keys() - {self._transport.me} for there in records.values()):
            self.alone = 0
        read = [(place, *record) for place, there in records.items() for record in there.items()]
        news = {(item[0], item[1].digest): item for record in [*asked, *read] if (item := self._news(*record))}
        return self._chosen(list(news.values()))

    def _news(self, place: RecordPlace, peer: str, payload: bytes) -> News | None:
        """The header in a record, if it announces a new body of a peer that is not refused."""
        if peer == self._transport.me or self._trust.refusal(peer):
            return None
        digest = body_digest(payload)
        try:
            header = decode_header(payload)
            if (header.kind, header.round) != (place.kind, place.round):
                raise WireRefusal("header", "not about the place it lies in")
            self.announced[peer, header.digest] = header.size
            if header.kind in (GROUPS, PROPOSALS) and (header.environment or b"") != self.environment:
                raise WireRefusal("environment", "of another one than this node's")
        except WireRefusal as refusal:
            if (peer, digest) not in self._attempts:  # a bad header is read at every poll and counted once
                self._attempts[peer, digest] = 1
                self.refuse(peer, refusal)
            return None
        done = self._attempts.get((peer, header.digest), 0) >= PULL_ATTEMPTS or self._trust.has_read(header.digest)
        return None if done else (peer, header)

    def _chosen(self, news: Sequence[News]) -> list[News]:
        """In random order weighted by trust: some posts to the market, then headers with problems that are new here."""
        # Efraimidis & Spirakis, "Weighted random sampling with a reservoir", 2006: the largest log(u)/w first
        shares = self._trust.shares({peer for peer, _ in news})
        by_chance = sorted(news, key=lambda item: math.log(1 - self._random.random()) / shares[item[0]], reverse=True)
        seen: set[bytes] = set()
        fresh: list[News] = []
        rest: list[News] = []
        by_chance.sort(key=lambda item: item[0] not in self._newcomers)
        posts = [item for item in by_chance if item[1].kind == MARKET][: PULLS_PER_POLL // 2]
        for item in (item for item in by_chance if item[1].kind != MARKET):
            (rest if seen.issuperset(item[1].problems) else fresh).append(item)
            seen.update(item[1].problems)
        return [*posts, *fresh, *rest]

    async def _pull_all(self, news: Sequence[News]) -> None:
        """Pull until the budget of groups is used up. Anything else costs none."""
        async with asyncio.TaskGroup() as tasks:
            for peer, header in news[:PULLS_PER_POLL]:
                wanted = header.count
                if header.kind == GROUPS:
                    share = max(1, self._pull_groups // NEWCOMER_SHARE) if peer in self._newcomers else wanted
                    wanted = min(self._budget, wanted, share)
                    self._budget -= wanted
                if wanted:
                    tasks.create_task(self._pull(peer, header, wanted))

    async def _pull(self, peer: str, header: Header, wanted: int) -> None:
        """Pull one body from its announcer, check it against the header, and hand it to the trainer."""
        groups = wanted if header.kind == GROUPS else 0
        self._attempts[peer, header.digest] = self._attempts.get((peer, header.digest), 0) + 1
        try:
            async with self._pulls:
                received = await self._received(peer, header, wanted)
        except UnreachableError:
            self._budget += groups
            self.counts["pulls_in_vain"] += 1
            self._trust.blame(peer, Offence.TIMEOUT)
            return
        except WireRefusal as refusal:
            self._budget += groups
            self.refuse(peer, refusal)
        else:
            self._trust.first_time(header.digest)
            self._trust.praise(peer, groups=groups, size=header.size)
            self._on_body(received)
        self._attempts[peer, header.digest] = PULL_ATTEMPTS

    async def _body(self, peer: str, header: Header) -> bytes:
        """From its author, else by a neighbour connected with both. Raises UnreachableError and WireRefusal."""
        before, relays = self.ways.get(peer, peer), list[str]()
        if peer not in self._direct.connected:
            candidates = dict.fromkeys([before, *self._relays(peer)])  # first who relayed the last one
            relays = [way for way in candidates if way != peer and not self._trust.refusal(way)]
        ways = [peer, *relays] if before == peer else [*relays, peer]
        for way in ways:
            with contextlib.suppress(*UNANSWERED):
                seconds = DIAL_SECONDS if way == peer and relays else PULL_SECONDS
                body = await within(seconds, self._pull_by(way, peer, header))
                self.ways[peer] = way
                return body
        raise UnreachableError(f"{peer} does not answer")

    def _relays(self, peer: str) -> list[str]:
        """The nearest to it in the DHT, networks in turn, and one of the others by chance: nearness can be had."""
        relays = [relay for relay in self._transport.relays(peer) if relay != peer and not self._trust.refusal(relay)]
        ranked = sorted(by_network(relays, self._direct.connected), key=itemgetter(0))
        others = ranked[RELAYS - 1 :]
        return [relay for *_, relay in [*ranked[: RELAYS - 1], *self._random.sample(others, min(1, len(others)))]]

    async def _pull_by(self, way: str, peer: str, header: Header) -> bytes:
        """Raises UnreachableError, and WireRefusal for what is the author's fault: a relay never saw what it signed."""

        async def ask(offset: int) -> bytes:
            if way == peer:
                piece = await self._transport.ask(peer, "chunk", pack(ChunkRequest(header.digest, offset)))
            else:
                request = pack(RelayRequest(peer, header.digest, header.size, offset))
                with translated(UnreachableError, f"{way} does not relay", WireRefusal):
                    piece = await self._transport.ask(way, "relay", request)
            self.counts["bytes_in"] += len(piece)
            return piece

        body = await pull(ask, header.size)
        right = body_digest(body) == header.digest
        if way != peer and not right:  # a relay of ours has compared it
            if len(body) >= header.size:
                self._trust.blame(way, Offence.DIGEST)
            raise UnreachableError(f"{way} does not relay it")
        if len(body) != header.size:
            raise WireRefusal("size" if right or len(body) > header.size else "gone", "not what was announced")
        if not right:
            raise WireRefusal("digest")
        return body

    async def _received(self, peer: str, header: Header, wanted: int) -> ReceivedBody:
        """So many items of a body, encoded anew by our own encoder. Raises UnreachableError and WireRefusal."""
        author, round_number, items = DECODE[header.kind](await self._body(peer, header))
        if (author, round_number, len(items)) != (peer, header.round, header.count):
            raise WireRefusal("header", "the body is another's, of another round or size")
        if environment_of(header.kind, items) != (header.environment or b""):
            raise WireRefusal("header", "the body is of another environment")
        again = ENCODE[header.kind](items[:wanted], peer=peer, round_number=round_number)
        return ReceivedBody(kind=header.kind, peer=peer, round=round_number, body=again, tokenizer=header.tokenizer)

    def refuse(self, peer: str, refusal: WireRefusal) -> None:
        """Count it and blame the peer."""
        self.counts[f"refused_{refusal.reason}"] += 1
        if refusal.reason not in ("version", "environment"):
            self._trust.blame(peer, OFFENCES.get(refusal.reason, Offence.MALFORMED))
