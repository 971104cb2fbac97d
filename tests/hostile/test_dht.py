"""A hostile peer on the real network: raw stores that go round her own validator, lies about bodies, a free node id.

Does not show: floods, and a majority of hostile nodes."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from builders.swarm import SWARM, WITH_HIVEMIND, Nodes, address_of, daemons, eventually, group, scored

from codezero.swarm.identity import Identity
from codezero.swarm.records import PeerRecordValidator, RecordPlace
from codezero.swarm.trust import PeerTrust
from codezero.swarm.wire import Header, body_digest, encode_body, encode_header

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("left_sockets"),
    *WITH_HIVEMIND,
]
ROUND = 30
pack = msgspec.msgpack.encode


@dataclass
class Mallory:
    """A peer whose DHT node believes and signs nothing by itself."""

    node: Any
    identity: Identity
    alice: Any

    async def store(self, key: bytes, subkey: bytes, value: bytes, expiry: float, in_cache: bool = False) -> bool:
        """One raw rpc_store at alice's node: did she keep it?"""
        from hivemind.proto import dht_pb2

        request = dht_pb2.StoreRequest(
            keys=[key], subkeys=[subkey], values=[value], expiration_time=[expiry], in_cache=[in_cache],
            peer=self.node.protocol.node_info,
        )  # fmt: skip
        from hivemind.p2p import P2PHandlerError

        try:
            answer = await self.node.protocol.get_stub(self.alice).rpc_store(request, timeout=60)
        except P2PHandlerError:
            return False
        return list(answer.store_ok) == [True]

    async def announce(self, header: bytes) -> bool:
        """A record that breaks no rule of the DHT, whatever the header says."""
        from hivemind.dht.validation import DHTRecord
        from hivemind.utils import get_dht_time

        place, expiry = RecordPlace(SWARM, "h", ROUND), get_dht_time() + 100
        signer = PeerRecordValidator(self.identity, SWARM)
        signer.declare(place)
        subkey = pack(self.identity.peer_id)
        value = signer.sign_value(DHTRecord(place.id, subkey, pack(header), expiry))
        return await self.store(place.id, subkey, value, expiry)


@asynccontextmanager
async def mallory(nodes: Nodes, name: str) -> Any:
    from hivemind.dht.node import DHTNode
    from hivemind.p2p import PeerID

    from codezero.swarm.hivemind_dht import bound_id, split_address

    async with daemons(nodes.folder, name) as (daemon,):
        node = await DHTNode.create(p2p=daemon, node_id=bound_id(daemon.peer_id), strict=False)
        peer, way = split_address(nodes.join)
        await daemon._client.connect(peer, [way])
        assert await node.protocol.call_ping(peer) is not None
        try:
            yield Mallory(node, Identity.load(nodes.folder / f"{name}.pem"), PeerID.from_base58(nodes.alice.peer_id))
        finally:
            await node.shutdown()


def assert_heard(nodes: Nodes, question: str) -> None:
    """What bob publishes arrives at alice."""
    nodes.bob.publish([scored(group(nodes.bob.peer_id, question))], ROUND)
    eventually(lambda: any(each.problem.question == question for each in nodes.alice.gather(ROUND)))


def refused(nodes: Nodes, reason: str) -> int:
    nodes.alice.gather(ROUND)
    return int(nodes.alice.metrics().get(f"swarm/refused_{reason}") or 0)


@pytest.fixture(autouse=True)
def round_thirty(nodes: Nodes) -> Iterator[None]:
    nodes.alice.gather(ROUND)
    yield


def header_of(body: bytes, **change: Any) -> Header:
    made = Header(1, "h", ROUND, body_digest(body), len(body), "zlib", bytes(32), 1, [], None, 1.0)
    return msgspec.structs.replace(made, **change)


def test_forged_records_are_not_stored(nodes: Nodes) -> None:
    async def attack() -> list[bool]:
        from hivemind.dht.storage import DictionaryDHTValue
        from hivemind.utils import MSGPackSerializer, get_dht_time

        key, soon = RecordPlace(SWARM, "h", ROUND).id, get_dht_time() + 100
        forged = DictionaryDHTValue()
        forged.store("evil", pack(b"lie"), soon)
        async with mallory(nodes, "mallory") as she:
            own = pack(she.identity.peer_id)
            attempts = [
                (key, pack(nodes.bob.peer_id), pack(b"FORGED"), soon),
                (key, pack(None), pack(b"plain value"), soon),
                (key, pack("sybil1"), pack(b"junk"), soon + 1e9),
                (key, own, b"\xc1\xff", soon),
                (key, own, pack(b"z" * 10_000), soon),
                (key, b"", MSGPackSerializer.dumps(forged), soon),
            ]
            return [await she.store(*attempt, cache) for attempt in attempts for cache in (False, True)]

    before = int(nodes.alice.metrics()["swarm/refused"] or 0)
    assert asyncio.run(attack()) == [False] * 12
    eventually(lambda: int(nodes.alice.metrics()["swarm/refused"] or 0) >= before + 12)
    assert_heard(nodes, "after the attack")


