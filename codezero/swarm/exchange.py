"""One node's part in the gossip, over any transport: announce own bodies, pull others'."""

import asyncio
import contextlib
import functools
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import msgspec

from codezero.swarm import schema
from codezero.swarm.direct import FeedbackExchange, encode_headers
from codezero.swarm.listener import Listener
from codezero.swarm.messages import Publish, ReceivedBody, ReceivedFeedback
from codezero.swarm.records import LIFETIME, PeerRecordValidator, RecordPlace, ShardEstimate, place_of
from codezero.swarm.schema import GROUPS, MARKET, Kind, body_digest, encode_header
from codezero.swarm.serving import OWN_NETWORK, BodyRelay, BodyServer
from codezero.swarm.transport import UNANSWERED, Call, Transport
from codezero.swarm.trust import PeerTrust
from codezero.swarm.wire import DECODE, ENCODE, environment_of, largest
from codezero.system.signals import Backoff
from codezero.types import Problem, mean

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts to store a record that nobody was seen to have."""


class QueuedItem(NamedTuple):
    """One group, problem or payload, and what its announcement says of it."""

    content: Any
    reward: float | None
    tokenizer: bytes


@dataclass(slots=True)
class Announcement:
    """The newest own header of one kind and round."""

    place: RecordPlace
    tries: Backoff
    header: bytes = b""
    confirm: bool = True
    """Whether none was stored in its place yet: the first is read back from others."""
    expiry: float = 0.0
    """Seconds since 1970 at which the stored record ends; 0: not stored yet."""


class Announcer:
    """One node's announcements."""

    def __init__(
        self, transport: Transport, server: BodyServer, validator: PeerRecordValidator, sharding: ShardEstimate
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._transport, self._server, self._sharding = transport, server, sharding
        self._swarm, self._clock = validator.swarm, validator.clock
        self._queued: dict[tuple[Kind, int], deque[QueuedItem]] = {}
        self._announced: dict[tuple[Kind, int], Announcement] = {}

    def add(self, message: Publish) -> None:
        """Queue for the next turn; the newest MAX_ITEMS of a kind and round are kept. Raises WireRefusal."""
        if message.kind == MARKET:  # the newest has all that was in those before
            self._queued.pop((message.kind, message.round), None)
        queued = self._queued.setdefault((message.kind, message.round), deque(maxlen=schema.MAX_ITEMS))
        if queued and queued[-1].tokenizer != message.tokenizer:  # a header names one tokenizer
            queued.clear()
        items = DECODE[message.kind](message.body)[2]
        rewards = message.rewards if message.kind == GROUPS else [None] * len(items)
        queued.extend(QueuedItem(*item, message.tokenizer) for item in zip(items, rewards, strict=True))

    def forget(self, *, before: int) -> None:
        """Drop what belongs to rounds that nobody reads any more."""
        self._announced = {key: value for key, value in self._announced.items() if key[1] >= before}
        self._queued = {key: items for key, items in self._queued.items() if key[1] >= before}

    def pack(self, kind: Kind) -> tuple[schema.Header, bytes] | None:
        """Header and body of the newest items of the oldest round that waits. None when nothing waits or fits."""
        round_number = min((key[1] for key in self._queued if key[0] == kind), default=None)
        if round_number is None:
            return None
        newest_first = list(reversed(self._queued.pop((kind, round_number))))
        encode = functools.partial(ENCODE[kind], peer=self._transport.me, round_number=round_number)
        items, body = largest(newest_first, lambda some: encode([item.content for item in some]))
        if not items:
            return None
        contents = [item.content for item in items[: 0 if kind == MARKET else 16]]
        problems: list[Problem] = [group.problem for group in contents] if kind == GROUPS else contents
        environment = environment_of(kind, contents)
        header = schema.Header(
            v=schema.DERIVED if environment else schema.VERSION,
            kind=kind,
            round=round_number,
            digest=body_digest(body),
            size=len(body),
            codec="zlib",
            tokenizer=items[0].tokenizer,
            count=len(items),
            problems=[bytes.fromhex(problem.id)[:16] for problem in problems],
            reward=mean(item.reward for item in items if item.reward is not None),
            time=self._clock(),
            environment=environment or msgspec.UNSET,
        )
        return header, body

    def headers(self) -> bytes:
        """What is announced now, for whoever asks."""
        return encode_headers({announcement.place: announcement.header for announcement in self._announced.values()})

    async def announce(self) -> None:
        """Announce what is new, and again what is about to expire."""
        for kind in ENCODE:
            if packed := self.pack(kind):
                self._keep(*packed)
        for announcement in list(self._announced.values()):
            if announcement.expiry < self._clock() + LIFETIME / 2 and not announcement.tries.left:
                await self._store(announcement)

    def _keep(self, header: schema.Header, body: bytes) -> None:
        """Serve a body. Its header takes the place of the one before."""
        self._server.bodies[header.digest] = body
        place = place_of(self._transport.me, self._swarm, header.kind, header.round, self._sharding.shards)
        new = Announcement(place, Backoff(FIRST_PAUSE, LONGEST_PAUSE, self._clock))
        announcement = self._announced.setdefault((header.kind, header.round), new)
        announcement.header, announcement.expiry = encode_header(header), 0.0
        announcement.tries.succeeded()

    async def _store(self, announcement: Announcement) -> None:
        place, header, expiry, stored = announcement.place, announcement.header, self._clock() + LIFETIME, False
        with contextlib.suppress(*UNANSWERED):
            stored = await self._transport.announce(place, header, expiry, confirm=announcement.confirm)
        self.counts["announcements" if stored else "announcements_in_vain"] += 1
        if stored:
            announcement.expiry, announcement.confirm = expiry, False
            announcement.tries.succeeded()
        else:
            announcement.tries.failed()


class Exchange:
    """`publish` and `send_feedback` queue, `poll` is one turn, `pause` the time to the next. For one event loop."""

    def __init__(
        self,
        transport: Transport,
        validator: PeerRecordValidator,
        trust: PeerTrust,
        *,
        pull_groups: int,
        relay: bool = True,
        on_body: Callable[[ReceivedBody], None],
        on_feedback: Callable[[ReceivedFeedback], None] = lambda _: None,
        random: Random | None = None,
    ) -> None:
        """`on_body` gets peers' bodies, `on_feedback` their feedback. `random` decides what is read first. relay: pass
        on bodies between members that do not reach each other."""
        self._transport, self.validator = transport, validator
        random = random or Random()
        self.sharding = ShardEstimate(random)
        self.server = BodyServer(trust)
        self.announcer = Announcer(transport, self.server, validator, self.sharding)
        self.listener = Listener(
            transport, self.sharding, trust, validator.swarm, pull_groups=pull_groups, on_body=on_body, random=random
        )
        self.feedback = FeedbackExchange(transport, trust, self.listener.refuse, on_feedback)
        self.relay = BodyRelay(transport, trust, self.listener.announced, willing=relay)
        networks = PeerTrust(lambda _: True, validator.clock, OWN_NETWORK)
        trust.shared = lambda peer, requests, size: (
            networks.spend(self.relay.network_by_peer.get(peer, ""), requests, size) or trust.knows(peer)
        )
        self.send_feedback, self.pause = self.feedback.add, self.listener.pause

    async def start(self) -> None:
        """Begin to serve. Raises UnreachableError."""
        await self._transport.serve(self._answer)

    def publish(self, message: Publish) -> None:
        """Queue an announcement; who posts to the market reads it from then on. Raises WireRefusal."""
        self.announcer.add(message)
        self.listener.market |= message.kind == MARKET

    def open_round(self, round_number: int, *, hungry: bool = True, environment: bytes = b"") -> None:
        """The round that is open now; older ones but the last are forgotten. `hungry`: refill the pull budget.

        environment: as in a header; groups and problems of others are left where they are.
        """
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

    async def _answer(self, call: Call, peer: str, request: bytes) -> bytes:
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
        """Everything counted since the last call, the validator's refusals included."""
        taken = Counter({f"refused_{reason}": count for reason, count in self.validator.refused.items()})
        self.validator.refused.clear()
        for part in (self.announcer, self.listener, self.server, self.relay, self.feedback):
            taken.update(part.counts)
            part.counts.clear()
        return dict(taken)
