"""One node's part in the gossip, over any transport: announce own bodies, pull those of others that are new.

A header or body that breaks a rule is counted and costs its sender some trust."""

import asyncio
import contextlib
import functools
import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from random import Random
from typing import Any

import msgspec

from codezero.errors import UnreachableError, translated
from codezero.swarm import calls, wire
from codezero.swarm.calls import UNANSWERED, Transport
from codezero.swarm.records import LIFETIME, PeerRecordValidator, RecordPlace, ShardEstimate, place_of
from codezero.swarm.supervisor import PeerFeedback, Publish, ReceivedBody
from codezero.swarm.trust import Offence, PeerTrust
from codezero.swarm.wire import GROUPS, MARKET, PROPOSALS, Header, WireRefusal
from codezero.system.signals import Backoff
from codezero.system.state import Newest
from codezero.types import Problem, mean

RELAYS = 3  # Most that are asked for one body
PULL_SECONDS, DIAL_SECONDS = 5.0, 2.5  # Most for a whole body; of an unconnected author whom others may relay
SEEN_DIGESTS = 8192
PULLS_PER_POLL, PULL_ATTEMPTS = 16, 3
ALL_ROUND_EVERY = 4  # Polls until one reads problems, and asks all holders of a place: the nearest may lack a record

# Offence by reason of a refusal; any other is a malformed body. A newer version is no offence.
OFFENCES = {"digest": Offence.DIGEST, "owner": Offence.FORGED, "header": Offence.FORGED, "gone": Offence.SILENT}

