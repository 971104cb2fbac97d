"""Whom a node asks for their headers themselves, and what it believes of the answers."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest
from builders.swarm import SWARM, fast_identity
from simulation.transport import Board, MemoryTransport

from codezero.swarm.calls import MAX_HEADERS, READ_AT_ONCE, DirectReader, encode_headers, network_of
from codezero.swarm.records import PeerRecordValidator, RecordPlace
from codezero.swarm.trust import PeerTrust
from codezero.swarm.wire import WireRefusal

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


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("/ip4/5.6.7.8/tcp/1", "5.6.7.0/24"),
        ("/ip6/2001:db8:1:2::3/tcp/1", "2001:db8:1::/48"),
        ("/ip6/::ffff:5.6.7.8/tcp/1", "5.6.7.0/24"),
        ("/ip6/::ffff:506:708/tcp/1", "5.6.7.0/24"),
        ("/ip6/64:ff9b::5.6.7.8/tcp/1", "5.6.7.0/24"),
        ("/ip6/64:ff9b::506:708/tcp/1", "5.6.7.0/24"),
        ("/ip6/64:ff9b::1:506:708/tcp/1", "64:ff9b::/48"),
        ("/ip6/::1/tcp/1", "::/48"),
        ("/ip4/5.6.7.8/tcp/1/p2p/Qm/p2p-circuit", ""),
        ("/dns4/example.org/tcp/1", ""),
        ("/ip4/5.6.7.800/tcp/1", ""),
        ("", ""),
    ],
)
def test_a_network_is_what_one_owner_often_has(address: str, network: str) -> None:
    assert network_of(address) == network
