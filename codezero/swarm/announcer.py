"""Turns queued groups and problems into bodies that are served and headers that others read."""

import functools
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import structs

from codezero.swarm.messages import Publish
from codezero.swarm.records import LIFETIME, MAX_DEPOSIT, RecordPlace, shard_of
from codezero.swarm.schema import GROUPS, MAX_BODY, MAX_ITEMS, PROPOSALS, VERSION, Header, Kind
from codezero.swarm.serving import BodyServer
from codezero.swarm.transport import UNANSWERED, Transport
from codezero.swarm.wire import (
    body_digest,
    decode_body,
    decode_proposals,
    encode_body,
    encode_header,
    encode_proposals,
    largest,
)
from codezero.system.signals import Backoff
from codezero.types import Problem, RolloutGroup


@dataclass(frozen=True, slots=True)
class QueuedItem:
    """One group or problem, and what its announcement says of it."""

    content: RolloutGroup | Problem
    reward: float | None
    tokenizer: bytes

    @property
    def problem_id(self) -> str:
        return (self.content.problem if isinstance(self.content, RolloutGroup) else self.content).id


class AnnouncementQueue:
    """The newest MAX_ITEMS of each kind and round that were not announced yet; older ones are dropped."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._items: dict[tuple[Kind, int], deque[QueuedItem]] = {}

    def add(self, message: Publish) -> None:
        """Raises WireRefusal for a body that `wire` did not write."""
        waiting = self._items.setdefault((message.kind, message.round), deque(maxlen=MAX_ITEMS))
        if waiting and waiting[-1].tokenizer != message.tokenizer:  # a header names one tokenizer
            waiting.clear()
        if message.kind == GROUPS:
            for content, reward in zip(decode_body(message.body), message.rewards, strict=True):
                waiting.append(QueuedItem(content, reward, message.tokenizer))
        else:
            problems = decode_proposals(message.body)[2]
            waiting.extend(QueuedItem(content, None, message.tokenizer) for content in problems)

    def forget(self, *, before: int) -> None:
        """Drop what belongs to rounds that nobody reads any more."""
        self._items = {key: items for key, items in self._items.items() if key[1] >= before}

    def pack(self, kind: Kind, *, most: int = MAX_BODY) -> tuple[Header, bytes] | None:
        """Header (its time still open) and a body of at most `most` bytes: the newest items of the oldest round that
        waits. None when nothing waits or fits."""
        rounds = [key[1] for key in self._items if key[0] == kind]
        if not rounds:
            return None
        round_number = min(rounds)
        waiting = list(reversed(self._items.pop((kind, round_number))))
        items, body = largest(waiting, functools.partial(self._encode, round_number), most)
        if not items:
            return None
        rewards = [item.reward for item in items if item.reward is not None]
        header = Header(
            v=VERSION,
            kind=kind,
            round=round_number,
            digest=body_digest(body),
            size=len(body),
            codec="zlib",
            tokenizer=items[0].tokenizer,
            count=len(items),
            problems=[bytes.fromhex(item.problem_id)[:16] for item in items[:16]],
            reward=sum(rewards) / len(rewards) if rewards else None,
            time=0.0,
        )
        return header, body

    def _encode(self, round_number: int, items: Sequence[QueuedItem]) -> bytes:
        groups = [item.content for item in items if isinstance(item.content, RolloutGroup)]
        if groups:
            return encode_body(groups, peer=self._peer, round_number=round_number)
        problems = [item.content for item in items if isinstance(item.content, Problem)]
        return encode_proposals(problems, peer=self._peer, round_number=round_number)


logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts to store a record that nobody was seen to have."""
DEPOSIT_SECONDS = 60.0
"""Least time between two bodies that an unreachable author leaves in the DHT."""


@dataclass(slots=True)
class Announcement:
    """The newest own header of one kind and round."""

    place: RecordPlace
    header: bytes
    tries: Backoff
    expiry: float = 0.0
    """Seconds since 1970 at which the stored record ends; 0: not stored yet."""
    confirm: bool = True
    """Whether it is the first in its place, which is read back from others."""


class Announcer:
    """One node's announcements. Unless `reachable`, bodies are left in the DHT too, since nobody can pull them."""

    def __init__(
        self,
        transport: Transport,
        server: BodyServer,
        *,
        swarm: str,
        clock: Callable[[], float],
        shards: Callable[[], int],
    ) -> None:
        """`shards`: over how many places a round is spread now."""
        self.counts: Counter[str] = Counter()
        self.reachable = True
        self._transport, self._server, self._swarm = transport, server, swarm
        self._clock, self._shards = clock, shards
        self.queue = AnnouncementQueue(transport.me)
        self._announced: dict[tuple[Kind, int], Announcement] = {}
        self._deposited: dict[Kind, float] = {}

    def forget(self, *, before: int) -> None:
        """Drop what belongs to rounds that nobody reads any more."""
        self._announced = {key: value for key, value in self._announced.items() if key[1] >= before}
        self.queue.forget(before=before)

    async def announce(self) -> None:
        """Announce what is new, and again what is about to expire."""
        for kind in (GROUPS, PROPOSALS):
            due = self.reachable or self._clock() >= self._deposited.get(kind, 0.0) + DEPOSIT_SECONDS
            packed = self.queue.pack(kind, most=MAX_BODY if self.reachable else MAX_DEPOSIT) if due else None
            if packed is not None:
                await self._keep(*packed)
        for announcement in list(self._announced.values()):
            if announcement.expiry < self._clock() + LIFETIME / 2 and not announcement.tries.left:
                await self._store(announcement)

    async def _keep(self, header: Header, body: bytes) -> None:
        """Serve a body and announce it; if nobody can pull it, leave it in the DHT."""
        self._server.keep(body)
        if not self.reachable:
            self._deposited[header.kind] = self._clock()
            try:
                kept = await self._transport.deposit(header.digest, body, self._clock() + LIFETIME)
            except UNANSWERED:
                kept = False
            self.counts["deposits" if kept else "deposits_in_vain"] += 1
        self._replace(header)

    def _replace(self, header: Header) -> None:
        """The newest announcement of a kind and round stays where the first one was put."""
        encoded = encode_header(structs.replace(header, time=self._clock()))
        key = (header.kind, header.round)
        tries = Backoff(FIRST_PAUSE, LONGEST_PAUSE, self._clock)
        if before := self._announced.get(key):
            self._announced[key] = Announcement(before.place, encoded, tries, confirm=before.confirm)
            return
        shards = self._shards()
        shard = shard_of(header.round, self._transport.me, shards)
        place = RecordPlace(self._swarm, header.kind, header.round, shards, shard)
        self._announced[key] = Announcement(place, encoded, tries)

    async def _store(self, announcement: Announcement) -> None:
        expiry = self._clock() + LIFETIME
        try:
            stored = await self._transport.announce(
                announcement.place, announcement.header, expiry, confirm=announcement.confirm
            )
        except UNANSWERED:
            stored = False
        self.counts["announcements" if stored else "announcements_in_vain"] += 1
        if stored:
            announcement.expiry, announcement.confirm = expiry, False
            announcement.tries.succeeded()
        else:
            announcement.tries.failed()