def test_a_body_that_is_not_what_was_announced_is_refused(nodes: Nodes) -> None:
    async def attack(name: str, served: bytes, header: Header, reason: str) -> None:
        from codezero.swarm.calls import BodyServer
        from codezero.swarm.hivemind_dht import GossipServicer

        async with mallory(nodes, name) as she:
            server = BodyServer(PeerTrust(lambda _: True))
            server.bodies[header.digest] = served

            async def answer(_: object, peer: str, request: bytes) -> bytes:
                return server.answer(peer, request)

            servicer = GossipServicer(answer)
            await servicer.add_p2p_handlers(she.node.p2p, namespace=SWARM)
            before = refused(nodes, reason)
            assert await she.announce(encode_header(header))
            for _ in range(600):
                if refused(nodes, reason) > before:
                    return
                await asyncio.sleep(0.1)
        raise AssertionError(f"not refused for its {reason}: {nodes.alice.metrics()}")

    names = ("liar", "talker", "thief", "noise")  # one each: whoever is caught is not asked again
    peer = Identity.load_or_create(nodes.folder / f"{names[0]}.pem").peer_id
    body = encode_body([group(peer, "honest")], peer=peer, round_number=ROUND)
    other = encode_body([group(nodes.bob.peer_id, "stolen")], peer=nodes.bob.peer_id, round_number=ROUND)
    received = nodes.alice.metrics()["swarm/groups_received"]
    asyncio.run(attack(names[0], body[:-1] + bytes([body[-1] ^ 1]), header_of(body), "digest"))
    asyncio.run(attack(names[1], b"longer" + body, header_of(b"long"), "size"))
    asyncio.run(attack(names[2], other, header_of(other), "header"))
    asyncio.run(attack(names[3], b"no zlib", header_of(b"no zlib"), "inflate"))
    assert nodes.alice.metrics()["swarm/groups_received"] == received


def test_a_header_that_is_none_is_counted_once_and_hurts_nobody(nodes: Nodes) -> None:
    async def attack() -> None:
        async with mallory(nodes, "mallory") as she:
            assert await she.announce(b"\xc1 not a header")

    before = refused(nodes, "schema")
    asyncio.run(attack())
    eventually(lambda: refused(nodes, "schema") == before + 1)
    assert_heard(nodes, "beside a bad header")
    assert refused(nodes, "schema") == before + 1


@pytest.mark.parametrize("bound", [False, True])
def test_only_a_node_id_that_follows_from_the_peer_makes_a_neighbour(tmp_path: Path, bound: bool) -> None:
    async def meet() -> bool:
        from hivemind.dht.node import DHTNode

        from codezero.swarm.hivemind_dht import bound_id, create_node, split_address

        async with daemons(tmp_path, "honest", "squatter") as (own, other):
            honest = await create_node(own, PeerRecordValidator(Identity.load(tmp_path / "honest.pem"), SWARM))
            chosen = bound_id(other.peer_id) if bound else None
            squatter = await DHTNode.create(p2p=other, node_id=chosen, strict=False)
            peer, way = split_address(await address_of(own))
            await other._client.connect(peer, [way])
            assert await squatter.protocol.call_ping(own.peer_id) == honest.node_id
            await asyncio.sleep(0.2)
            return honest.protocol.routing_table.get(peer_id=other.peer_id) is not None

    assert asyncio.run(meet()) is bound


def test_a_bad_entry_costs_only_itself(tmp_path: Path) -> None:
    async def read() -> tuple[bool, list[str]]:
        from hivemind.dht.node import DHTNode
        from hivemind.dht.storage import DictionaryDHTValue
        from hivemind.dht.validation import DHTRecord
        from hivemind.utils import get_dht_time

        from codezero.swarm.hivemind_dht import create_node

        identity = Identity.load_or_create(tmp_path / "swarm.pem")
        validator, place = PeerRecordValidator(identity, SWARM), RecordPlace(SWARM, "h", ROUND)
        validator.declare(place)
        expiry, name = get_dht_time() + 100, pack(identity.peer_id)
        good = validator.sign_value(DHTRecord(place.id, name, pack(b"header"), expiry))
        answer = DictionaryDHTValue()
        answer.store("evil", b"\xc1", expiry)
        answer.store(identity.peer_id, good, expiry)
        async with daemons(tmp_path, "swarm") as (daemon,):
            node: DHTNode = await create_node(daemon, validator)
            believed = node.protocol._validate_dictionary(place.id, answer)
            return believed, [subkey for subkey, _ in answer.items()]

    believed, left = asyncio.run(read())
    assert believed and left == [Identity.load(tmp_path / "swarm.pem").peer_id]


