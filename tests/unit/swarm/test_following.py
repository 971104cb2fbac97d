"""A peer's versions through the gossip: what is shared arrives exactly, and whatever a peer does costs one line."""

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.swarm import SWARM, TOKENIZER
from hypothesis import given
from hypothesis import strategies as st
from simulation.memory_transport import signed
from unit.swarm.test_exchange import ROUND, Clock, Peer, peers

from codezero.config import SwarmConfig
from codezero.swarm import exchange
from codezero.swarm.messages import Answered, Fetch, Publish
from codezero.swarm.records import RecordPlace, parse_key, place_of
from codezero.swarm.schema import MAX_HEADER, VERSIONS, Header, WireRefusal, body_digest, encode_header
from codezero.swarm.serving import CHUNK, ChunkRequest
from codezero.swarm.supervisor import NetworkProcess
from codezero.swarm.trust import Limits, Offence, PeerTrust
from codezero.swarm.wire import decode_versions, encode_versions
from codezero.weights import MAX_MANIFEST

NAME = "ab" * 32
MANIFEST = b'{"layout": "...", "versions": []}'


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(exchange, "RETRY_SECONDS", 0.01)


def share(peer: Peer, folder: Path, content: bytes = b"weights", manifest: bytes = MANIFEST) -> Path:
    path = folder / f"{NAME}.safetensors"
    path.write_bytes(content)
    body = encode_versions([manifest], peer=peer.id, round_number=ROUND)
    peer.exchange.publish(Publish(VERSIONS, ROUND, body, [], bytes.fromhex(TOKENIZER), [str(path)]))
    peer.look()
    return path


def fetch(peer: Peer, holder: str, into: Path, *, name: str = "", size: int = MAX_MANIFEST, **change: Any) -> str:
    """Why it failed; empty: it did not."""
    digest = bytes.fromhex(name) if name else None
    request = Fetch(holder, digest, size, str(into), bytes.fromhex(TOKENIZER), 60.0)
    return asyncio.run(peer.exchange.puller.fetch(msgspec.structs.replace(request, **change))).failure