pack = msgspec.msgpack.encode
News = tuple[str, Header]  # An announcer, and a header of it that was not handled yet


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
        self._direct = calls.DirectReader(transport, trust, random, self.refuse)
        self.ways = Newest[str, str](SEEN_DIGESTS)  # By author who its last body came from: itself, or a relay
        self._newcomers: set[str] = set()  # Unknown peers that were asked themselves in this poll
        self.announced = Newest[tuple[str, bytes], int](SEEN_DIGESTS)  # Sizes in headers read, by author and digest
        # Pulls begun; PULL_ATTEMPTS: finished. By peer too, so that nobody blocks another's body by announcing it.
        self._attempts = Newest[tuple[str, bytes], int](SEEN_DIGESTS)
        self._polls = self.idle = 0  # Polls, and those of them since the last news, which lengthen the pause
        self._phase = random.randrange(ALL_ROUND_EVERY)
        self._all_round = True  # Whether this poll is one of those that read more
        self.alone = 1  # Polls in a row that saw no record of a peer
        self._budget = pull_groups  # Groups that the trainer has room for
        self.market = False  # Whether to read the own shard's posts to the market, even without room for groups
        self.environment = b""
        self._pulls = asyncio.Semaphore(4)

    def pause(self, seconds: float) -> float:
        """Return the time until the next poll: `seconds`, doubled for each poll without news, up to 8 s."""
        return max(seconds, min(seconds * 2**self.idle, 8.0))

    def refill(self) -> None:
        """Allow `pull_groups` groups again: the trainer took what had arrived."""
        self._budget = self._pull_groups

    async def poll(self, round_number: int) -> None:
        """Read some places of this round and the last, and pull what is announced there, if the trainer has room.
        Pulling groups uses up the budget; anything else costs none."""
        if self._budget <= 0 and not self.market:
            return
        self._all_round = self._polls == 0 or (self._polls + self._phase) % ALL_ROUND_EVERY == 0
        news = await self._read(round_number)
        self.idle = 0 if news else min(self.idle + 1, 3)
        async with asyncio.TaskGroup() as tasks:
            for peer, header in news[:PULLS_PER_POLL]:
                wanted = header.count
                if header.kind == GROUPS:
                    # Newcomers are pulled first, with an eighth of the budget at most.
                    share = max(1, self._pull_groups // 8) if peer in self._newcomers else wanted
                    wanted = min(self._budget, wanted, share)
                    self._budget -= wanted
                if wanted:
                    tasks.create_task(self._pull(peer, header, wanted))
        self._polls += 1

    def _places(self, round_number: int) -> list[RecordPlace]:
        """List places of groups at the own number of shards; at times of problems, and of groups at other numbers."""
        shards, shard = self._sharding.shards, self._random.randrange
        rounds = [number for number in (round_number, round_number - 1) if number >= 0]
        posted = (rounds if self._all_round else rounds[:1]) if self.market else []
        market = [place_of(self._transport.me, self._swarm, MARKET, number, shards) for number in posted]
        if self._budget <= 0:
            return market
        open_round = self._random.sample(range(shards), min(shards, 2))
        places = [RecordPlace(self._swarm, GROUPS, round_number, shards, at) for at in open_round]
        # Where the chain is gone, some have read one round more than others, and stay in it.
        beside = [*rounds[1:], *([round_number + 1] if self._all_round else [])]
        places += [RecordPlace(self._swarm, GROUPS, number, shards, shard(shards)) for number in beside]
        if self._all_round:
            chosen = rounds if shards == 1 else [self._random.choice(rounds)]
            places += [RecordPlace(self._swarm, PROPOSALS, number, shards, shard(shards)) for number in chosen]
        if self._all_round or self._sharding.alone or self.idle:
            # Without news one reads as widely as a newcomer: others may estimate other numbers of shards.
            for other in self._sharding.elsewhere(lost=self.idle >= 2):
                places.append(RecordPlace(self._swarm, GROUPS, self._random.choice(rounds), other, shard(other)))
        return list(dict.fromkeys([*places[:1], *market, *places[1:]]))  # the first are to be read well

    async def _read(self, round_number: int) -> list[News]:
        """Return the new headers in the places of this poll, in the order in which to pull them."""
        places = self._places(round_number)
        well_read = places[: 1 + self.market] if self._all_round or self.alone else []
        self.alone += 1
        direct = asyncio.create_task(self._direct.read())
        records: dict[RecordPlace, calls.Records] = {}
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
        answered = [record for record in await direct if (record[0].kind, record[0].round) in wanted]
        self._newcomers = {peer for _, peer, _ in answered if not self._trust.knows(peer)}
        if answered or any(there.keys() - {self._transport.me} for there in records.values()):
            self.alone = 0
        read = [(place, *record) for place, there in records.items() for record in there.items()]
        news = {(item[0], item[1].digest): item for record in [*answered, *read] if (item := self._news(*record))}
        return self._ordered(list(news.values()))

    def _news(self, place: RecordPlace, peer: str, payload: bytes) -> News | None:
        """Return the header in a record, if it announces a new body of a peer that is not refused."""
        if peer == self._transport.me or self._trust.refusal(peer):
            return None
        digest = wire.body_digest(payload)
        try:
            header = wire.decode_header(payload)
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
        done = self._attempts.get((peer, header.digest), 0) >= PULL_ATTEMPTS or header.digest in self._trust.read
        return None if done else (peer, header)

    def _ordered(self, news: Sequence[News]) -> list[News]:
        """Order at random, weighted by trust: some posts to the market, then headers with problems that are new."""
        # Efraimidis & Spirakis, "Weighted random sampling with a reservoir", 2006: the largest log(u)/w first
        shares = self._trust.shares({peer for peer, _ in news})
        by_chance = sorted(news, key=lambda item: math.log(1 - self._random.random()) / shares[item[0]], reverse=True)
        by_chance.sort(key=lambda item: item[0] not in self._newcomers)
        posts = [item for item in by_chance if item[1].kind == MARKET][: PULLS_PER_POLL // 2]
        fresh, rest, seen = list[News](), list[News](), set[bytes]()
        for item in (item for item in by_chance if item[1].kind != MARKET):
            (rest if seen.issuperset(item[1].problems) else fresh).append(item)
            seen.update(item[1].problems)
        return [*posts, *fresh, *rest]

    async def _pull(self, peer: str, header: Header, wanted: int) -> None:
        """Pull a body, check it against its header, and hand so many items of it, encoded anew, to the trainer."""
        groups, kind = wanted if header.kind == GROUPS else 0, header.kind
        self._attempts[peer, header.digest] = self._attempts.get((peer, header.digest), 0) + 1
        try:
            async with self._pulls:
                author, round_number, items = wire.DECODE[kind](await self._body(peer, header))
                if (author, round_number, len(items)) != (peer, header.round, header.count):
                    raise WireRefusal("header", "the body is another's, of another round or size")
                if wire.environment_of(kind, items) != (header.environment or b""):
                    raise WireRefusal("header", "the body belongs to another environment")
                body = wire.ENCODE[kind](items[:wanted], peer=peer, round_number=round_number)
        except UnreachableError:
            self._budget += groups
            self.counts["pulls_in_vain"] += 1
            self._trust.blame(peer, Offence.TIMEOUT)
            return
        except WireRefusal as refusal:
            self._budget += groups
            self.refuse(peer, refusal)
        else:
            self._trust.read[header.digest] = None
            self._trust.praise(peer, groups=groups, size=header.size)
            self._on_body(ReceivedBody(kind, peer, round_number, body, header.tokenizer))
        self._attempts[peer, header.digest] = PULL_ATTEMPTS

    async def _body(self, peer: str, header: Header) -> bytes:
        """Pull from the author, else by a neighbour connected with both. Raises UnreachableError and WireRefusal."""

        def may_relay(way: str) -> bool:
            return way != peer and not self._trust.refusal(way)

        before, relays, connected = self.ways.get(peer, peer), list[str](), self._direct.connected
        if peer not in connected:
            willing = filter(may_relay, self._transport.relays(peer))
            ranked = sorted(calls.by_network(willing, connected), key=itemgetter(0))
            near, others = ranked[: RELAYS - 1], ranked[RELAYS - 1 :]
            # The nearest in the DHT, networks in turn, and one by chance, as nearness can be had.
            chosen = [relay for *_, relay in [*near, *self._random.sample(others, min(1, len(others)))]]
            relays = list(filter(may_relay, dict.fromkeys([before, *chosen])))  # first who relayed the last one
        for way in [peer, *relays] if before == peer else [*relays, peer]:
            with contextlib.suppress(*UNANSWERED):
                seconds = DIAL_SECONDS if way == peer and relays else PULL_SECONDS
                body = await calls.within(seconds, self._pull_by(way, peer, header))
                self.ways[peer] = way
                return body
        raise UnreachableError(f"{peer} does not answer")

    async def _pull_by(self, way: str, peer: str, header: Header) -> bytes:
        """Raises UnreachableError, and WireRefusal for what is the author's fault: a relay never saw what it signed."""

        async def ask(offset: int) -> bytes:
            if way == peer:
                piece = await self._transport.ask(peer, "chunk", pack(calls.ChunkRequest(header.digest, offset)))
            else:
                request = pack(calls.RelayRequest(peer, header.digest, header.size, offset))
                with translated(UnreachableError, f"{way} does not relay", WireRefusal):
                    piece = await self._transport.ask(way, "relay", request)
            self.counts["bytes_in"] += len(piece)
            return piece

        body = await calls.pull(ask, header.size)
        right = wire.body_digest(body) == header.digest
        if way != peer and not right:  # a relay of ours has compared it
            if len(body) >= header.size:
                self._trust.blame(way, Offence.DIGEST)
            raise UnreachableError(f"{way} does not relay it")
        if len(body) != header.size:
            raise WireRefusal("size" if right or len(body) > header.size else "gone", "not what was announced")
        if not right:
            raise WireRefusal("digest")
        return body

    def refuse(self, peer: str, refusal: WireRefusal) -> None:
        """Count it and blame the peer."""
        self.counts[f"refused_{refusal.reason}"] += 1
        if refusal.reason not in ("version", "environment"):
            self._trust.blame(peer, OFFENCES.get(refusal.reason, Offence.MALFORMED))


@dataclass(slots=True)
class Announcement:
    """The newest own header of one kind and round."""

    place: RecordPlace
    tries: Backoff
    header: bytes = b""
    confirm: bool = True  # Whether none was stored in its place yet: the first is read back from others
    expiry: float = 0.0  # Seconds since 1970 at which the stored record ends; 0: not stored yet


class Announcer:
    """One node's announcements."""

    def __init__(
        self, transport: Transport, server: calls.BodyServer, validator: PeerRecordValidator, sharding: ShardEstimate
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._server, self._sharding = transport, server, sharding
        self._swarm, self._clock = validator.swarm, validator.clock
        # Groups, problems or payloads by kind and round, each with its reward; and whose token ids all have.
        self._queued: dict[tuple[wire.Kind, int], tuple[bytes, deque[tuple[Any, float | None]]]] = {}
        self._announced: dict[tuple[wire.Kind, int], Announcement] = {}

    def add(self, message: Publish) -> None:
        """Queue for the next turn; the newest MAX_ITEMS of a kind and round are kept. Raises WireRefusal."""
        key = message.kind, message.round
        new = message.tokenizer, deque[tuple[Any, float | None]](maxlen=wire.MAX_ITEMS)
        # The newest post has all that was in those before, and a header names one tokenizer.
        if message.kind == MARKET or self._queued.get(key, new)[0] != message.tokenizer:
            self._queued.pop(key, None)
        items = wire.DECODE[message.kind](message.body)[2]
        rewards = message.rewards if message.kind == GROUPS else [None] * len(items)
        self._queued.setdefault(key, new)[1].extend(zip(items, rewards, strict=True))

    def forget(self, *, before: int) -> None:
        """Drop what belongs to rounds that nobody reads any more."""
        self._announced = {key: value for key, value in self._announced.items() if key[1] >= before}
        self._queued = {key: items for key, items in self._queued.items() if key[1] >= before}

    def pack(self, kind: wire.Kind) -> tuple[wire.Header, bytes] | None:
        """Pack header and body of the newest items of the oldest round that waits. None when nothing waits or fits."""
        round_number = min((key[1] for key in self._queued if key[0] == kind), default=None)
        if round_number is None:
            return None
        tokenizer, queued = self._queued.pop((kind, round_number))
        encode = functools.partial(wire.ENCODE[kind], peer=self._transport.me, round_number=round_number)
        items, body = wire.largest(list(reversed(queued)), lambda some: encode([content for content, _ in some]))
        if not items:
            return None
        contents = [content for content, _ in items[: 0 if kind == MARKET else 16]]
        problems: list[Problem] = [group.problem for group in contents] if kind == GROUPS else contents
        environment = wire.environment_of(kind, contents)
        header = wire.Header(
            v=wire.DERIVED if environment else wire.VERSION,
            kind=kind,
            round=round_number,
            digest=wire.body_digest(body),
            size=len(body),
            codec="zlib",
            tokenizer=tokenizer,
            count=len(items),
            problems=[bytes.fromhex(problem.id)[:16] for problem in problems],
            reward=mean(reward for _, reward in items if reward is not None),
            time=self._clock(),
            environment=environment or msgspec.UNSET,
        )
        return header, body

    def headers(self) -> bytes:
        """Encode the own announcements for a peer that asks."""
        return calls.encode_headers({each.place: each.header for each in self._announced.values()})

    async def announce(self) -> None:
        """Announce what is new, and again what is about to expire."""
        for kind in wire.ENCODE:
            if packed := self.pack(kind):
                header, body = packed
                self._server.bodies[header.digest] = body
                place = place_of(self._transport.me, self._swarm, kind, header.round, self._sharding.shards)
                new = Announcement(place, Backoff(1.0, 60.0, self._clock))
                announcement = self._announced.setdefault((kind, header.round), new)
                announcement.header, announcement.expiry = wire.encode_header(header), 0.0
                announcement.tries.succeeded()
        for each in list(self._announced.values()):
            if each.expiry < self._clock() + LIFETIME / 2 and not each.tries.left:
                expiry, stored = self._clock() + LIFETIME, False
                with contextlib.suppress(*UNANSWERED):
                    stored = await self._transport.announce(each.place, each.header, expiry, confirm=each.confirm)
                self.counts["announcements" if stored else "announcements_in_vain"] += 1
                if stored:
                    each.expiry, each.confirm = expiry, False
                    each.tries.succeeded()
                else:
                    each.tries.failed()


class Exchange:
    """All parts of the gossip: `publish` queues, `poll` is one turn. For one event loop."""

    def __init__(
        self,
        transport: Transport,
        validator: PeerRecordValidator,
        trust: PeerTrust,
        *,
        pull_groups: int,
        relay: bool = True,
        on_body: Callable[[ReceivedBody], None],
        on_feedback: Callable[[PeerFeedback], None] = lambda _: None,
        random: Random | None = None,
    ) -> None:
        """relay: pass on bodies between members that do not reach each other. random: decides what is read first."""
        self._transport, self.validator = transport, validator
        random = random or Random()
        self.sharding = ShardEstimate(random)
        self.server = calls.BodyServer(trust)
        self.announcer = Announcer(transport, self.server, validator, self.sharding)
        self.listener = Listener(
            transport, self.sharding, trust, validator.swarm, pull_groups=pull_groups, on_body=on_body, random=random
        )
        self.feedback = calls.FeedbackExchange(transport, trust, self.listener.refuse, on_feedback)
        self.relay = calls.BodyRelay(transport, trust, self.listener.announced, willing=relay)
        networks = PeerTrust(lambda _: True, validator.clock, calls.OWN_NETWORK)
        trust.shared = lambda peer, requests, size: (
            networks.spend(self.relay.network_by_peer.get(peer, ""), requests, size) or trust.knows(peer)
        )

    async def start(self) -> None:
        """Begin to serve. Raises UnreachableError."""
        await self._transport.serve(self._answer)

    def publish(self, message: Publish) -> None:
        """Queue an announcement; who posts to the market reads it from then on. Raises WireRefusal."""
        self.announcer.add(message)
        self.listener.market |= message.kind == MARKET

    def open_round(self, round_number: int, *, hungry: bool = True, environment: bytes = b"") -> None:
        """Open a round; older ones but the last are forgotten. `hungry`: refill the pull budget.

        environment: as in a header; groups and problems of others are left where they are."""
        self.listener.environment = environment
        if round_number != self.validator.round:
            self.listener.idle = 0
        self.validator.round = round_number
        self.announcer.forget(before=round_number - 1)
        if hungry:
            self.listener.refill()

    async def poll(self) -> None:
        """Announce what is new or about to expire, then pull what peers announced and send them feedback."""
        await self.announcer.announce()
        if self.validator.round is not None:
            await asyncio.gather(self.listener.poll(self.validator.round), self.feedback.send())

    async def _answer(self, call: calls.Call, peer: str, request: bytes) -> bytes:
        await self.relay.list_connected()
        match call:
            case "relay":
                return await self.relay.answer(peer, request)
            case "chunk":
                return self.server.answer(peer, request)
            case "feedback":
                return self.feedback.take(peer, request)
            case "headers":
                return self.announcer.headers() if self.server.allows(peer) else b""

    def take_counts(self) -> dict[str, int]:
        """Take everything counted since the last call, the validator's refusals included."""
        counts = Counter({f"refused_{reason}": count for reason, count in self.validator.refused.items()})
        self.validator.refused.clear()
        for part in (self.announcer, self.listener, self.server, self.relay, self.feedback):
            counts.update(part.counts)
            part.counts.clear()
        return dict(counts)
