"""The gossip itself, in memory: what is announced is heard once, by the rules, and from nobody we keep away from.

Shows nothing of a real network; `test_gossip.py` and `test_hostile.py` do."""

import asyncio
import hashlib
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from builders.swarm import SWARM, TOKENIZER, Clock, fast_identity, group, make_swarm, problem, scored
from hypothesis import given
from hypothesis import strategies as st
from simulation.transport import Board, MemoryTransport, signed
from unit.swarm.test_records import record, refusal, validator

from codezero.errors import SwarmError, UnreachableError
from codezero.swarm import calls, wire
from codezero.swarm.calls import (
    CHUNK,
    EACH_ASKER,
    MAX_HEADERS,
    OWN_NETWORK,
    READ_AT_ONCE,
    ChunkRequest,
    DirectReader,
    RelayRequest,
    encode_headers,
    network_of,
)
from codezero.swarm.exchange import Exchange
from codezero.swarm.hivemind_swarm import WAITING_POSTS
from codezero.swarm.records import LIFETIME, PeerRecordValidator, RecordPlace, place_of, shard_of
from codezero.swarm.supervisor import Message, PeerFeedback, Publish, ReceivedBody
from codezero.swarm.trust import Offence, PeerTrust
from codezero.swarm.wire import GROUPS, MARKET, MAX_MARKET, Header, WireRefusal, body_digest, encode_body, encode_market
from codezero.types import Post

ROUND = 7


@dataclass
class Peer:
    """One node with its gossip, on a board."""

    board: Board
    clock: Clock
    seed: int = 0
    heard: list[ReceivedBody] = field(default_factory=list[ReceivedBody])
    told: list[PeerFeedback] = field(default_factory=list[PeerFeedback])

    def __post_init__(self) -> None:
        identity = fast_identity()
        self.id = identity.peer_id
        self.validator = PeerRecordValidator(identity, SWARM, clock=self.clock)
        self.transport = MemoryTransport(self.board, self.id, self.validator)
        self.trust = PeerTrust(lambda _: True, self.clock)
        self.exchange = Exchange(
            self.transport,
            self.validator,
            self.trust,
            pull_groups=32,
            on_body=self.heard.append,
            on_feedback=self.told.append,
            random=Random(self.seed),
        )
        asyncio.run(self.exchange.start())
        self.exchange.open_round(ROUND)

    def publish(self, question: str = "Double it.", count: int = 1) -> None:
        groups = [group(self.id, f"{question} {n}" if n else question) for n in range(count)]
        body = encode_body(groups, peer=self.id, round_number=ROUND)
        self.exchange.publish(Publish(GROUPS, ROUND, body, [0.5] * count, bytes.fromhex(TOKENIZER)))

    def announce(self, question: str = "Double it.", count: int = 1) -> dict[str, int]:
        self.publish(question, count)
        return self.look()

    def tell(self, other: "Peer", *rewards: float) -> None:
        data = wire.encode_feedback([scored(group(self.id), *rewards)], round_number=ROUND)
        self.exchange.feedback.add(PeerFeedback(other.id, data))

    def look(self, times: int = 1) -> dict[str, int]:
        for _ in range(times):
            self.exchange.open_round(ROUND)
            asyncio.run(self.exchange.poll())
        return self.exchange.take_counts()

    def heard_from(self, other: "Peer") -> int:
        return sum(one.peer == other.id for one in self.heard)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def peers(clock: Clock, count: int = 2) -> Sequence[Peer]:
    board = Board(clock)
    return [Peer(board, clock, seed) for seed in range(count)]


def test_what_is_announced_is_heard_once(clock: Clock) -> None:
    alice, bob = peers(clock)
    alice.announce()
    bob.look(5)
    assert bob.heard_from(alice) == 1 and not alice.heard
    assert bob.heard[0].body and bob.heard[0].tokenizer.hex() == TOKENIZER


def test_a_newer_body_replaces_the_older_one(clock: Clock) -> None:
    alice, bob = peers(clock)
    for question in ("one", "two"):
        alice.publish(question)
        clock.now += 1
        alice.look()
        bob.look()
    assert bob.heard_from(alice) == 2
    assert sum(len(place) for place in alice.board.records.values()) == 1


def test_who_has_read_one_round_more_before_the_chain_went_is_heard_and_hears(clock: Clock) -> None:
    alice, bob = peers(clock)
    alice.announce()
    for _ in range(4):
        bob.exchange.open_round(ROUND - 1)
        asyncio.run(bob.exchange.poll())
    assert bob.heard_from(alice) == 1
    body = encode_body([group(bob.id)], peer=bob.id, round_number=ROUND - 1)
    bob.exchange.publish(Publish(GROUPS, ROUND - 1, body, [0.5], bytes.fromhex(TOKENIZER)))
    asyncio.run(bob.exchange.poll())
    alice.look()
    assert alice.heard_from(bob) == 1


