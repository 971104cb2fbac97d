"""The gossip itself, in memory: what is announced is heard once, by the rules, and from nobody we keep away from.

Shows nothing of a real network; `test_gossip.py` and `test_hostile.py` do.
"""

import asyncio
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from builders.swarm import SWARM, TOKENIZER, Clock, fast_identity, group, scored
from simulation.transport import Board, MemoryTransport, signed

from codezero.errors import UnreachableError
from codezero.swarm import calls, wire
from codezero.swarm.calls import CHUNK, EACH_ASKER, OWN_NETWORK, ChunkRequest, RelayRequest
from codezero.swarm.exchange import Exchange
from codezero.swarm.records import LIFETIME, PeerRecordValidator, RecordPlace
from codezero.swarm.supervisor import PeerFeedback, Publish, ReceivedBody
from codezero.swarm.trust import Offence, PeerTrust
from codezero.swarm.wire import GROUPS, body_digest, encode_body

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


def test_another_peers_body_is_refused_and_remembered_against_the_thief(clock: Clock) -> None:
    alice, thief, bob = peers(clock, 3)
    alice.publish()
    stolen = alice.exchange.announcer.pack(GROUPS)
    assert stolen is not None
    thief.exchange.server.bodies[stolen[0].digest] = stolen[1]
    place, header = RecordPlace(SWARM, GROUPS, ROUND), wire.encode_header(stolen[0])
    assert asyncio.run(thief.transport.announce(place, header, clock.now + 100, confirm=False))
    counts = bob.look()
    assert not bob.heard and counts["refused_header"] == 1
    assert next(one for one in bob.trust.report() if one.peer == thief.id).failures == {Offence.FORGED: 1}


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


def test_polls_that_meet_nobody_are_counted(clock: Clock) -> None:
    alice, bob = peers(clock)
    bob.publish()  # an own record is no company
    bob.look(12)
    assert bob.exchange.listener.alone > 10
    alice.announce()
    bob.look(4)
    assert bob.exchange.listener.alone == 0