@pytest.mark.parametrize("size", [1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_manifest_and_file_arrive_as_they_are(tmp_path: Path, size: int) -> None:
    holder, follower = peers(Clock())
    path = share(holder, tmp_path, bytes(range(251)) * (size // 251 + 1))
    content = path.read_bytes()
    assert not fetch(follower, holder.id, tmp_path / "manifest")
    assert (tmp_path / "manifest").read_bytes() == MANIFEST
    assert not fetch(follower, holder.id, tmp_path / "file", name=NAME, size=len(content))
    assert (tmp_path / "file").read_bytes() == content and not follower.heard


def test_the_newest_manifest_takes_the_place_of_those_before(tmp_path: Path) -> None:
    clock = Clock()
    holder, follower = peers(clock)
    for text in (b"{1}", b"{2}", b"{3}"):
        share(holder, tmp_path, manifest=text)
        clock.now += 1
    assert not fetch(follower, holder.id, tmp_path / "manifest")
    assert (tmp_path / "manifest").read_bytes() == b"{3}"


@pytest.mark.parametrize("behind", [-1, 0, 1, 3])
def test_rounds_need_not_agree(tmp_path: Path, behind: int) -> None:
    holder, follower = peers(Clock())
    share(holder, tmp_path)
    follower.exchange.open_round(ROUND + behind)
    assert not fetch(follower, holder.id, tmp_path / "manifest")


def test_who_announces_nothing_or_is_of_another_tokenizer_costs_one_line(tmp_path: Path) -> None:
    holder, other, follower = peers(Clock(), 3)
    share(holder, tmp_path)
    assert "announces no versions" in fetch(follower, other.id, tmp_path / "x")
    assert "another tokenizer" in fetch(follower, holder.id, tmp_path / "x", tokenizer=bytes(32))
    follower.validator.round = None
    assert "no round" in fetch(follower, holder.id, tmp_path / "x")
    assert not any(line.failures for line in follower.trust.report())


def test_who_is_gone_costs_one_line(tmp_path: Path) -> None:
    holder, follower = peers(Clock())
    share(holder, tmp_path)
    del holder.board.answers[holder.id]
    assert "does not answer" in fetch(follower, holder.id, tmp_path / "x")
    assert "sends nothing" in fetch(follower, holder.id, tmp_path / "x", name=NAME, size=7)


def test_a_truncated_file_and_one_that_is_gone_are_given_up(tmp_path: Path) -> None:
    holder, follower = peers(Clock())
    path = share(holder, tmp_path, b"wei")
    assert "sends nothing" in fetch(follower, holder.id, tmp_path / "x", name=NAME, size=7)
    path.unlink()
    assert "sends nothing" in fetch(follower, holder.id, tmp_path / "x", name=NAME, size=3)


def test_more_than_was_published_is_refused_and_costs_the_holder(tmp_path: Path) -> None:
    holder, follower = peers(Clock())
    share(holder, tmp_path, b"weights and more")
    assert "more of a file" in fetch(follower, holder.id, tmp_path / "x", name=NAME, size=7)
    assert follower.trust.report()[0].failures


def test_a_trickle_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, follower = peers(Clock())
    share(holder, tmp_path)

    async def trickle(*_: object) -> bytes:
        await asyncio.sleep(0.001)
        return b"."

    monkeypatch.setattr(follower.transport, "ask", trickle)
    assert "too slow" in fetch(follower, holder.id, tmp_path / "x", name=NAME, size=1 << 30, seconds=0.2)


@pytest.mark.parametrize("forge", ["digest", "thief", "round", "garbage"])
def test_a_lying_record_costs_its_sender(tmp_path: Path, forge: str) -> None:
    clock = Clock()
    honest, liar, follower = peers(clock, 3)
    body = encode_versions(
        [MANIFEST], peer=(honest if forge == "thief" else liar).id, round_number=ROUND - (forge == "round")
    )
    if forge == "garbage":
        body = b"no zlib"
    digest = bytes(32) if forge == "digest" else body_digest(body)
    liar.exchange.server.bodies[digest] = body
    header = Header(
        v=1,
        kind=VERSIONS,
        round=ROUND,
        digest=digest,
        size=len(body),
        codec="zlib",
        tokenizer=bytes.fromhex(TOKENIZER),
        count=1,
        problems=[],
        reward=None,
        time=clock.now,
    )
    place = place_of(liar.id, SWARM, "v", ROUND)
    record = signed(place, liar.id, encode_header(header), clock.now + 100, liar.validator)
    liar.board.records[place.id] = {record.subkey: record}
    assert "not believed" in fetch(follower, liar.id, tmp_path / "x")
    assert [line.peer for line in follower.trust.report() if line.failures] == [liar.id]


def test_only_what_the_newest_manifest_lists_is_served(tmp_path: Path) -> None:
    holder, follower = peers(Clock())
    share(holder, tmp_path)
    (tmp_path / f"{'cd' * 32}.delta").write_bytes(b"not listed")

    def ask(request: Any) -> bytes:
        return holder.exchange.server.answer(follower.id, msgspec.msgpack.encode(request))

    assert ask(ChunkRequest(bytes.fromhex(NAME), 0)) == b"weights"
    wrong: list[object] = [
        ChunkRequest(bytes.fromhex("cd" * 32), 0),
        ChunkRequest(bytes.fromhex(NAME), 7),
        ("../secret", 0),
        (f"{NAME}.safetensors", 0),
        (str(tmp_path / f"{NAME}.safetensors"), 0),
        (bytes.fromhex(NAME), -1),
        (bytes.fromhex(NAME), 1 << 41),
        (bytes.fromhex(NAME), 0, "more"),
    ]
    for request in wrong:
        assert ask(request) == b""
    body = encode_versions([MANIFEST], peer=holder.id, round_number=ROUND)
    holder.exchange.publish(Publish(VERSIONS, ROUND, body, [], bytes.fromhex(TOKENIZER), []))
    assert ask(ChunkRequest(bytes.fromhex(NAME), 0)) == b""


def test_a_flood_of_requests_ends_at_the_allowance(tmp_path: Path) -> None:
    clock = Clock()
    holder, follower = peers(clock)
    share(holder, tmp_path, bytes(CHUNK))
    limits = Limits(bytes_burst=4 * CHUNK / 8, requests_burst=1e6)
    holder.exchange.server._trust = PeerTrust(lambda _: True, clock, limits)
    request = msgspec.msgpack.encode(ChunkRequest(bytes.fromhex(NAME), 0))
    served = [bool(holder.exchange.server.answer(follower.id, request)) for _ in range(50)]
    assert sum(served) == 4 and served[:4] == [True] * 4
    clock.now += 1
    assert holder.exchange.server.answer(follower.id, request)


def test_a_file_comes_in_spite_of_a_used_up_allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    holder, follower = peers(clock)
    content = share(holder, tmp_path, bytes(6 * CHUNK)).read_bytes()
    limits = Limits(bytes_burst=2 * CHUNK / 8, bytes_per_second=CHUNK / 8)
    holder.exchange.server._trust = PeerTrust(lambda _: True, clock, limits)

    async def later(_: float) -> None:
        clock.now += 0.5

    monkeypatch.setattr(exchange.asyncio, "sleep", later)
    assert not fetch(follower, holder.id, tmp_path / "x", name=NAME, size=len(content))
    assert (tmp_path / "x").read_bytes() == content


def test_a_node_that_does_not_know_the_kind_refuses_the_key_and_nothing_else() -> None:
    place = place_of("somebody", SWARM, "v", ROUND)
    assert isinstance(parse_key(place.key), RecordPlace)
    with pytest.raises(WireRefusal, match="key"):
        parse_key(place.key.replace("/v/", "/x/"))


@given(st.binary(min_size=2, max_size=1 << 12), st.integers(0, 2**53 - 1))
def test_a_manifest_survives_the_wire_and_its_header_stays_small(manifest: bytes, number: int) -> None:
    peer = "12D3KooWA4Xop1JaT3MHxwYMkCepYsv4iPVopMXwCz5iHYdBfeSB"
    body = encode_versions([manifest], peer=peer, round_number=number)
    assert decode_versions(body) == (peer, number, (manifest,))
    header = {"v": 1, "kind": VERSIONS, "round": number, "digest": body_digest(body), "size": len(body)}
    rest = {"codec": "zlib", "tokenizer": bytes(32), "count": 1, "problems": [], "reward": None, "time": 1.0}
    assert len(encode_header(msgspec.convert(header | rest, Header))) <= MAX_HEADER


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(data: bytes) -> None:
    refused(lambda: decode_versions(data))


def test_a_manifest_beyond_the_bound_is_not_sent() -> None:
    peer = "12D3KooWA4Xop1JaT3MHxwYMkCepYsv4iPVopMXwCz5iHYdBfeSB"
    assert refused(lambda: encode_versions([bytes(MAX_MANIFEST + 1)], peer=peer, round_number=1)) == "schema"


def refused(call: Callable[[], object]) -> str:
    try:
        call()
    except WireRefusal as refusal:
        return refusal.reason
    return ""


def test_the_shard_is_known_to_whoever_knows_the_peer() -> None:
    digest = hashlib.sha256(f"{ROUND}|peer".encode()).digest()
    place = place_of("peer", SWARM, "v", ROUND)
    assert (place.shards, place.shard) == (1024, int.from_bytes(digest[:4], "big") % 1024)


def test_nothing_is_pulled_from_a_peer_in_quarantine(tmp_path: Path) -> None:
    holder, follower = peers(Clock())
    share(holder, tmp_path)
    for _ in range(2):
        follower.trust.blame(holder.id, Offence.FORGED)
    for name, size in (("", MAX_MANIFEST), (NAME, 7)):
        assert "quarantined" in fetch(follower, holder.id, tmp_path / "x", name=name, size=size)


def test_an_allowance_that_is_used_up_costs_no_reading(tmp_path: Path) -> None:
    clock = Clock()
    holder, follower = peers(clock)
    share(holder, tmp_path)
    server = holder.exchange.server
    server._trust = PeerTrust(lambda _: True, clock, Limits(requests_burst=2.0))
    request = msgspec.msgpack.encode(ChunkRequest(bytes.fromhex(NAME), 0))
    assert [server.answer(follower.id, request) for _ in range(3)] == [b"weights", b"weights", b""]
    server.files[bytes.fromhex(NAME)] = None  # pyright: ignore
    assert server.answer(follower.id, request) == b""


def test_an_answer_that_nobody_waits_for_any_more_is_not_kept() -> None:
    process = NetworkProcess(SwarmConfig(), Path())
    process._on_message(Answered(1))
    assert not process._replies
