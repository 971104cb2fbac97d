"""A hostile peer in a process of its own: takes one attack a line (JSON) from its input, answers with one line.

Its DHT nodes believe everything, sign nothing by themselves and lie when told to. `read` is the odd one out: an honest
node of ours, without records of its own, that asks the others."""

# pyright: basic
import asyncio
import functools
import itertools
import json
import os
import shutil
import sys
import time
import warnings
import zlib
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

import msgspec  # noqa: E402
from builders.swarm import SWARM, fast_identity, group  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: E402
from google.protobuf.wrappers_pb2 import BytesValue  # noqa: E402
from hivemind.dht.node import DHTNode  # noqa: E402
from hivemind.dht.protocol import DHTProtocol  # noqa: E402
from hivemind.dht.routing import DHTID  # noqa: E402
from hivemind.dht.storage import DictionaryDHTValue  # noqa: E402
from hivemind.p2p import P2P, PeerID  # noqa: E402
from hivemind.proto import dht_pb2  # noqa: E402
from simulation.transport import signed  # noqa: E402

from codezero.config import SwarmConfig  # noqa: E402
from codezero.errors import UnreachableError  # noqa: E402
from codezero.swarm.calls import ChunkRequest  # noqa: E402
from codezero.swarm.hivemind_dht import (  # noqa: E402
    NETWORK_ERRORS,
    GossipServicer,
    HivemindTransport,
    bound_id,
    create_node,
    split_address,
    start_daemon,
)
from codezero.swarm.identity import Identity  # noqa: E402
from codezero.swarm.records import DHTRecord, PeerRecordValidator, RecordPlace  # noqa: E402
from codezero.swarm.wire import Header, body_digest, encode_body, encode_header  # noqa: E402

pack = msgspec.msgpack.encode
HANDLER = f"{SWARM}::GossipServicer.rpc_chunk"
CALL_SECONDS = 15.0


class Peer:
    """A daemon, a DHT node without rules, and the key that both have."""

    def __init__(self, identity: Identity, p2p: P2P, node: DHTNode) -> None:
        self.identity, self.p2p, self.node = identity, p2p, node
        self.lie = ""  # How this holder answers who looks for a record; empty: truthfully

    async def store(self, victim: PeerID, *records: DHTRecord, in_cache: bool = False) -> list[bool]:
        """One raw rpc_store: what was kept? Nothing when the victim called the whole request an error."""
        request = dht_pb2.StoreRequest(
            keys=[record.key for record in records], subkeys=[record.subkey for record in records],
            values=[record.value for record in records], in_cache=[in_cache] * len(records),
            expiration_time=[record.expiration_time for record in records], peer=self.node.protocol.node_info,
        )  # fmt: skip
        try:
            answer = await self.node.protocol.get_stub(victim).rpc_store(request, timeout=CALL_SECONDS)
        except NETWORK_ERRORS:
            return [False] * len(records)
        return list(answer.store_ok)

    async def held_by(self, victim: PeerID, place: RecordPlace) -> DictionaryDHTValue:
        """The victim's records of a place, as they lie there."""
        request = dht_pb2.FindRequest(keys=[place.id], peer=self.node.protocol.node_info)
        answer = await self.node.protocol.get_stub(victim).rpc_find(request, timeout=CALL_SECONDS)
        return DHTProtocol.serializer.loads(answer.results[0].value)

    async def leave(self) -> None:
        await self.node.shutdown()
        await self.p2p.shutdown()


peers: dict[str, Peer] = {}
folder, round_number = Path(sys.argv[1]), int(sys.argv[2])
ways = [split_address(address) for address in sys.argv[3:]]
victims = [peer for peer, _ in ways]


async def meet(p2p: P2P, node: DHTNode) -> None:
    for peer, way in ways:
        if peer != p2p.peer_id:
            await p2p._client.connect(peer, [way])
            assert await node.protocol.call_ping(peer) is not None


