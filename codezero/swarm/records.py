"""Signed DHT records: owned by the key that signs them, bounded, bound to their place, expiring.

Without a validator any peer can overwrite any record, block a round ahead of time, or hang every reader with three
bytes. hivemind's DHT node calls this one; nothing of hivemind is imported."""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Annotated, cast

import msgspec
from msgspec import Meta

from codezero.errors import translated
from codezero.swarm.identity import MAX_PUBLIC_KEY, MAX_SIGNATURE, Identity, Members, peer_id_of, verify
from codezero.swarm.wire import GROUPS, MARKET, MAX_HEADER, MAX_ROUND, Kind, WireRefusal
from codezero.system.files import UNDECODABLE
from codezero.system.state import Newest

LIFETIME = 300.0  # Seconds a record of ours lives; it is announced again at half of it while its round is open
MAX_LIFETIME = 900.0
CLOCK_SKEW = 3.0  # Seconds by which honest clocks may differ
ROUNDS_BEHIND = 3
ROUNDS_AHEAD = 16  # A node in a long iteration still stores what faster peers announce
MAX_SHARDS = 1024
MAX_VALUE = 2048  # Bytes of a header, its RSA key and signature, and the key name, with room to spare
MAX_CROWD = 256  # Peers in one place: far above CROWD, far below the 4 MiB that a DHT key can hold
MAX_KEY = 160  # Characters of the name of a place
CROWD = 32  # Headers that one place should hold at most
SPARSE = 10  # Headers in a place below which half as many places are enough. Far below CROWD / 2, to avoid oscillation
MEMORY = 0.3  # Weight of the newest reading of a level
FADE = 0.98  # What is left of the other levels after each reading: an old reading counts for nothing
FAR = 0.25  # Share of the other reads that go to any number of shards; the rest go to half or twice the own one
PROBES = 4  # Numbers of shards that a node tries at once while it finds nobody
LEVELS = tuple(2**power for power in range(MAX_SHARDS.bit_length()))


@dataclass(frozen=True, slots=True)
class DHTRecord:
    """A record with the fields of hivemind's class of this name."""

    key: bytes
    subkey: bytes
    value: bytes
    expiration_time: float


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where announcements of one kind and round lie; peers are spread over the shards."""

    swarm: str
    kind: Kind
    round: int
    shards: int = 1
    shard: int = 0

    @property
    def key(self) -> str:
        return f"cz1/{self.swarm}/{self.kind}/{self.round}/{self.shards}/{self.shard}"

    @property
    def id(self) -> bytes:
        """[20] bytes: hivemind's hash of the key, sha1 of its MessagePack."""
        return hashlib.sha1(msgspec.msgpack.encode(self.key), usedforsecurity=False).digest()