def test_an_answer_to_a_call_given_up_at_that_moment_deafens_nobody(tmp_path: Path) -> None:
    """hivemind sets the result of a future that is cancelled, and its only reader ends."""

    async def read() -> None:
        from hivemind.proto import p2pd_pb2

        call, given_up, reader = uuid.uuid4(), asyncio.Future[Any](), asyncio.StreamReader()
        given_up.cancel()
        answer = p2pd_pb2.PersistentConnectionResponse(
            callId=call.bytes, callUnaryResponse=p2pd_pb2.CallUnaryResponse(response=b"late")
        )
        reader.feed_data(bytes([answer.ByteSize()]) + answer.SerializeToString())
        reader.feed_eof()
        async with daemons(tmp_path, "swarm") as (daemon,):
            daemon._client.control._pending_calls[call] = given_up
            await daemon._client.control._read_from_persistent_conn(reader)

    asyncio.run(read())


def test_calls_that_their_caller_gives_up_are_not_kept(tmp_path: Path) -> None:
    """hivemind keeps such a call's task, and with it what was sent."""

    async def give_up() -> tuple[int, int]:
        from google.protobuf.wrappers_pb2 import BytesValue

        from codezero.swarm.hivemind_dht import split_address

        asked, sent = 0, BytesValue(value=bytes(100_000))

        async def slow(_request: BytesValue, _context: object) -> BytesValue:
            nonlocal asked
            asked += 1
            await asyncio.sleep(60)
            return BytesValue()

        async with daemons(tmp_path, "honest", "hostile") as (honest, hostile):
            await honest.add_protobuf_handler("slow", slow, BytesValue)
            peer, way = split_address(await address_of(honest))
            await hostile._client.connect(peer, [way])
            for _ in range(20):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(hostile.call_protobuf_handler(peer, "slow", sent, BytesValue), 0.05)
            await asyncio.sleep(1)
            return asked, len(honest._client.control._handler_tasks)

    asked, kept = asyncio.run(give_up())
    assert asked >= 15 and not kept


def test_what_a_flood_left_is_given_back_when_it_ends() -> None:
    """hivemind forgets records that have ended only when others are stored."""
    from hivemind.dht.routing import DHTID
    from hivemind.utils import get_dht_time

    from codezero.swarm.hivemind_dht import Storage, give_back

    storage, soon = Storage(), get_dht_time() + 0.5
    for number in range(128):
        assert storage.store_subkey(DHTID(number), "peer", bytes(64 << 10), soon)
    assert storage.store_subkey(DHTID(999), "peer", b"lives", soon + 600)
    resident = psutil.Process().memory_info().rss
    time.sleep(max(0.0, soon - get_dht_time()) + 0.01)
    give_back(storage)
    assert set(storage.data) == {DHTID(999)} and set(storage.key_to_heap) == {DHTID(999)}
    assert psutil.Process().memory_info().rss < resident


def test_invented_peers_leave_their_places_to_each_other_and_to_nobody_known() -> None:
    from hivemind.dht.routing import DHTID
    from hivemind.utils import get_dht_time

    from codezero.swarm.hivemind_dht import STORED_KEYS, Storage
    from codezero.swarm.records import MAX_CROWD

    storage, soon = Storage(lambda peer: peer.startswith("known")), get_dht_time() + 600
    for number in range(16):
        assert storage.store_subkey(DHTID(1), f"known {number}", b"", soon)
    for number in range(4 * MAX_CROWD):
        assert storage.store_subkey(DHTID(1), f"sybil {number}", b"", soon)
        assert f"sybil {number}" in storage.data[DHTID(1)].value.data
    place = storage.data[DHTID(1)].value.data
    assert len(place) == MAX_CROWD and {f"known {number}" for number in range(16)} < set(place)
    for number in range(4 * STORED_KEYS):
        storage.store_subkey(DHTID(100 + number), "sybil", b"", soon)
    assert len(storage.data) == STORED_KEYS and DHTID(1) in storage.data


def test_libp2p_s_own_relay_which_carries_anything_for_anybody_is_off(nodes: Nodes) -> None:
    async def reserve() -> None:
        async with mallory(nodes, "relayed") as she:
            _, _, writer = await she.node.p2p._client.stream_open(she.alice, ["/libp2p/circuit/relay/0.2.0/hop"])
            writer.close()

    from hivemind.p2p.p2p_daemon_bindings.utils import ControlFailure

    with pytest.raises(ControlFailure, match="protocols not supported"):
        asyncio.run(reserve())
