"""Own side of the gossip: what waits becomes a body that is served and a header where others look for it.

Own groups and problems that wait to be announced, and the body the newest of them make.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from codezero.swarm.messages import Publish
from codezero.swarm.records import LIFETIME, MAX_DEPOSIT, Place, shard_of
from codezero.swarm.schema import GROUPS, MAX_BODY, MAX_ITEMS, PROPOSALS, VERSION, Header, Kind, Refusal
from codezero.swarm.serving import Server
from codezero.swarm.transport import UNANSWERED, Transport
from codezero.swarm.wire import decode_body, decode_proposals, encode_body, encode_header, encode_proposals
from codezero.system.backoff import backoff
from codezero.types import Problem, RolloutGroup


@dataclass(frozen=True, slots=True)
class Packed:
    """A body ready to be served."""

    kind: Kind
    round: int
    body: bytes
    problem_ids: tuple[str, ...]
    reward: float | None
    tokenizer: bytes

    def header(self, digest: bytes, now: float) -> Header:
        """The announcement of this body, at `now` seconds since 1970."""
        return Header(
            v=VERSION,
            kind=self.kind,
            round=self.round,
            digest=digest,
            size=len(self.body),
            codec="zlib",
            tokenizer=self.tokenizer,
            count=len(self.problem_ids),
            problems=[bytes.fromhex(name)[:16] for name in self.problem_ids[:16]],
            reward=self.reward,
            time=now,
        )


@dataclass(frozen=True, slots=True)
class Item:
    """One group or problem, with what its announcement will say."""

    content: RolloutGroup | Problem
    reward: float | None
    tokenizer: bytes

    @property
    def problem_id(self) -> str:
        return (self.content.problem if isinstance(self.content, RolloutGroup) else self.content).id


class Pending:
    """By kind and round, the newest MAX_ITEMS that were not announced yet; older ones are dropped."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._items: dict[tuple[Kind, int], deque[Item]] = {}

    def add(self, message: Publish) -> None:
        """Raises Refusal when the trainer sent what `wire` did not write."""
        waiting = self._items.setdefault((message.kind, message.round), deque(maxlen=MAX_ITEMS))
        if waiting and waiting[-1].tokenizer != message.tokenizer:  # a header names one tokenizer
            waiting.clear()
        if message.kind == GROUPS:
            rewards = message.rewards
            for content, reward in zip(decode_body(message.body), rewards, strict=True):
                waiting.append(Item(content, reward, message.tokenizer))
        else:
            waiting.extend(Item(content, None, message.tokenizer) for content in decode_proposals(message.body)[2])

    def forget(self, *, before: int) -> None:
        """Drop what belongs to rounds that nobody reads any more."""
        self._items = {key: items for key, items in self._items.items() if key[1] >= before}

    def pack(self, kind: Kind, *, most: int = MAX_BODY) -> Packed | None:
        """The body of the oldest round that waits, so that its last words are heard; None when nothing waits.

        The older half is left out until the rest has at most `most` bytes; None when the newest alone has more.
        """
        rounds = [key[1] for key in self._items if key[0] == kind]
        if not rounds:
            return None
        items = list(self._items.pop((kind, min(rounds))))
        while True:
            try:
                packed = self._pack(kind, min(rounds), items)
            except Refusal as refusal:
                if refusal.reason != "size" or len(items) == 1:
                    raise
            else:
                if len(packed.body) <= most:
                    return packed
                if len(items) == 1:
                    return None
            items = items[len(items) // 2 :]

    def _pack(self, kind: Kind, round_number: int, items: list[Item]) -> Packed:
        if kind == PROPOSALS:
            problems = [item.content for item in items if isinstance(item.content, Problem)]
            body = encode_proposals(problems, peer=self._peer, round_number=round_number)
        else:
            groups = [item.content for item in items if isinstance(item.content, RolloutGroup)]
            body = encode_body(groups, peer=self._peer, round_number=round_number)
        rewards = [item.reward for item in items if item.reward is not None]
        return Packed(
            kind=kind,
            round=round_number,
            body=body,
            problem_ids=tuple(item.problem_id for item in items),
            reward=sum(rewards) / len(rewards) if rewards else None,
            tokenizer=items[-1].tokenizer,
        )


logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts to store a record that nobody was seen to have; as `backoff` has it."""
DEPOSIT_SECONDS = 60.0
"""Least time between two bodies that an author whom nobody can reach leaves in the DHT."""


@dataclass(slots=True)
class Announcement:
    """Our newest header of one kind and round."""

    place: Place
    header: bytes
    expiry: float = 0.0
    """Seconds since 1970 at which the stored record ends; 0: not stored yet."""
    confirm: bool = True
    """Is it the first in its place, which is read back?"""
    failures: int = 0
    not_before: float = 0.0


class Announcer:
    """One node's announcements. `reachable` False: bodies are left in the DHT as well, since nobody can pull them."""

    def __init__(
        self, transport: Transport, server: Server, *, swarm: str, clock: Callable[[], float], shards: Callable[[], int]
    ) -> None:
        """`shards` tells over how many places a round is spread now."""
        self.counts: Counter[str] = Counter()
        self.reachable = True
        self._transport, self._server, self._swarm = transport, server, swarm
        self._clock, self._shards = clock, shards
        self.pending = Pending(transport.me)
        self._announced: dict[tuple[Kind, int], Announcement] = {}
        self._deposited: dict[Kind, float] = {}

    def forget(self, *, before: int) -> None:
        """Drop what belongs to rounds that nobody reads any more."""
        self._announced = {key: value for key, value in self._announced.items() if key[1] >= before}
        self.pending.forget(before=before)

    async def announce(self) -> None:
        """What is new, and what is about to expire."""
        for kind in (GROUPS, PROPOSALS):
            if self.reachable:
                packed = self.pending.pack(kind)
                if packed is not None:
                    self._replace(packed)
            elif self._clock() >= self._deposited.get(kind, 0.0) + DEPOSIT_SECONDS:
                packed = self.pending.pack(kind, most=MAX_DEPOSIT)
                if packed is not None:
                    await self._deposit(packed)
        for announcement in list(self._announced.values()):
            now = self._clock()
            if announcement.expiry < now + LIFETIME / 2 and now >= announcement.not_before:
                await self._store(announcement)

    def _replace(self, packed: Packed) -> None:
        """The newest announcement of a kind and round stays where the first one was put."""
        header = encode_header(packed.header(self._server.keep(packed.body), self._clock()))
        key = (packed.kind, packed.round)
        before = self._announced.get(key)
        if before is not None:
            self._announced[key] = Announcement(before.place, header, confirm=before.confirm)
            return
        shards = self._shards()
        shard = shard_of(packed.round, self._transport.me, shards)
        self._announced[key] = Announcement(Place(self._swarm, packed.kind, packed.round, shards, shard), header)

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
            announcement.failures = 0
        else:
            announcement.failures += 1
            pause = backoff(announcement.failures, FIRST_PAUSE, LONGEST_PAUSE)
            announcement.not_before = self._clock() + pause

    async def _deposit(self, packed: Packed) -> None:
        self._deposited[packed.kind] = self._clock()
        digest = self._server.keep(packed.body)
        try:
            kept = await self._transport.deposit(digest, packed.body, self._clock() + LIFETIME)
        except UNANSWERED:
            kept = False
        self.counts["deposits" if kept else "deposits_in_vain"] += 1
        self._replace(packed)