class Envelope(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A record's value on the wire."""

    key: Annotated[str, Meta(max_length=MAX_KEY)]
    public_key: Annotated[bytes, Meta(max_length=MAX_PUBLIC_KEY)]
    signature: Annotated[bytes, Meta(max_length=MAX_SIGNATURE)]
    payload: Annotated[bytes, Meta(max_length=MAX_HEADER)]  # An encoded header


KEY = re.compile(r"cz1/([A-Za-z0-9_.-]{1,64})/([hpm])/(0|[1-9][0-9]{0,15})/([1-9][0-9]{0,3})/(0|[1-9][0-9]{0,3})")
OTHER_KIND = re.compile(r"cz1/[A-Za-z0-9_.-]{1,64}/(?![hpm])[a-z]/")  # A key of a kind that another version has


def parse_key(key: str) -> RecordPlace:
    """Raises WireRefusal for a key that no node of ours would write."""
    match = KEY.fullmatch(key)
    if match is None:
        raise WireRefusal("key", "not a key of this protocol")
    place = RecordPlace(match[1], cast(Kind, match[2]), int(match[3]), int(match[4]), int(match[5]))
    power_of_two = place.shards & (place.shards - 1) == 0
    if place.round > MAX_ROUND or place.shards > MAX_SHARDS or not power_of_two or place.shard >= place.shards:
        raise WireRefusal("key", "numbers out of bounds")
    return place


def shard_of(round_number: int, peer: str, shards: int, kind: Kind = GROUPS) -> int:
    """Return the shard that `peer` writes to in a round; the market's in every round, as games outlast one."""
    round_number = 0 if kind == MARKET else round_number
    return int.from_bytes(hashlib.sha256(f"{round_number}|{peer}".encode()).digest()[:4], "big") % shards


def place_of(peer: str, swarm: str, kind: Kind, round_number: int, shards: int) -> RecordPlace:
    """Return the place where `peer` announces."""
    return RecordPlace(swarm, kind, round_number, shards, shard_of(round_number, peer, shards, kind))


class ShardEstimate:
    """The present number of shards, a power of two, estimated from how full the places are that were read.

    A DHT key is sent whole, so a place must stay small in a swarm of any size. Nodes with different estimates still
    meet, as readers try other numbers too."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._seen: dict[int, float] = {}  # Number of shards -> headers in one place there, smoothed
        self.shards = 1

    @property
    def size(self) -> float:
        """Estimate how many peers announce."""
        return sum(shards * headers for shards, headers in self._seen.items())

    def note(self, shards: int, headers: float) -> None:
        """Note that one place among `shards` held so many headers, and decide anew."""
        before = self._seen.get(shards, float(headers))
        self._seen = {level: FADE * crowded for level, crowded in self._seen.items()}
        self._seen[shards] = before + MEMORY * (headers - before)
        while self.size > CROWD * self.shards and self.shards < MAX_SHARDS:
            self.shards *= 2
        while self.shards > 1 and self.size < SPARSE * self.shards:
            self.shards //= 2

    @property
    def alone(self) -> bool:
        """True while nobody is to be found at our number of shards."""
        return self._seen.get(self.shards, 0.0) < 1

    def elsewhere(self, *, lost: bool = False) -> list[int]:
        """Draw other numbers of shards to look at, as who judges differently announces there; several when lost."""
        if lost or self.alone:
            return self._random.sample(LEVELS, PROBES)
        near = [shards for shards in (self.shards // 2, self.shards * 2) if 1 <= shards <= MAX_SHARDS]
        return [self._random.choice(LEVELS if self._random.random() < FAR else near)]


def signed_message(swarm: str, key: str, record: DHTRecord, payload: bytes) -> bytes:
    """Join what a signature covers: all that decides a record's place, owner and lifetime."""
    digest, expiry = hashlib.sha256(payload).digest(), float(record.expiration_time)
    return b"cz1" + msgspec.msgpack.encode([swarm, key, record.key, record.subkey, expiry, digest])


class PeerRecordValidator:
    """Signs own records and decides which others are stored or believed. Used from one thread."""

    def __init__(
        self, identity: Identity, swarm: str, clock: Callable[[], float] = time.time, member: Members = lambda _: True
    ) -> None:
        self.round: int | None = None  # The round that is open; None: not known yet, so every round may be
        self.refused: Counter[str] = Counter()  # Refusals by reason
        self.swarm, self.clock, self.member, self._identity = swarm, clock, member, identity
        self._keys = Newest[bytes, str](64)
        self._verified = Newest[tuple[bytes, bytes, float, bytes], None](4096)

    def declare(self, place: RecordPlace) -> None:
        """Name a place before storing there: hivemind gives `sign_value` only the hash of a key."""
        self._keys[place.id] = place.key

    def sign_value(self, record: DHTRecord) -> bytes:
        """Put the record's value in an envelope with our key and signature. The place must have been declared."""
        key, payload = self._keys[record.key], msgspec.msgpack.decode(record.value, type=bytes)
        signature = self._identity.sign(signed_message(self.swarm, key, record, payload))
        envelope = Envelope(key, self._identity.public_key_bytes, signature, payload)
        return msgspec.msgpack.encode(msgspec.msgpack.encode(envelope))

    def strip_value(self, record: DHTRecord) -> bytes:
        """Return the value that was signed; hivemind calls this only after `validate` agreed."""
        return msgspec.msgpack.encode(_open(record.value).payload)

    def validate(self, record: DHTRecord) -> bool:
        """Decide whether this record may be stored or believed. Refusals are counted by reason."""
        try:
            self._check(record)
        except WireRefusal as refusal:
            self.refused[refusal.reason] += 1
            return False
        return True

    def _check(self, record: DHTRecord) -> None:
        """Check cheap rules first. Raises WireRefusal."""
        if len(record.value) > MAX_VALUE:
            raise WireRefusal("size")
        peer = _owner(record.subkey)
        envelope = _open(record.value)
        place = parse_key(envelope.key)
        if place.id != record.key or place.swarm != self.swarm:
            raise WireRefusal("key", "written for another place")
        self._check_now(peer, place.round, record.expiration_time)
        if place.shard != shard_of(place.round, peer, place.shards, place.kind):
            raise WireRefusal("shard")
        if peer_id_of(envelope.public_key) != peer:
            raise WireRefusal("owner", "signed by another peer's key")
        mark = (record.key, record.subkey, record.expiration_time, hashlib.sha256(record.value).digest())
        if mark not in self._verified:
            message = signed_message(self.swarm, envelope.key, record, envelope.payload)
            if not verify(envelope.public_key, envelope.signature, message):
                raise WireRefusal("signature")
        self._verified[mark] = None

    def _check_now(self, peer: str, round_number: int, expiry: float) -> None:
        """Check what depends on the clock, the open round and the members. Raises WireRefusal."""
        now = self.clock()
        if not now - CLOCK_SKEW < expiry <= now + MAX_LIFETIME + CLOCK_SKEW:  # NaN holds no bound
            raise WireRefusal("expiry")
        if self.round is not None and not self.round - ROUNDS_BEHIND <= round_number <= self.round + ROUNDS_AHEAD:
            raise WireRefusal("round")
        if not self.member(peer):
            raise WireRefusal("member")


def _owner(subkey: bytes) -> str:
    if subkey in (b"", b"\xc0") or len(subkey) > 80:  # how hivemind marks a whole dictionary and a plain value
        raise WireRefusal("subkey", "a record of nobody")
    with translated(WireRefusal, "subkey", *UNDECODABLE, reason=False):
        peer = msgspec.msgpack.decode(subkey, type=str)
    # A holder keeps the decoded name: signed over another spelling, the record would not verify for its readers.
    if msgspec.msgpack.encode(peer) != subkey:
        raise WireRefusal("subkey", "not the shortest spelling")
    return peer


def _open(value: bytes) -> Envelope:
    with translated(WireRefusal, "format", *UNDECODABLE, reason=False):
        return msgspec.msgpack.decode(msgspec.msgpack.decode(value, type=bytes), type=Envelope)
