"""The gossip's transport between nodes of one process: no network, the same records and rules."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from codezero.errors import UnreachableError
from codezero.swarm.records import DHTRecord, PeerRecordValidator, RecordPlace
from codezero.swarm.transport import Answer, Call, Records

pack = msgspec.msgpack.encode


@dataclass(slots=True)
class Board:
    """What all nodes of a process share: the records, and who answers."""

    clock: Callable[[], float] = time.time
    records: dict[bytes, dict[bytes, DHTRecord]] = field(default_factory=dict[bytes, dict[bytes, DHTRecord]])
    """By key and subkey."""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    """By peer id."""
    addresses: dict[str, str] = field(default_factory=dict[str, str])
    """Of the peers that all others are connected with."""
    hidden: set[str] = field(default_factory=set[str])
    """Who is behind a router and connected with the hubs alone."""
    hubs: set[str] = field(default_factory=set[str])

    def store(self, record: DHTRecord, validator: PeerRecordValidator) -> bool:
        """As a holder with this validator would: a later expiry replaces an earlier one."""
        place = self.records.setdefault(record.key, {})
        before = place.get(record.subkey)
        if not validator.validate(record) or (before and before.expiration_time >= record.expiration_time):
            return False
        place[record.subkey] = record
        return True

    def read(self, key: bytes, validator: PeerRecordValidator) -> dict[str, bytes]:
        """By peer what a reader with this validator believes of the living records of a place."""
        now = self.clock()
        place = self.records.get(key, {})
        for subkey in [subkey for subkey, record in place.items() if record.expiration_time <= now]:
            del place[subkey]
        return dict(opened(record, validator) for record in place.values() if validator.validate(record))


def signed(place: RecordPlace, peer: str, payload: bytes, expiry: float, by: PeerRecordValidator) -> DHTRecord:
    """The record that `by` would store."""
    by.declare(place)
    bare = DHTRecord(place.id, pack(peer), pack(payload), expiry)
    return DHTRecord(bare.key, bare.subkey, by.sign_value(bare), expiry)


def opened(record: DHTRecord, validator: PeerRecordValidator) -> tuple[str, bytes]:
    """Peer and payload of a validated record."""
    payload = msgspec.msgpack.decode(validator.strip_value(record), type=bytes)
    return msgspec.msgpack.decode(record.subkey, type=str), payload


class MemoryTransport:
    """Implements `transport.Transport` on a `Board`. Nothing is slow, nothing is lost."""

    def __init__(self, board: Board, me: str, validator: PeerRecordValidator) -> None:
        self._board, self._me, self._validator = board, me, validator

    @property
    def me(self) -> str:
        return self._me

    @property
    def neighbours(self) -> int:
        return len(self._board.answers.keys() - {self._me})

    async def serve(self, answer: Answer) -> None:
        self._board.answers[self._me] = answer

    async def announce(self, place: RecordPlace, header: bytes, expiry: float, *, confirm: bool) -> bool:
        stored = self._board.store(signed(place, self._me, header, expiry, self._validator), self._validator)
        return stored and (not confirm or self.neighbours > 0)

    async def headers(self, places: Sequence[RecordPlace], *, thorough: bool) -> Mapping[RecordPlace, Records]:
        return {place: self._board.read(place.id, self._validator) for place in places}

    async def ask(self, peer: str, call: Call, request: bytes) -> bytes:
        if peer not in self._board.answers:
            raise UnreachableError(f"{peer} is not here")
        if peer in self._board.hidden - {self._me} and self._me not in self._board.hubs:
            raise UnreachableError(f"{peer} is behind a router")
        return await self._board.answers[peer](call, self._me, request)

    async def connected(self) -> Mapping[str, str]:
        hidden = self._board.hidden if self._me in self._board.hubs else set[str]()
        return {peer: address for peer, address in self._board.addresses.items() if peer != self._me} | dict.fromkeys(
            hidden, ""
        )

    def relays(self, peer: str) -> Sequence[str]:
        return sorted(self._board.hubs - {peer, self._me})