def test_a_record_is_announced_again_before_it_expires(clock: Clock) -> None:
    alice, bob = peers(clock)
    alice.announce()
    clock.now += LIFETIME * 0.6
    assert alice.look()["announcements"] == 1
    clock.now += LIFETIME * 0.6
    bob.look()
    assert bob.heard_from(alice) == 1


def test_alone_a_node_tries_again_ever_more_rarely(clock: Clock) -> None:
    (alice,) = peers(clock, 1)
    alice.publish()
    tries = 0
    for _ in range(120):
        tries += alice.look().get("announcements_in_vain", 0)
        clock.now += 1
    assert 5 <= tries <= 9
    bob = Peer(alice.board, clock, 1)
    clock.now += 60
    alice.look()
    bob.look()
    assert bob.heard_from(alice) == 1


def test_of_a_large_body_only_what_is_wanted_is_told(clock: Clock) -> None:
    alice, bob = peers(clock)
    bob.exchange.listener._pull_groups = 3
    alice.announce(count=10)
    bob.look()
    assert len(bob.heard) == 1
    assert len(wire.decode_body(bob.heard[0].body)[2]) == 3


def test_who_is_in_quarantine_is_neither_asked_nor_served(clock: Clock) -> None:
    alice, bob = peers(clock)
    alice.announce()
    for _ in range(3):
        bob.trust.blame(alice.id, Offence.FORGED)
        alice.trust.blame(bob.id, Offence.FORGED)
    bob.look(3)
    assert not bob.heard
    assert alice.exchange.server.answer(bob.id, b"") == b""
    assert alice.look()["refused_peer"] == 1


def test_a_peer_that_went_away_is_tried_three_times_and_forgiven(clock: Clock) -> None:
    alice, bob = peers(clock)
    alice.announce()
    del alice.board.answers[alice.id]
    assert bob.look(6)["pulls_in_vain"] == 3
    assert not bob.trust.refusal(alice.id)


def test_who_starts_again_pulls_nothing_that_it_has_read_and_blames_nobody(clock: Clock, tmp_path: Path) -> None:
    alice, bob = peers(clock)
    alice.announce()
    bob.look()
    assert alice.exchange.take_counts()["bytes_out"]
    for _ in range(12):
        bob.trust.save(tmp_path / "trust.json")
        bob = Peer(alice.board, clock)
        bob.trust.load(tmp_path / "trust.json")
        bob.look(2)
        clock.now += 1
    assert "bytes_out" not in alice.exchange.take_counts()
    assert not bob.heard and not any(line.failures for line in bob.trust.report())
    alice.announce("another")
    bob.look()
    assert bob.heard_from(alice) == 1


def homes(clock: Clock) -> Sequence[Peer]:
    """Two behind routers, and one that both are connected with."""
    alice, bob, hub = peers(clock, 3)
    alice.board.hidden, alice.board.hubs = {alice.id, bob.id}, {hub.id}
    return alice, bob, hub


def test_who_cannot_be_reached_is_heard_through_a_member_that_both_reach(clock: Clock) -> None:
    alice, bob, hub = homes(clock)
    alice.announce()
    bob.look()
    assert bob.heard_from(alice) == 1 and bob.exchange.listener.ways[alice.id] == hub.id
    assert hub.look()["bytes_relayed"] > 0 and not bob.trust.report()[0].failures


async def nobody() -> dict[str, str]:
    return {}