def grind(path: Path) -> None:
    """A key whose node is near the place of this round, found by trying many: ids are bound, but not dear."""
    key = DHTID(int.from_bytes(here().id, "big"))
    made = [ed25519.Ed25519PrivateKey.generate() for _ in range(500)]
    best = min(made, key=lambda one: key.xor_distance(bound_id(PeerID.from_base58(Identity(one).peer_id))))
    data = best.private_bytes_raw() + best.public_key().public_bytes_raw()
    path.write_bytes(b"\x08\x01\x12\x40" + data)
    path.chmod(0o400)


async def join(name: str, node_id: DHTID | None = None, *, holder: bool = False) -> Peer:
    """The hostile peer of this name; a holder becomes a neighbour of the victims if they let it."""
    if name not in peers:
        path = folder / f"{name}.pem"
        if holder and node_id is None and not path.exists():
            grind(path)
        identity = Identity.load_or_create(path)
        p2p = await start_daemon(SwarmConfig(identity=str(path)))
        chosen = node_id or bound_id(p2p.peer_id)
        node = await DHTNode.create(p2p=p2p, node_id=chosen, strict=False, client_mode=not holder)
        peers[name] = Peer(identity, p2p, node)
        await meet(p2p, node)
    return peers[name]


async def leave(names: Iterable[str]) -> None:
    for name in names:
        await peers.pop(name).leave()


def own(identity: Identity, place: RecordPlace, payload: bytes, lifetime: float = 890.0) -> DHTRecord:
    """A record that breaks no rule of form."""
    signer = PeerRecordValidator(identity, SWARM)
    return signed(place, identity.peer_id, payload, time.time() + lifetime, signer)


def here(rounds: int = 0) -> RecordPlace:
    return RecordPlace(SWARM, "h", round_number + rounds)


