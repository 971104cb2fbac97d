"""Announce own bodies, look for peers' announcements, pull what is new.

Runs inside the network process. A stranger's header or body that breaks a rule costs nothing but a count.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false

import asyncio
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import BytesValue
from hivemind.dht.node import DHTNode
from hivemind.p2p import PeerID

from codezero.swarm.dht import NETWORK_ERRORS, within
from codezero.swarm.link import Heard, Publish
from codezero.swarm.pending import Pending
from codezero.swarm.records import LIFETIME, PeerRecordValidator, Place, shard_of
from codezero.swarm.schema import GROUPS, MAX_BODY, PROPOSALS, Header, Kind, Refusal
from codezero.swarm.serving import ChunkRequest, GossipServicer
from codezero.swarm.wire import (
    body_digest,
    decode_body,
    decode_header,
    decode_proposals,
    encode_body,
    encode_header,
    encode_proposals,
)

PULLS_AT_ONCE = 4
PULL_SECONDS = 5.0
STORE_SECONDS = 10.0
READ_SECONDS = 5.0
SEEN_DIGESTS = 8192
PULLS_PER_LOOK = 16
PULL_ATTEMPTS = 3
READ_ALL_EVERY = 4
"""Each this many looks all holders are asked and not the nearest one, which heals a holder that missed a record."""


@dataclass(slots=True)
class Announcement:
    """Our newest header of one kind and round."""

    header: bytes
    expiry: float
    """Seconds since 1970 at which the stored record ends; 0: not stored yet."""


class Exchange:
    """One node's part in the gossip. `look` is one turn."""

    def __init__(
        self,
        node: DHTNode,
        validator: PeerRecordValidator,
        *,
        swarm: str,
        pull_groups: int,
        on_heard: Callable[[Heard], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.servicer = GossipServicer()
        self._node, self._validator, self._swarm, self._on_heard = node, validator, swarm, on_heard
        self._me = node.peer_id.to_base58()
        self._pull_groups = pull_groups
        self._pending = Pending(self._me)
        self._announced: dict[tuple[Kind, int], Announcement] = {}
        self._attempts: OrderedDict[tuple[str, bytes], int] = OrderedDict()
        """Pulls begun, by peer and digest; PULL_ATTEMPTS: done with it. Without the peer, one who announces another's
        body and serves nothing would keep us from it."""
        self._looks = 0
        self._pulls = asyncio.Semaphore(PULLS_AT_ONCE)

    async def start(self) -> None:
        """Begin to serve."""
        await within(STORE_SECONDS, self.servicer.add_p2p_handlers(self._node.p2p, namespace=self._swarm))

    def play(self, round_number: int) -> None:
        """The round that is open now; older ones but the last are forgotten."""
        self._validator.round = round_number
        self._announced = {key: value for key, value in self._announced.items() if key[1] >= round_number - 1}
        self._pending.forget(before=round_number - 1)

    def publish(self, message: Publish) -> None:
        """Queue own groups or problems for the next look."""
        self._pending.add(message)

    async def look(self) -> None:
        """Announce what is new or about to expire, then hear what peers announced."""
        await self._announce()
        if self._validator.round is not None:
            await self._hear(await self._read(self._validator.round))
        self._looks += 1

    async def _announce(self) -> None:
        for kind in (GROUPS, PROPOSALS):
            packed = self._pending.pack(kind)
            if packed is not None:
                digest = self.servicer.keep(packed.body)
                header = encode_header(packed.header(digest, time.time()))
                self._announced[kind, packed.round] = Announcement(header, expiry=0.0)
        for (kind, round_number), announcement in self._announced.items():
            if announcement.expiry < time.time() + LIFETIME / 2:
                await self._store(kind, round_number, announcement)

    async def _store(self, kind: Kind, round_number: int, announcement: Announcement) -> None:
        place = Place(self._swarm, kind, round_number, 1, shard_of(round_number, self._me, 1))
        expiry = time.time() + LIFETIME
        self._validator.declare(place)
        try:
            stored = await within(
                STORE_SECONDS, self._node.store(place.key, announcement.header, expiry, subkey=self._me)
            )
        except NETWORK_ERRORS:
            stored = False
        self.counts["announcements" if stored else "announcements_in_vain"] += 1
        if stored:
            announcement.expiry = expiry

    async def _read(self, round_number: int) -> list[tuple[str, Header]]:
        """New headers of this round and the last, in random order."""
        rounds = [number for number in (round_number, round_number - 1) if number >= 0]
        places = {Place(self._swarm, kind, number).key: (kind, number) for kind in "hp" for number in rounds}
        enough = float("inf") if self._looks % READ_ALL_EVERY == 0 else None
        try:
            found = await within(
                READ_SECONDS,
                self._node.get_many(list(places), sufficient_expiration_time=enough, num_workers=4 if enough else 1),
            )
        except NETWORK_ERRORS:
            self.counts["reads_in_vain"] += 1
            return []
        news: list[tuple[str, Header]] = []
        for key, records in found.items():
            for peer, record in records.value.items() if records and isinstance(records.value, dict) else ():
                header = self._header(peer, record.value, places[key])
                if header is not None:
                    news.append((peer, header))
        random.shuffle(news)
        return news

    def _header(self, peer: str, payload: bytes, place: tuple[Kind, int]) -> Header | None:
        """The header in a peer's record when it announces a body not dealt with yet."""
        if peer == self._me:
            return None
        digest = body_digest(payload)
        try:
            header = decode_header(payload)
            if (header.kind, header.round) != place:
                raise Refusal("header", "not about the place it lies in")
        except Refusal as refusal:
            if (peer, digest) not in self._attempts:  # a bad header is read at every look and counted once
                self._begin(peer, digest)
                self._refuse(refusal.reason)
            return None
        return header if self._attempts.get((peer, header.digest), 0) < PULL_ATTEMPTS else None

    async def _hear(self, news: Sequence[tuple[str, Header]]) -> None:
        """Pull the bodies, up to a look's budget of groups. Problems are few and cost no budget."""
        budget = self._pull_groups
        async with asyncio.TaskGroup() as tasks:
            for peer, header in news[:PULLS_PER_LOOK]:
                if header.kind == GROUPS:
                    if budget <= 0:
                        continue
                    wanted = min(budget, header.count)
                    budget -= wanted
                else:
                    wanted = header.count
                tasks.create_task(self._pull(peer, header, wanted))

    async def _pull(self, peer: str, header: Header, wanted: int) -> None:
        """One body from the peer that announced it, checked against the header, told to the trainer."""
        self._begin(peer, header.digest)
        try:
            async with self._pulls:
                body = await within(PULL_SECONDS, self._fetch(peer, header))
            heard = self._checked(peer, header, body, wanted)
        except Refusal as refusal:
            self._refuse(refusal.reason)
        except NETWORK_ERRORS:
            self.counts["pulls_in_vain"] += 1
            return
        else:
            self._on_heard(heard)
        self._attempts[peer, header.digest] = PULL_ATTEMPTS

    async def _fetch(self, peer: str, header: Header) -> bytes:
        stub = GossipServicer.get_stub(self._node.p2p, PeerID.from_base58(peer), namespace=self._swarm)
        body = bytearray()
        while len(body) < header.size:
            request = msgspec.msgpack.encode(ChunkRequest(header.digest, len(body)))
            try:
                piece = (await stub.rpc_chunk(BytesValue(value=request), timeout=PULL_SECONDS)).value
            except DecodeError as error:
                raise Refusal("format", "an answer that is none") from error
            self.counts["bytes_in"] += len(piece)
            if not piece or len(body) + len(piece) > min(header.size, MAX_BODY):
                raise Refusal("size", "shorter or longer than announced")
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

    def _refuse(self, reason: str) -> None:
        self.counts[f"refused_{reason}"] += 1

    def take_counts(self) -> dict[str, int]:
        """Everything counted since the last call, the validator's refusals included."""
        taken = Counter(self.counts) + self.servicer.counts
        taken.update({f"refused_{reason}": count for reason, count in self._validator.refused.items()})
        for counter in (self.counts, self.servicer.counts, self._validator.refused):
            counter.clear()
        return dict(taken)