@pytest.mark.parametrize("reason", ["not willing", "a stranger", "an author it refuses", "not connected"])
def test_a_relay_may_refuse_and_the_author_is_not_to_blame(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(calls, "LOOK_SECONDS", 0.0)
    alice, bob, hub = homes(clock)
    if reason == "not willing":
        hub.exchange.relay._willing = False
    elif reason == "not connected":
        hub.transport.connected = nobody
    else:
        refused = bob if reason == "a stranger" else alice
        hub.trust._member = lambda peer: peer != refused.id  # pyright: ignore[reportPrivateUsage]
    alice.announce()
    bob.look(3)
    assert not bob.heard and "bytes_relayed" not in hub.look()
    (line,) = [line for line in bob.trust.report() if line.peer == alice.id]
    assert {*line.failures} == {Offence.TIMEOUT}


@pytest.mark.parametrize("lie", [b"", b"another body", b"x" * (3 << 20)])
def test_a_relay_that_lies_is_blamed_and_the_next_one_asked(clock: Clock, lie: bytes) -> None:
    alice, bob, hub, liar = *homes(clock), Peer(Board(clock), clock)

    async def answer(*_: object) -> bytes:
        return lie

    alice.board.answers[liar.id] = answer
    alice.board.hubs.add(liar.id)
    alice.announce()
    bob.exchange.listener.ways[alice.id] = liar.id  # it told the truth before
    bob.look()
    assert bob.heard_from(alice) == 1 and bob.exchange.listener.ways[alice.id] == hub.id
    assert any(line.failures for line in bob.trust.report() if line.peer == liar.id) is bool(lie)
    assert not any(line.failures for line in bob.trust.report() if line.peer == alice.id)


def at(hub: Peer, addresses: dict[str, str]) -> None:
    """Where the connections of the hub lead to."""

    async def connected() -> dict[str, str]:
        return addresses

    hub.transport.connected = connected


def relayed(hub: Peer, asker: str, author: str, digest: bytes, size: int, offset: int = 0) -> Any:
    return hub.exchange._answer("relay", asker, msgspec.msgpack.encode(RelayRequest(author, digest, size, offset)))


def test_a_hundred_ids_behind_one_address_use_up_neither_the_relay_nor_an_author(clock: Clock) -> None:
    alice, bob, hub = homes(clock)
    crowd = [fast_identity().peer_id for _ in range(100)]
    behind_one = {peer: f"/ip4/45.50.1.1/tcp/{port}" for port, peer in enumerate(crowd, 1)}
    at(hub, behind_one | {alice.id: "/ip4/45.50.2.1/tcp/1", bob.id: "/ip4/45.50.3.1/tcp/1"})
    alice.announce()

    async def flood() -> list[bytes]:
        return await asyncio.gather(*(relayed(hub, peer, alice.id, bytes(32), 1 << 20) for peer in crowd * 12))

    assert not any(asyncio.run(flood())) and hub.exchange.take_counts()["refused_relay"] > 1000
    bob.look()
    assert bob.heard_from(alice) == 1 and bob.exchange.listener.ways[alice.id] == hub.id
    assert alice.look()["bytes_out"] == len(*alice.exchange.server.bodies.values())


def test_what_the_relay_has_read_an_announcement_of_is_relayed_also_when_a_newer_one_replaced_it(clock: Clock) -> None:
    alice, bob, hub = homes(clock)
    for question in ("one", "two"):
        alice.announce(question)
        hub.look()
        clock.now += 1
    old, _ = alice.exchange.server.bodies.items()
    digest, body = old
    assert asyncio.run(relayed(hub, bob.id, alice.id, digest, len(body))) == body


def announced(hub: Peer, author: Peer, body: bytes) -> bytes:
    """The digest of a body that an author serves, and of which the hub has read the announcement."""
    digest = body_digest(body)
    author.exchange.server.bodies[digest] = body
    hub.exchange.relay.announced[author.id, digest] = len(body)
    return digest


NETWORKS = ("45.50.3.1", "45.50.4.1", "45.50.5.1", "45.50.6.1", "45.50.7.1")


def test_who_asks_for_the_last_byte_pays_for_all_that_is_pulled(clock: Clock) -> None:
    alice, bob, hub, carol, dan = *homes(clock), *peers(clock)
    carol.transport, dan.transport = alice.transport, bob.transport
    hub.transport._board.answers[carol.id] = carol.exchange._answer
    at(hub, {peer.id: f"/ip4/{ip}/tcp/1" for peer, ip in zip((alice, bob, carol, dan), NETWORKS, strict=False)})
    bodies = [
        (author, announced(hub, author, os.urandom(wire.MAX_BODY))) for author in (alice, carol, alice, carol, alice)
    ]
    asked = [(bob, *body) for body in bodies] + [(dan, *bodies[-1])]
    last = [
        asyncio.run(relayed(hub, peer.id, author.id, it, wire.MAX_BODY, wire.MAX_BODY - 1))
        for peer, author, it in asked
    ]
    assert [len(byte) for byte in last] == [1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize("claimed", [1, CHUNK - 1, CHUNK, wire.MAX_BODY])
def test_a_relay_sends_what_was_paid_for_whatever_size_the_asker_claims(clock: Clock, claimed: int) -> None:
    alice, bob, hub = homes(clock)
    digest = announced(hub, alice, os.urandom(CHUNK))
    assert len(asyncio.run(relayed(hub, bob.id, alice.id, digest, CHUNK))) == CHUNK
    sent = sum(len(asyncio.run(relayed(hub, bob.id, alice.id, digest, claimed))) for _ in range(20))
    assert sent <= EACH_ASKER.bytes_burst


@pytest.mark.parametrize("more", [-1, 1, CHUNK])
def test_an_author_that_signs_another_size_is_blamed_itself_and_no_relay(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(calls, "LOOK_SECONDS", 0.0)
    alice, bob, hub = homes(clock)
    for number in range(3):
        alice.announce(f"{number}")
        digest, body = list(alice.exchange.server.bodies.items())[-1]
        assert asyncio.run(relayed(hub, fast_identity().peer_id, alice.id, digest, len(body))) == body
        (lie,) = alice.exchange.announcer._announced.values()
        lie.header = msgspec.msgpack.encode(msgspec.msgpack.decode(lie.header) | {"size": len(body) + more})
        clock.now += 1
        lie.expiry = 0.0
        alice.look()
        bob.look()
    (line,) = bob.trust.report()
    assert (line.peer, line.failures) == (alice.id, {Offence.MALFORMED: 3}) and bob.trust.refusal(alice.id)
    assert not bob.heard


def test_an_author_that_sends_a_relay_more_than_it_announced_is_blamed(clock: Clock) -> None:
    alice, bob, hub = homes(clock)
    digest = announced(hub, alice, bytes(100))
    hub.exchange.relay.announced[alice.id, digest] = 99
    assert not asyncio.run(relayed(hub, bob.id, alice.id, digest, 99)) and not hub.exchange.relay._bodies
    assert [line.peer for line in hub.trust.report() if line.failures] == [alice.id]


def test_small_bodies_at_a_relay_are_bounded_in_number_and_time(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "RELAYED_BODIES", 8)
    board = Board(clock)
    alice, bob, hub, *crowd = [Peer(board, clock, seed) for seed in range(6)]
    at(hub, {peer.id: "/ip4/45.50.1.1/tcp/1" for peer in crowd} | {alice.id: "/ip4/45.50.2.1/tcp/1"})
    large = announced(hub, alice, os.urandom(wire.MAX_BODY))
    asyncio.run(relayed(hub, bob.id, alice.id, large, wire.MAX_BODY))
    for number in range(30):
        author = crowd[number % len(crowd)]
        assert asyncio.run(relayed(hub, bob.id, author.id, announced(hub, author, b"%d" % number), 2))
    assert len(hub.exchange.relay._bodies) == 8 and (alice.id, large) in hub.exchange.relay._bodies
    monkeypatch.setattr(calls, "RELAYED_SECONDS", 0.0)
    asyncio.run(relayed(hub, bob.id, alice.id, bytes(32), 1))
    assert not hub.exchange.relay._bodies


@pytest.mark.parametrize("vain", ["unknown", "announced and not served"])
def test_networks_that_ask_for_bodies_nobody_has_leave_a_relay_to_others(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, vain: str
) -> None:
    monkeypatch.setattr(calls, "LOOK_SECONDS", 0.0)
    alice, bob, hub, mallory = *homes(clock), Peer(Board(clock), clock)
    strangers = {fast_identity().peer_id: f"/ip4/{ip}/tcp/{port}" for ip in NETWORKS for port in range(1, 4)}
    at(hub, strangers | {alice.id: "/ip4/45.50.1.1/tcp/1", bob.id: "/ip4/45.50.2.1/tcp/1", mallory.id: ""})
    digests = [bytes([number]) * 32 for number in range(100)]
    if vain != "unknown":
        hub.exchange.relay.announced |= {(mallory.id, digest): wire.MAX_BODY for digest in digests}

    async def silent(*_: object) -> bytes:
        raise UnreachableError("mallory")

    alice.board.answers[mallory.id] = silent

    async def flood() -> list[bytes]:
        asks = [(peer, digest) for digest in digests for peer in strangers]
        return await asyncio.gather(*(relayed(hub, peer, mallory.id, digest, wire.MAX_BODY) for peer, digest in asks))

    assert not any(asyncio.run(flood()))
    digest = announced(hub, alice, os.urandom(CHUNK))
    for _ in range(7):
        assert asyncio.run(relayed(hub, bob.id, alice.id, digest, CHUNK))


def test_a_hundred_ids_behind_one_address_pull_of_own_bodies_what_their_network_may(clock: Clock) -> None:
    alice, bob, carol = peers(clock, 3)
    crowd = [fast_identity().peer_id for _ in range(100)]
    at(alice, dict.fromkeys((*crowd, bob.id), "/ip4/45.50.1.1/tcp/1") | {carol.id: "/ip4/45.50.2.1/tcp/1"})
    body = os.urandom(CHUNK)
    alice.exchange.server.bodies[body_digest(body)] = body
    request = msgspec.msgpack.encode(ChunkRequest(body_digest(body), 0))

    async def pull(*by: str) -> int:
        return sum([len(await alice.exchange._answer("chunk", peer, request)) for peer in by])

    assert asyncio.run(pull(*crowd, *crowd)) <= OWN_NETWORK.bytes_burst
    assert not asyncio.run(pull(bob.id)) and asyncio.run(pull(carol.id))
    alice.trust.praise(bob.id)  # strangers beside it do not keep a known peer from what it may pull
    assert asyncio.run(pull(bob.id)) == CHUNK


def test_who_announces_another_s_body_and_serves_nothing_keeps_nobody_from_it(clock: Clock) -> None:
    alice, bob, hub, mallory = *homes(clock), Peer(Board(clock), clock)
    alice.announce()
    (body,) = alice.exchange.server.bodies.values()
    at(hub, {peer.id: "" for peer in (alice, bob, mallory)})
    hers = alice.exchange.announcer.headers()

    async def answer(call: str, *_: object) -> bytes:
        return hers if call == "headers" else await asyncio.sleep(60, b"")

    alice.board.answers[mallory.id] = answer

    async def both() -> bytes:
        waiting = asyncio.create_task(relayed(hub, bob.id, mallory.id, body_digest(body), len(body)))
        await asyncio.sleep(0.1)
        wanted = await relayed(hub, bob.id, alice.id, body_digest(body), len(body))
        assert not waiting.done()
        waiting.cancel()
        return wanted

    assert asyncio.run(both()) == body


def test_a_crowd_behind_one_address_drives_out_its_own_bodies_alone(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(clock)
    alice, bob, hub, *crowd = [Peer(board, clock, seed) for seed in range(13)]
    at(hub, {peer.id: "/ip4/45.50.1.1/tcp/1" for peer in crowd} | {alice.id: "/ip4/45.50.2.1/tcp/1"})
    bodies: dict[str, bytes] = {}
    for peer in (alice, *crowd):
        peer.announce()
        (bodies[peer.id],) = list(peer.exchange.server.bodies.values())[-1:]
    alice.exchange.take_counts()
    monkeypatch.setattr(calls, "RELAYED_BYTES", 3 * max(map(len, bodies.values())))
    for peer in (alice, *crowd, alice):
        body = bodies[peer.id]
        assert asyncio.run(relayed(hub, bob.id, peer.id, body_digest(body), len(body))) == body
    assert alice.exchange.take_counts()["bytes_out"] == len(bodies[alice.id])


def test_near_ids_behind_one_address_are_not_all_the_relays_that_are_asked(clock: Clock) -> None:
    alice, bob, hub = homes(clock)
    crowd = [fast_identity().peer_id for _ in range(12)]
    bob.transport.relays = lambda _: [*crowd, hub.id]
    at(bob, dict.fromkeys(crowd, "/ip4/45.50.1.1/tcp/1") | {hub.id: "/ip4/45.50.2.1/tcp/1"})
    alice.announce()
    bob.look()
    assert bob.heard_from(alice) == 1 and bob.exchange.listener.ways[alice.id] == hub.id


@pytest.mark.parametrize("request_", [b"", b"\xc1", msgspec.msgpack.encode(["Qm", bytes(32), 1, 0])])
def test_a_request_to_relay_that_is_none_is_counted(clock: Clock, request_: bytes) -> None:
    _, bob, hub = homes(clock)
    assert asyncio.run(hub.exchange._answer("relay", bob.id, request_)) == b""
    assert hub.look()["refused_request"] == 1


def test_problems_nobody_else_brings_come_first(clock: Clock) -> None:
    *many, bob = peers(clock, 24)
    for peer in many[:-1]:
        peer.publish("the same question")
    many[-1].publish("a question of its own")
    for peer in many:
        peer.look()
    bob.look()
    assert bob.heard_from(many[-1]) == 1 and len(bob.heard) == 16


def test_feedback_comes_to_the_proposer_alone(clock: Clock) -> None:
    alice, bob = peers(clock)
    bob.tell(alice, 1.0, 0.0)
    assert bob.look()["feedback_out"] == 1
    assert alice.look()["feedback_in"] == 1
    assert [one.peer for one in alice.told] == [bob.id] and not bob.told
    bob.look()
    assert len(alice.told) == 1


def test_the_newest_word_replaces_one_that_was_not_sent(clock: Clock) -> None:
    alice, bob = peers(clock)
    bob.tell(alice, 0.0, 0.0)
    bob.tell(alice, 1.0, 1.0)
    bob.look()
    assert [wire.decode_feedback(one.feedback).outcomes[0].success for one in alice.told] == [1.0]


def test_feedback_that_is_none_costs_its_sender(clock: Clock) -> None:
    alice, bob = peers(clock)
    for garbage in (b"", b"\xc1\xff\x00", bytes(5000), b"\x81\xa1v\x01"):
        assert asyncio.run(bob.transport.ask(alice.id, "feedback", garbage)) == b""
    assert not alice.told
    assert "quarantined" in alice.trust.refusal(bob.id)


def test_a_flood_of_feedback_ends_at_the_allowance(clock: Clock) -> None:
    alice, bob = peers(clock)
    data = wire.encode_feedback([scored(group(bob.id), 1.0)], round_number=ROUND)
    for _ in range(1000):
        asyncio.run(bob.transport.ask(alice.id, "feedback", data))
    assert 0 < len(alice.told) < 500


@pytest.mark.parametrize("kind", ["w", "v"])
def test_kinds_of_earlier_versions_are_ignored_and_cost_their_sender_nothing(clock: Clock, kind: Any) -> None:
    """Problems taken back, and versions of a policy."""
    alice, bob = peers(clock)
    body = b"as those versions wrote it"
    digest = hashlib.sha256(body).digest()
    alice.exchange.server.bodies[digest] = body
    header = msgspec.msgpack.encode({
        **{"v": 1, "kind": kind, "round": ROUND, "digest": digest, "size": len(body), "codec": "zlib"},
        **{"tokenizer": bytes(32), "count": 1, "problems": [], "reward": None, "time": clock.now},
    })  # fmt: skip
    place = RecordPlace(SWARM, kind, ROUND)
    record = signed(place, alice.id, header, clock.now + 100, alice.validator)
    assert not bob.validator.validate(record) and dict(bob.validator.refused) == {"key": 1}
    alice.board.records[place.id] = {record.subkey: record}  # some holder of an earlier version has it
    alice.announce()
    bob.look(16)
    assert [(one.kind, one.peer) for one in bob.heard] == [(GROUPS, alice.id)]
    assert not any(one.failures for one in bob.trust.report()) and not bob.trust.refusal(alice.id)


ME = fast_identity()
PLACE = RecordPlace(SWARM, "h", 7)


class Scene:
    def __init__(self, addresses: dict[str, str], answer: bytes = b"") -> None:
        self.asked: list[str] = []
        self.refused: list[str] = []

        async def ask(peer: str) -> bytes:
            self.asked.append(peer)
            return answer

        board = Board(answers={peer: lambda *_, peer=peer: ask(peer) for peer in addresses}, addresses=addresses)
        transport = MemoryTransport(board, ME.peer_id, PeerRecordValidator(ME, SWARM))

        def refuse(peer: str, _: WireRefusal) -> None:
            self.refused.append(peer)

        self.reader = DirectReader(transport, PeerTrust(lambda _: True), Random(1), refuse)

    def read(self) -> list[Any]:
        self.asked.clear()
        return asyncio.run(self.reader.read())


def test_whoever_has_a_network_of_its_own_is_asked_before_a_crowd_behind_another() -> None:
    crowd = {f"sybil {n}": f"/ip4/5.6.7.{n % 256}/tcp/{n + 1}" for n in range(400)}
    scene = Scene(crowd | {"newcomer": "/ip4/9.9.9.9/tcp/1", "other": "/ip6/2001:db8::1/tcp/1"})
    for _ in range(3):
        scene.read()
        assert len(scene.asked) == READ_AT_ONCE and {"newcomer", "other"} < set(scene.asked)


def test_everybody_s_turn_comes() -> None:
    peers = {f"peer {n}": f"/ip4/10.0.{n // 2}.1/tcp/1" for n in range(20)}
    scene, asked = Scene(peers), set[str]()
    for _ in range(2 * 20 // READ_AT_ONCE):
        scene.read()
        asked |= set(scene.asked)
    assert asked == set(peers)


def test_the_newest_headers_come_back_by_their_places() -> None:
    announced = {RecordPlace(SWARM, "h", number): bytes([number]) for number in range(MAX_HEADERS + 1)}
    found = Scene({"peer": ""}, encode_headers(announced)).read()
    assert {(place.round, header) for place, peer, header in found if peer == "peer"} == {
        (number, bytes([number])) for number in range(1, MAX_HEADERS + 1)
    }


@pytest.mark.parametrize(
    "answer",
    [
        b"\xc1",
        msgspec.msgpack.encode({PLACE.key: bytes(513)}),
        msgspec.msgpack.encode({"cz1/test/x": b"header"}),
        msgspec.msgpack.encode({RecordPlace(SWARM, "h", number).key: b"" for number in range(MAX_HEADERS + 1)}),
    ],
)
def test_headers_that_are_none_cost_their_sender_trust(answer: bytes) -> None:
    scene = Scene({"peer": ""}, answer)
    assert scene.read() == [] and scene.refused == ["peer"]


@pytest.mark.parametrize("kind", ["v", "w", "z"])
def test_headers_of_a_kind_that_another_version_announces_are_left_out_and_no_fault(kind: Any) -> None:
    announced = {RecordPlace(SWARM, kind, 8, 1024, 9): b"versions", PLACE: b"groups"}
    scene = Scene({"peer": ""}, encode_headers(announced))
    assert scene.read() == [(PLACE, "peer", b"groups")] and not scene.refused


@pytest.mark.parametrize(("address", "network"), [
    ("/ip4/5.6.7.8/tcp/1", "5.6.7.0/24"), ("/ip6/2001:db8:1:2::3/tcp/1", "2001:db8:1::/48"),
    ("/ip6/::ffff:5.6.7.8/tcp/1", "5.6.7.0/24"), ("/ip6/::ffff:506:708/tcp/1", "5.6.7.0/24"),
    ("/ip6/64:ff9b::5.6.7.8/tcp/1", "5.6.7.0/24"), ("/ip6/64:ff9b::506:708/tcp/1", "5.6.7.0/24"),
    ("/ip6/64:ff9b::1:506:708/tcp/1", "64:ff9b::/48"), ("/ip6/::1/tcp/1", "::/48"),
    ("/ip4/5.6.7.8/tcp/1/p2p/Qm/p2p-circuit", ""), ("/dns4/example.org/tcp/1", ""), ("/ip4/5.6.7.800/tcp/1", ""),
    ("", ""),
])  # fmt: skip
def test_a_network_is_what_one_owner_often_has(address: str, network: str) -> None:
    assert network_of(address) == network


PEER = "12D3KooWA4Xop1JaT3MHxwYMkCepYsv4iPVopMXwCz5iHYdBfeSB"


def reason(call: Callable[[], object]) -> str:
    try:
        call()
    except WireRefusal as refusal:
        return refusal.reason
    return ""


def raw(**change: Any) -> bytes:
    """A body as a peer with an encoder of its own makes it."""
    fields = {"v": 1, "kind": "m", "peer": PEER, "round": ROUND, "payload": b"x"}
    return zlib.compress(msgspec.msgpack.encode(fields | change))


def post(peer: Peer, payload: bytes, round_number: int = ROUND) -> None:
    body = encode_market([payload], peer=peer.id, round_number=round_number)
    peer.exchange.publish(Publish(MARKET, round_number, body, [], bytes(32)))


def payloads(peer: Peer) -> list[tuple[str, bytes]]:
    return [(body.peer, wire.decode_market(body.body)[2][0]) for body in peer.heard if body.kind == MARKET]


def reads(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> list[RecordPlace]:
    """Grows with each place that this peer reads."""
    read: list[RecordPlace] = []
    headers = peer.transport.headers

    async def noting(places: Sequence[RecordPlace], *, thorough: bool) -> Any:
        read.extend(places)
        return await headers(places, thorough=thorough)

    monkeypatch.setattr(peer.transport, "headers", noting)
    return read


@given(st.binary(min_size=1, max_size=1 << 12), st.integers(0, 2**53 - 1))
def test_a_message_survives_the_wire_and_its_header_stays_small(payload: bytes, number: int) -> None:
    body = encode_market([payload], peer=PEER, round_number=number)
    assert wire.decode_market(body) == (PEER, number, (payload,))
    header = Header(1, MARKET, number, wire.body_digest(body), len(body), "zlib", bytes(32), 1, [], None, 1.0)
    assert len(wire.encode_header(header)) <= wire.MAX_HEADER


@pytest.mark.parametrize(
    "change",
    [{"payload": b""}, {"payload": bytes(MAX_MARKET + 1)}, {"payload": "text"}, {"peer": "x"}, {"round": -1},
     {"kind": "v"}, {"more": 1}],
)  # fmt: skip
def test_a_body_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    assert wire.decode_market(raw()) == (PEER, ROUND, (b"x",))
    assert reason(lambda: wire.decode_market(raw(**change))) == "schema"


def test_the_shard_stays_from_round_to_round_and_is_not_a_matter_of_choice() -> None:
    identity = fast_identity(7)
    own = place_of(identity.peer_id, SWARM, MARKET, 12, 4).shard
    assert own == shard_of(0, identity.peer_id, 4)
    for round_number in (11, 12, 13, 14):
        assert place_of(identity.peer_id, SWARM, MARKET, round_number, 4).shard == own
        assert validator().validate(record(identity, place=RecordPlace(SWARM, "m", round_number, 4, own)))
        for other in {0, 1, 2, 3} - {own}:
            assert refusal(record(identity, place=RecordPlace(SWARM, "m", round_number, 4, other))) == "shard"


def test_who_never_posted_neither_reads_nor_pulls_posts(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = peers(Clock())
    read = reads(bob, monkeypatch)
    post(alice, b"an offer")
    alice.announce()
    bob.look(16)
    assert read and not any(place.kind == MARKET for place in read)
    assert [body.kind for body in bob.heard] == [GROUPS]
    assert not any(line.failures for line in bob.trust.report())


def test_the_last_round_is_read_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = peers(Clock())
    post(alice, b"last words")
    alice.look()
    post(bob, b"here", ROUND + 1)
    read = reads(bob, monkeypatch)
    bob.exchange.open_round(ROUND + 1)
    for _ in range(8):
        asyncio.run(bob.exchange.poll())
    assert payloads(bob) == [(alice.id, b"last words")]
    rounds = [place.round for place in read if place.kind == MARKET]
    assert rounds.count(ROUND + 1) == 8 and 2 <= rounds.count(ROUND) <= 3


def test_posts_alone_are_read_when_there_is_no_room_for_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = peers(Clock())
    read = reads(bob, monkeypatch)
    bob.exchange.listener._pull_groups = 0
    post(bob, b"here")
    post(alice, b"an offer")
    alice.announce()
    bob.look(8)
    assert [body.kind for body in bob.heard] == [MARKET] and {place.kind for place in read} == {MARKET}


def test_posts_leave_room_for_groups_and_groups_for_posts() -> None:
    *many, bob = peers(Clock(), 25)
    for peer in many:
        post(peer, b"an offer")
        peer.publish(f"of {peer.id}")
        asyncio.run(peer.exchange.announcer.announce())
    post(bob, b"here")
    bob.look()
    assert sorted(body.kind for body in bob.heard) == [GROUPS] * 8 + [MARKET] * 8


def lie(liar: Peer, body: bytes, **change: Any) -> None:
    """Announce and serve this body as the message of `liar`."""
    digest = wire.body_digest(body)
    liar.exchange.server.bodies[digest] = body
    header = Header(1, MARKET, ROUND, digest, len(body), "zlib", bytes(32), 1, [], None, liar.clock.now)
    place = place_of(liar.id, SWARM, MARKET, ROUND, 1)
    payload = wire.encode_header(msgspec.structs.replace(header, **change))
    stored = signed(place, liar.id, payload, liar.clock.now + 100, liar.validator)
    liar.board.records.setdefault(place.id, {})[stored.subkey] = stored


@pytest.mark.parametrize(
    ("forge", "counted"),
    [
        ("no zlib", "inflate"), ("too large", "schema"), ("empty", "schema"), ("another kind", "schema"),
        ("another author", "header"), ("another round", "header"), ("two of them", "header"), ("a bomb", "inflate"),
        ("another place", "header"),
    ],
)  # fmt: skip
def test_a_hostile_body_costs_its_sender_and_arrives_nowhere(forge: str, counted: str) -> None:
    honest, liar, bob = peers(Clock(), 3)
    post(honest, b"an offer")
    honest.look()
    post(bob, b"here")
    body = {
        "no zlib": b"no zlib",
        "too large": raw(peer=liar.id, payload=bytes(MAX_MARKET + 1)),
        "empty": raw(peer=liar.id, payload=b""),
        "another kind": wire.encode_proposals([problem()], peer=liar.id, round_number=ROUND),
        "another author": raw(peer=honest.id),
        "another round": raw(peer=liar.id, round=ROUND - 1),
        "a bomb": zlib.compress(bytes(16 << 20)),
    }.get(forge, raw(peer=liar.id))
    change = {"two of them": {"count": 2}, "another place": {"round": ROUND - 1}}.get(forge, {})
    lie(liar, body, **change)
    assert bob.look(5)[f"refused_{counted}"] >= 1
    assert payloads(bob) == [(honest.id, b"an offer")]
    (blamed,) = (line for line in bob.trust.report() if line.failures)
    assert blamed.peer == liar.id and (Offence.FORGED in blamed.failures) == (counted == "header")


def test_problems_in_a_header_of_the_market_push_no_groups_back() -> None:
    (bob,) = peers(Clock(), 1)
    alone = Header(1, GROUPS, ROUND, bytes(32), 1, "zlib", bytes(32), 1, [bytes(16)], None, 1.0)
    common = msgspec.structs.replace(alone, problems=[b"x" * 16])
    liars = [(f"liar {at}", msgspec.structs.replace(alone, kind=MARKET)) for at in range(20)]
    for _ in range(20):
        order = bob.exchange.listener._ordered([("a", alone), ("b", common), ("c", common), *liars])
        assert [header.kind for _, header in order] == [MARKET] * 8 + [GROUPS] * 3 and order[-1][0] in {"b", "c"}


def test_the_handle_sorts_what_arrives_and_keeps_each_author_s_newest(tmp_path: Path) -> None:
    swarm = make_swarm(tmp_path, "dave")
    author = fast_identity(3).peer_id

    def arrive(payload: bytes, peer: str = author, round_number: int = 5) -> None:
        body = encode_market([payload], peer=peer, round_number=round_number)
        swarm.network.bodies.append(ReceivedBody(MARKET, peer, round_number, body, bytes.fromhex(TOKENIZER)))

    arrive(b"first")
    arrive(b"of the round before", round_number=4)
    arrive(b"second")
    assert swarm.gather(5) == [] and swarm.proposals(5) == []  # and lose no post
    assert swarm.posts() == [Post(author, 4, b"of the round before"), Post(author, 5, b"second")]
    assert swarm.posts() == []
    for round_number in range(WAITING_POSTS + 9):
        arrive(b"x", fast_identity(4).peer_id, round_number)
        swarm.proposals(5)
    assert len(swarm.posts()) == WAITING_POSTS


def test_a_post_is_announced_for_its_round_and_opens_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    swarm = make_swarm(tmp_path, "dave")
    sent: list[Message] = []
    monkeypatch.setattr(swarm.network, "send", sent.append)
    swarm.post(b"an offer", 9)
    (message,) = sent
    assert isinstance(message, Publish) and (message.kind, message.round, message.rewards) == (MARKET, 9, [])
    assert wire.decode_market(message.body) == (swarm.peer_id, 9, (b"an offer",))
    for payload in (b"", bytes(MAX_MARKET + 1)):
        with pytest.raises(SwarmError):
            swarm.post(payload, 9)
    assert len(sent) == 1