async def flood_records(count: int, lifetime: float = 890.0) -> list[int]:
    """Signed headers of invented peers, a few for each round that is open."""
    she, kept = await join("mallory"), [0, 0]
    for _ in range(count // 200):
        batch = [
            own(sybil, here(ahead), os.urandom(300), lifetime) for sybil in [fast_identity() for _ in range(10)]
            for ahead in range(-3, 17)
        ]  # fmt: skip
        for at, victim in enumerate(victims):
            kept[at] += sum(await she.store(victim, *batch))
    return kept


filling: list["asyncio.Task[None]"] = []


async def fill_place() -> list[int]:
    """Announcements of ever new invented peers in one place, from now on: what was kept of the first 512."""
    she, kept, full = await join("mallory"), [0, 0], asyncio.Event()

    async def fill() -> None:
        for number in itertools.count():
            header = Header(1, "h", round_number, os.urandom(32), 99, "zlib", bytes(32), 1, [], None, 1.0)
            batch = [own(fast_identity(), here(), encode_header(header)) for _ in range(16)]
            for at, victim in enumerate(victims):
                kept[at] += sum(await she.store(victim, *batch))
            if number == 31:
                full.set()

    filling.append(asyncio.create_task(fill()))
    await full.wait()
    return kept


async def stop_filling() -> list[int]:
    """How many records each victim has there."""
    task = filling.pop()
    task.cancel()
    await asyncio.wait([task])
    return [len((await peers["mallory"].held_by(victim, here())).data) for victim in victims]


async def flood_requests(count: int) -> int:
    """Unary calls as fast as they go; how many got an answer?"""
    she, answered = await join("flooder"), 0
    waiting = iter(range(count))
    request = BytesValue(value=pack(ChunkRequest(bytes(32), 0)))

    async def caller(victim: PeerID) -> None:
        nonlocal answered
        stub = GossipServicer.get_stub(she.p2p, victim, namespace=SWARM)
        for _ in waiting:
            await stub.rpc_chunk(request, timeout=CALL_SECONDS)
            answered += 1

    await asyncio.gather(*(caller(victim) for victim in victims for _ in range(32)))
    await leave(["flooder"])
    return answered


async def newcomer(seconds: float) -> list[bool]:
    """Does an honest node that joins now stay a neighbour of each victim?"""
    path = folder / "newcomer.pem"
    identity = Identity.load_or_create(path)
    p2p, she = await start_daemon(SwarmConfig(identity=str(path))), await join("mallory")
    try:
        node = await create_node(p2p, PeerRecordValidator(identity, SWARM))
        await meet(p2p, node)
        await asyncio.sleep(seconds)
        request = dht_pb2.FindRequest(keys=[node.node_id.to_bytes()], peer=she.node.protocol.node_info)
        answers = [await she.node.protocol.get_stub(victim).rpc_find(request, timeout=5) for victim in victims]
        return [p2p.peer_id.to_bytes() in answer.results[0].nearest_peer_ids for answer in answers]
    finally:
        await p2p.shutdown()


async def find_bomb(times: int) -> list[int]:
    """One question for the same large record many times over: bytes of the answers."""
    she = await join("mallory")
    record = own(she.identity, here(), os.urandom(512))
    request = dht_pb2.FindRequest(keys=[record.key] * times, peer=she.node.protocol.node_info)
    sizes: list[int] = []
    for victim in victims:
        await she.store(victim, record)
        try:
            answer = await she.node.protocol.get_stub(victim).rpc_find(request, timeout=CALL_SECONDS)
            sizes.append(answer.ByteSize())
        except NETWORK_ERRORS:
            sizes.append(0)
    return sizes


class Serving(GossipServicer):
    """Answers in her own way."""

    def __init__(self, way: str, body: bytes) -> None:
        self.way, self.body = way, body

    async def rpc_chunk(self, request: BytesValue, context: Any) -> BytesValue:
        if self.way == "sleep":
            await asyncio.sleep(60)
        elif self.way == "drip":
            await asyncio.sleep(0.1)
        _, offset = msgspec.msgpack.decode(request.value)
        return BytesValue(value=self.body[offset:][: 1 if self.way == "drip" else 1 << 20])


Serving.__name__ = GossipServicer.__name__  # part of the protocol's handler name


async def announce(name: str, way: str) -> None:
    """Announce one body and serve it badly."""
    she = await join(name)
    if way == "bomb":
        squeezer = zlib.compressobj(9)
        body = b"".join([*(squeezer.compress(bytes(1 << 20)) for _ in range(1024)), squeezer.flush()])
    else:
        body = encode_body([group(she.identity.peer_id, name)], peer=she.identity.peer_id, round_number=round_number)
    await Serving(way, body).add_p2p_handlers(she.p2p, namespace=SWARM)
    header = Header(1, "h", round_number, body_digest(body), len(body), "zlib", bytes(32), 1, [], None, 1.0)
    record = own(she.identity, here(), encode_header(header))
    assert all([await she.store(victim, record) == [True] for victim in victims])


async def wrong_rounds() -> dict[str, list[bool]]:
    she = await join("mallory")
    tried = {"stale": -4, "future": 17, "far": 10**9, "open": 16}
    return {
        name: [kept for victim in victims for kept in await she.store(victim, own(she.identity, here(ahead), b"late"))]
        for name, ahead in tried.items()
    }


async def replay(author: str) -> dict[str, list[bool]]:
    """Another's record, taken from a holder: in the next round, with a later end, under her name, as it was."""
    she, results = await join("mallory"), {}
    for victim in victims:
        value, expiry = (await she.held_by(victim, here())).data[author]
        attempts = {
            "next round": DHTRecord(here(1).id, pack(author), value, expiry),
            "later": DHTRecord(here().id, pack(author), value, expiry + 60),
            "my name": DHTRecord(here().id, pack(she.identity.peer_id), value, expiry),
            "plain": DHTRecord(here(1).id, pack(None), value, expiry + 60),
            "as it was": DHTRecord(here().id, pack(author), value, expiry),
        }
        for name, record in attempts.items():
            results[name] = results.get(name, []) + await she.store(victim, record)
    return results


async def push_to_cache() -> list[bool]:
    """Her own valid record, and it alone, with a later end than all others, where a holder looks first."""
    she = await join("mallory")
    record = own(she.identity, here(), b"alone")
    return [kept for victim in victims for kept in await she.store(victim, record, in_cache=True)]


async def clone(path: str, seconds: float) -> None:
    """A second process with another node's key, while the first lives, that serves nothing of what it announced."""
    shutil.copy(path, folder / "clone.pem")
    await join("clone", holder=True)
    await asyncio.sleep(seconds)
    await leave(["clone"])
    (folder / "clone.pem").unlink()


async def squat(count: int) -> None:
    """Nodes that choose the ids next to the place of this round."""
    key = int.from_bytes(here().id, "big")
    for at in range(count):
        await join(f"squatter-{at}", DHTID(key ^ (at + 1)), holder=True)


async def squatted(count: int) -> list[int]:
    held = [len(peers[f"squatter-{at}"].node.protocol.storage) for at in range(count)]
    await leave([f"squatter-{at}" for at in range(count)])
    return held


async def stream_bomb(megabytes: int) -> int:
    """A stream that announces 2^40 bytes, to everything that listens: how many MB were taken?"""
    she, taken = await join("mallory"), 0
    for victim in victims:
        for name in (HANDLER, "DHTProtocol.rpc_store", "DHTProtocol.rpc_find"):
            try:
                _, _, writer = await she.p2p.call_binary_stream_handler(victim, name)
            except NETWORK_ERRORS:
                continue
            for opening in ((1 << 40).to_bytes(8, "big"), b"\x80\x80\x80\x80\x80\x20"):
                writer.write(opening)
            try:
                for _ in range(megabytes):
                    writer.write(bytes(1 << 20))
                    await asyncio.wait_for(writer.drain(), 1)
                    taken += 1
            except NETWORK_ERRORS:
                pass
            writer.close()
    return taken


async def noise(count: int) -> int:
    """Bytes that are no protobuf, to every unary handler; how many raised at the caller?"""
    she, failed = await join("mallory"), 0
    for victim in victims:
        for name in (HANDLER, "DHTProtocol.rpc_store", "DHTProtocol.rpc_find", "DHTProtocol.rpc_ping"):
            for size in (0, 1, 1000, 1 << 20)[:count]:
                try:
                    await asyncio.wait_for(she.p2p._client.call_unary_handler(victim, name, os.urandom(size)), 5)
                except (*NETWORK_ERRORS, RuntimeError):
                    failed += 1
    return failed


def lying(truth: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(truth)
    async def rpc_find(self: Any, request: dht_pb2.FindRequest, context: Any) -> dht_pb2.FindResponse:
        answer = await truth(self, request, context)
        she = next((peer for peer in peers.values() if peer.node.protocol is self), None)
        return LIES[she.lie](she, answer, request.keys) if she and she.lie else answer

    return rpc_find


def shown(result: dht_pb2.FindResult, value: bytes, expiry: float, kind: int = dht_pb2.FOUND_DICTIONARY) -> None:
    result.type, result.value, result.expiration_time = kind, value, expiry


def hers(she: Peer, *, maxsize: Any = None, latest: Any = None) -> bytes:
    """A dictionary with only her own valid record of the open round, and what surrounds it."""
    record = own(she.identity, here(), b"alone")
    items = [[she.identity.peer_id, record.value, record.expiration_time]]
    inner = DHTProtocol.serializer.dumps([maxsize, latest or record.expiration_time, items])
    return msgspec.msgpack.encode(msgspec.msgpack.Ext(0x50, inner))


def lie_with(change: Callable[[Peer, dht_pb2.FindResult], None]) -> Callable[..., dht_pb2.FindResponse]:
    def lie(she: Peer, answer: dht_pb2.FindResponse, keys: list[bytes]) -> dht_pb2.FindResponse:
        for result, key in zip(answer.results, keys, strict=True):
            if key == here().id:
                change(she, result)
        return answer

    return lie


def crowd(she: Peer, result: dht_pb2.FindResult) -> None:
    """Neighbours that do not exist, with ids that follow from theirs."""
    names = [PeerID(b"\x12\x20" + os.urandom(32)) for _ in range(2000)]
    key = here().id
    names.sort(key=lambda name: bound_id(name).xor_distance(DHTID(int.from_bytes(key, "big"))))
    del result.nearest_node_ids[:], result.nearest_peer_ids[:]
    result.nearest_node_ids.extend(bound_id(name).to_bytes() for name in names)
    result.nearest_peer_ids.extend(name.to_bytes() for name in names)
    result.type = dht_pb2.NOT_FOUND


def misaligned(she: Peer, answer: dht_pb2.FindResponse, keys: list[bytes]) -> dht_pb2.FindResponse:
    del answer.results[:]
    return answer


LIES: dict[str, Any] = {
    "three bytes": lie_with(lambda she, result: shown(result, b"\xc1\xff\x00", 2e9)),
    "plain": lie_with(lambda she, result: shown(result, b"\xc1\xff\x00", 2e9, dht_pb2.FOUND_REGULAR)),
    "endless": lie_with(lambda she, result: shown(result, hers(she), float("inf"))),
    "no number": lie_with(lambda she, result: shown(result, hers(she), float("nan"))),
    "text for a size": lie_with(lambda she, result: shown(result, hers(she, maxsize="x"), time.time() + 890)),
    "text for a time": lie_with(lambda she, result: shown(result, hers(she, latest="x"), time.time() + 890)),
    "size one": lie_with(lambda she, result: shown(result, hers(she, maxsize=1), time.time() + 890)),
    "nothing": lie_with(lambda she, result: shown(result, b"", 0.0, dht_pb2.NOT_FOUND)),
    "crowd": lie_with(crowd),
    "misaligned": misaligned,
}
DHTProtocol.rpc_find = lying(DHTProtocol.rpc_find)


async def lie(how: str) -> str:
    she = await join("liar", holder=True)
    she.lie = how
    return she.identity.peer_id


async def bootnode(how: str) -> str:
    """The address of one that lies and holds junk under the keys of the swarm."""
    await lie(how)
    she = peers["liar"]
    for at in range(64):
        record = own(fast_identity(), here(), os.urandom(300))
        she.node.protocol.storage.store_subkey(DHTID(int.from_bytes(here().id, "big")), f"junk {at}", record.value, 2e9)
    return f"{(await she.p2p.get_visible_maddrs())[0]}"


def hers_at(addresses: list[Any]) -> tuple[PeerID, list[Any]]:
    peer, way = split_address(str(addresses[0]))
    return peer, [way]


async def read(thorough: bool) -> list[str] | None:
    """Whose records an honest node with nothing of its own finds in the place of this round; None: no answer."""
    path = folder / "reader.pem"
    identity = Identity.load_or_create(path)
    validator = PeerRecordValidator(identity, SWARM)
    p2p = await start_daemon(SwarmConfig(identity=str(path)))
    try:
        node = await create_node(p2p, validator)
        liars = [peer for peer in peers.values() if peer.lie]
        for she in liars:  # first among the neighbours, and perhaps the nearest
            await p2p._client.connect(*hers_at(await she.p2p.get_visible_maddrs()))
            await node.protocol.call_ping(she.p2p.peer_id)
        await meet(p2p, node)
        found = await HivemindTransport(node, validator).headers([here()], thorough=thorough)
        return sorted(peer for records in found.values() for peer in records)
    except UnreachableError:
        return None
    finally:
        await p2p.shutdown()


async def obey() -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, arguments = json.loads(line)
        print(json.dumps(await globals()[name](**arguments)), flush=True)
    await leave(list(peers))


if __name__ == "__main__":
    asyncio.run(obey())
    os._exit(0)
