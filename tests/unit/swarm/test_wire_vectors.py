"""One example of everything in docs/wire-format.md, for second implementations: tests/golden/wire_vectors.json."""

import json
import zlib
from dataclasses import replace
from pathlib import Path

import msgspec
from builders.environments import item, sums
from cryptography.hazmat.primitives.asymmetric import ed25519

from codezero.swarm.calls import ChunkRequest, RelayRequest, encode_headers
from codezero.swarm.identity import Identity
from codezero.swarm.records import DHTRecord, PeerRecordValidator, parse_key, place_of, shard_of, signed_message
from codezero.swarm.wire import (
    body_digest,
    decode_body,
    decode_feedback,
    decode_header,
    decode_market,
    encode_body,
    encode_header,
    encode_market,
    encode_proposals,
    environment_of,
)

SUMS = sums()


def test_the_vectors_are_what_this_code_reads_and_writes() -> None:
    vectors = json.loads((Path(__file__).parents[2] / "golden" / "wire_vectors.json").read_text())
    raw = {
        name: bytes.fromhex(value) for name, value in vectors.items() if name not in {"peer", "key", "expiration_time"}
    }
    identity = Identity(ed25519.Ed25519PrivateKey.from_private_bytes(raw["identity_seed"]))
    assert (identity.peer_id, identity.public_key_bytes) == (vectors["peer"], raw["public_key"])

    _, _, (one,) = decode_body(raw["body"])
    assert (one.peer_id, one.round, one.problem.id) == (vectors["peer"], 7, vectors["problem_id"])
    assert zlib.decompress(encode_body([one], peer=identity.peer_id, round_number=7)) == raw["body_inflated"]
    assert (
        zlib.decompress(encode_proposals([one.problem], peer=identity.peer_id, round_number=7))
        == raw["proposals_inflated"]
    )

    (outcome,) = decode_feedback(raw["feedback"]).outcomes
    assert (outcome.problem.hex(), outcome.attempts, outcome.success) == (vectors["problem_id"], 8, 0.375)
    assert msgspec.msgpack.encode(decode_feedback(raw["feedback"])) == raw["feedback"]

    assert msgspec.msgpack.encode(ChunkRequest(bytes.fromhex("2" * 64), 1 << 20)) == raw["chunk_request"]
    relayed = RelayRequest(vectors["peer"], raw["digest"], 375, 100)
    assert msgspec.msgpack.encode(relayed) == raw["relay_request"]
    assert encode_headers({parse_key(vectors["key"]): raw["header"]}) == raw["headers_answer"]

    peer, number, (payload,) = decode_market(raw["market"])
    assert (peer, number, payload) == (vectors["peer"], 7, b"for the market to parse")
    assert zlib.decompress(encode_market([payload], peer=peer, round_number=7)) == raw["market_inflated"]
    announced = decode_header(raw["market_header"])
    assert (announced.kind, announced.digest, announced.size) == ("m", body_digest(raw["market"]), len(raw["market"]))
    assert encode_header(announced) == raw["market_header"]
    for round_number in (7, 8):  # the shard stays
        place = place_of(peer, "codezero", "m", round_number, 1024)
        assert place.key.encode() == raw["market_key"].replace(b"/7/", b"/%d/" % round_number)

    (derived,) = decode_body(raw["items_body"])[2]  # version 2
    assert derived.problem.item == item(SUMS, 2, 3) and derived.problem.id == SUMS.derive(item(SUMS, 2, 3)).id
    assert zlib.decompress(encode_body([derived], peer=peer, round_number=7)) == raw["items_inflated"]
    offered = encode_proposals([derived.problem], peer=peer, round_number=7)
    assert zlib.decompress(offered) == raw["items_proposals_inflated"]
    announced = decode_header(raw["items_header"])
    assert (announced.v, announced.digest) == (2, body_digest(raw["items_body"]))
    assert announced.environment == environment_of("h", [derived])
    assert encode_header(announced) == raw["items_header"]

    header = decode_header(raw["header"])
    assert (header.digest, header.size) == (body_digest(raw["body"]), len(raw["body"])) == (raw["digest"], 375)
    assert encode_header(header) == raw["header"]

    place = parse_key(vectors["key"])
    assert (place.id, place.shard) == (raw["record_id"], shard_of(7, identity.peer_id, place.shards))
    stored = DHTRecord(place.id, raw["subkey"], raw["value"], vectors["expiration_time"])
    assert signed_message("codezero", place.key, stored, raw["header"]) == raw["signed_message"]
    validator = PeerRecordValidator(identity, "codezero", clock=lambda: header.time)
    validator.declare(place)
    assert validator.validate(stored)
    assert validator.strip_value(stored) == msgspec.msgpack.encode(raw["header"])
    assert validator.sign_value(replace(stored, value=msgspec.msgpack.encode(raw["header"]))) == raw["value"]
