"""The market's messages through the gossip: who posts reads its own shard, and a lie arrives nowhere.

The network is in memory; `test_hivemind_swarm.py` has the same over loopback.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.swarm import SWARM, TOKENIZER, Clock, fast_identity, make_swarm, problem
from hypothesis import given
from hypothesis import strategies as st
from simulation.hub import HubSwarm, LocalHub
from simulation.transport import signed
from unit.swarm.test_exchange import ROUND, Peer, peers
from unit.swarm.test_records import record, refusal, validator

from codezero.errors import SwarmError
from codezero.swarm import wire
from codezero.swarm.base import Swarm
from codezero.swarm.hivemind_swarm import WAITING_POSTS
from codezero.swarm.records import RecordPlace, place_of, shard_of
from codezero.swarm.supervisor import Message, Publish, ReceivedBody
from codezero.swarm.wire import GROUPS, MARKET, MAX_MARKET, Header, WireRefusal, encode_market
from codezero.types import Post

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


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_refused_or_read(data: bytes, squeezed: bool) -> None:
    reason(lambda: wire.decode_market(zlib.compress(data) if squeezed else data))


@pytest.mark.parametrize(
    "change",
    [{"payload": b""}, {"payload": bytes(MAX_MARKET + 1)}, {"payload": "text"}, {"peer": "x"}, {"round": -1},
     {"kind": "v"}, {"more": 1}],
)  # fmt: skip
def test_a_body_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    assert wire.decode_market(raw()) == (PEER, ROUND, (b"x",))
    assert reason(lambda: wire.decode_market(raw(**change))) == "schema"


def test_the_bound_is_the_sender_s_too() -> None:
    assert wire.decode_market(encode_market([bytes(MAX_MARKET)], peer=PEER, round_number=1))
    for payload in (b"", bytes(MAX_MARKET + 1)):
        assert reason(lambda payload=payload: encode_market([payload], peer=PEER, round_number=1)) == "schema"


def test_the_shard_stays_from_round_to_round_and_is_not_a_matter_of_choice() -> None:
    identity = fast_identity(7)
    own = place_of(identity.peer_id, SWARM, MARKET, 12, 4).shard
    assert own == shard_of(0, identity.peer_id, 4)
    for round_number in (11, 12, 13, 14):
        assert place_of(identity.peer_id, SWARM, MARKET, round_number, 4).shard == own
        assert validator().validate(record(identity, place=RecordPlace(SWARM, "m", round_number, 4, own)))
        for other in {0, 1, 2, 3} - {own}:
            assert refusal(record(identity, place=RecordPlace(SWARM, "m", round_number, 4, other))) == "shard"


def test_posts_travel_both_ways_once() -> None:
    alice, bob = peers(Clock())
    for peer in (alice, bob):
        post(peer, peer.id.encode())
        peer.look()
    for peer in (alice, bob):
        peer.look(5)
    assert payloads(alice) == [(bob.id, bob.id.encode())] and payloads(bob) == [(alice.id, alice.id.encode())]


def test_a_later_message_of_a_round_replaces_the_earlier() -> None:
    clock = Clock()
    alice, bob = peers(clock)
    post(bob, b"here")
    post(alice, b"never sent")
    for text in (b"first", b"second"):
        post(alice, text)
        alice.look()
        bob.look()
        clock.now += 1
    assert payloads(bob) == [(alice.id, b"first"), (alice.id, b"second")]
    place = place_of(alice.id, SWARM, MARKET, ROUND, 1)
    assert len(alice.board.records[place.id]) == 2  # alice's newest and bob's


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
    assert [line.peer for line in bob.trust.report() if line.failures] == [liar.id]


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


def test_a_broken_network_is_named(tmp_path: Path) -> None:
    swarm = make_swarm(tmp_path, "dave")
    for call in (swarm.posts, lambda: swarm.post(b"x", 1)):
        swarm.network._failure = "it broke"
        with pytest.raises(SwarmError, match="it broke"):
            call()


def test_alone_nobody_posts_and_around_a_hub_everybody_does() -> None:
    alone = Swarm("alone")
    alone.post(b"x", 1)
    assert alone.posts() == []
    hub = LocalHub()
    a, b = (HubSwarm(fast_identity(seed).peer_id, hub) for seed in (1, 2))
    for text in (b"first", b"second"):
        a.post(text, 1)
    assert a.posts() == [] and b.posts() == [Post(a.peer_id, 1, b"second")] and b.posts() == []
