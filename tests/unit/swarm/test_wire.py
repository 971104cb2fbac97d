"""Bytes to records and back: exact round trips, bounds, and a reason for each refusal."""

import json
import math
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.environments import attempts, item, sums
from builders.swarm import fast_identity, problem
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from codezero.environments.tasks import TaskEnvironment
from codezero.errors import WireError
from codezero.swarm import wire
from codezero.swarm.calls import ChunkRequest, RelayRequest, encode_headers
from codezero.swarm.identity import Identity
from codezero.swarm.records import DHTRecord, PeerRecordValidator, parse_key, place_of, shard_of, signed_message
from codezero.swarm.wire import (
    GROUPS,
    PROPOSALS,
    Header,
    ItemGroupsBody,
    WireRefusal,
    body_digest,
    decode_body,
    decode_feedback,
    decode_header,
    decode_market,
    decode_proposals,
    encode_body,
    encode_header,
    encode_market,
    encode_proposals,
    environment_of,
)
from codezero.types import Completion, Problem, RolloutGroup, ScoredGroup, Source, Standing, Status, Verdict, problem_id

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
OTHER = "12D3KooWBv1z4vD8cTKmQ2vLbfbkQjZ5gBGGKPPnKHbeFmfTz1wB"


def group(**change: Any) -> RolloutGroup:
    attempts = (
        Completion("def double(x):\n    return 2 * x\n", (5, 0, 151_642), (-0.5, -0.25, 0.0), True),
        Completion("", (), (), False),
    )
    return replace(RolloutGroup(problem(), attempts, PEER, 7, 3), **change)


def raw_body(**change: Any) -> dict[str, Any]:
    """A valid body as plain maps, to be broken by the tests."""
    body = wire.encode_body([group()], peer=PEER, round_number=7)
    return msgspec.msgpack.decode(zlib.decompress(body)) | change


def packed(body: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(body))


def header(**change: Any) -> Header:
    made = Header(1, "h", 7, bytes(32), 1000, "zlib", bytes(32), 32, [bytes(16)] * 16, 0.625, 1.7e9 + 1 / 3)
    return msgspec.structs.replace(made, **change)


def reason(data: bytes) -> str:
    with pytest.raises(WireRefusal) as refused:
        wire.decode_body(data)
    return refused.value.reason


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
nats = st.floats(-100, 0, width=16)
peers = st.sampled_from([PEER, OTHER])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    question, tests = draw(texts), tuple(draw(st.lists(texts, min_size=1, max_size=4)))
    return Problem(
        id=problem_id(question, tests),
        question=question,
        tests=tests,
        entry_point=draw(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)),
        source=draw(st.sampled_from(Source)),
        standing=draw(st.sampled_from(Standing)),
        level=draw(st.none() | st.integers(1, 5)),
        reference=draw(st.none() | texts),
        proposer=draw(st.none() | peers),
    )


@st.composite
def completions(draw: st.DrawFn) -> Completion:
    tokens = draw(st.lists(st.tuples(st.integers(0, 2**32 - 1), nats), max_size=8))
    return Completion(draw(texts), tuple(i for i, _ in tokens), tuple(p for _, p in tokens), draw(st.booleans()))


groups = st.builds(
    RolloutGroup,
    problem=problems(),
    completions=st.lists(completions(), min_size=1, max_size=4).map(tuple),
    peer_id=st.just(PEER),
    round=st.just(7),
    policy_step=st.integers(0, 2**40),
)


@given(st.lists(groups, min_size=1, max_size=3))
def test_groups_come_back_exactly_but_for_the_reference(sent: list[RolloutGroup]) -> None:
    _, _, received = wire.decode_body(wire.encode_body(sent, peer=PEER, round_number=7))
    assert received == tuple(replace(one, problem=replace(one.problem, reference=None)) for one in sent)


@given(st.floats(-65000, 0))
def test_log_probs_keep_half_precision(nat: float) -> None:
    sent = group(completions=(Completion("x", (1,), (nat,), True),))
    _, _, (received,) = wire.decode_body(wire.encode_body([sent], peer=PEER, round_number=7))
    assert math.isclose(received.completions[0].logprobs[0], nat, rel_tol=2**-11, abs_tol=2**-24)


def test_the_reference_is_not_in_the_bytes() -> None:
    secret = "def double(x): return x + x  # the reference"
    body = wire.encode_body([group(problem=problem(reference=secret))], peer=PEER, round_number=7)
    offer = wire.encode_proposals([problem(reference=secret)], peer=PEER, round_number=7)
    assert b"reference" not in zlib.decompress(body).replace(b"\xa9reference", b"")  # the standing's name is allowed
    assert secret.encode() not in zlib.decompress(body) + zlib.decompress(offer)


@given(st.lists(problems(), min_size=1, max_size=3))
def test_an_offer_is_the_sender_s_claim_whatever_it_says(sent: list[Problem]) -> None:
    peer, round_number, received = wire.decode_proposals(wire.encode_proposals(sent, peer=OTHER, round_number=9))
    assert (peer, round_number) == (OTHER, 9)
    assert [(one.id, one.tests) for one in received] == [(one.id, one.tests) for one in sent]
    assert {(one.source, one.standing, one.proposer) for one in received} == {
        (Source.PROPOSER, Standing.CLAIMED, OTHER)
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 2**63) | st.floats() | texts | st.binary(max_size=9),
        lambda leaf: st.lists(leaf, max_size=4) | st.dictionaries(texts, leaf, max_size=4),
    ),
    st.sampled_from(["v", "kind", "peer", "round", "groups"]),
)
def test_a_field_of_any_other_shape_is_refused(value: Any, field: str) -> None:
    body = raw_body()
    if value == body[field] and type(value) is type(body[field]):
        return
    if field == "round" and type(value) is int and 0 <= value < 2**53:
        return
    assert reason(packed(body | {field: value})) in {"schema", "version"}


def judged(question: str, *rewards: float, status: Status = Status.JUDGED) -> ScoredGroup:
    verdicts = tuple(Verdict(reward, reward, 0, 0, 0, 1, status) for reward in rewards)
    return ScoredGroup(group(problem=problem(question)), verdicts)


def test_feedback_says_how_many_attempts_were_judged_and_how_they_went() -> None:
    data = wire.encode_feedback([judged("a", 1.0, 0.0, 0.5), judged("b", 0.0)], round_number=7)
    read = wire.decode_feedback(data)
    assert read.round == 7
    assert [(one.problem.hex(), one.attempts, one.success) for one in read.outcomes] == [
        (problem("a").id, 3, 0.5), (problem("b").id, 1, 0.0),
    ]  # fmt: skip


def test_what_could_not_be_judged_says_nothing() -> None:
    unavailable = judged("a", 0.0, status=Status.UNAVAILABLE)
    assert (
        len(wire.decode_feedback(wire.encode_feedback([unavailable, judged("b", 1.0)], round_number=0)).outcomes) == 1
    )
    with pytest.raises(WireRefusal):
        wire.encode_feedback([unavailable], round_number=0)


def test_the_fullest_feedback_fits_its_bound() -> None:
    full = [judged(f"{number}", *[1 / 3] * wire.MAX_COMPLETIONS) for number in range(wire.MAX_ITEMS)]
    assert len(wire.encode_feedback(full, round_number=2**53 - 1)) <= wire.MAX_FEEDBACK


@pytest.mark.parametrize(
    "change", [{"attempts": 0}, {"attempts": 65}, {"success": 1.1}, {"success": math.nan}, {"problem": b"short"}]
)
def test_feedback_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    raw = msgspec.msgpack.decode(wire.encode_feedback([judged("a", 1.0)], round_number=1))
    raw["outcomes"][0] |= change
    with pytest.raises(WireRefusal):
        wire.decode_feedback(msgspec.msgpack.encode(raw))


def test_a_newer_version_is_told_from_a_broken_one() -> None:
    assert reason(packed({"v": 3, "anything": [1, 2, 3]})) == "version"
    assert reason(packed({"anything": 1})) == "schema"
    with pytest.raises(WireRefusal, match="version"):
        wire.decode_header(msgspec.msgpack.encode({"v": 3}))


def test_unknown_and_missing_fields_are_refused() -> None:
    assert reason(packed(raw_body(reward=1.0))) == "schema"
    for field in raw_body():
        assert reason(packed({name: value for name, value in raw_body().items() if name != field})) == "schema"


def test_a_zip_bomb_is_stopped_at_the_cap() -> None:
    stream = zlib.compressobj(9)
    bomb = b"".join(stream.compress(bytes(1 << 20)) for _ in range(256)) + stream.flush()
    assert len(bomb) < 2 << 20
    assert reason(bomb) == "inflate"
    assert reason(zlib.compress(bytes(wire.MAX_INFLATED + 1))) == "inflate"


def test_truncated_and_trailing_bytes_are_refused() -> None:
    body = wire.encode_body([group()], peer=PEER, round_number=7)
    assert reason(body[:-1]) == reason(body + b"\0") == reason(b"") == "inflate"
    assert reason(zlib.compress(zlib.decompress(body) + b"\xc0")) == "schema"
    assert reason(bytes((2 << 20) + 1)) == "size"


def test_a_foreign_problem_id_is_refused() -> None:
    body = raw_body()
    body["groups"][0]["problem"]["id"] = bytes(32)
    assert reason(packed(body)) == "problem"


@pytest.mark.parametrize(
    "logprobs",
    [
        b"",
        b"\0\0",
        struct.pack("<3e", math.nan, -1, -1),
        struct.pack("<3e", -math.inf, -1, -1),
        struct.pack("<3e", 0.01, -1, -1),
    ],
)
def test_log_probs_are_finite_at_most_zero_and_one_a_token(logprobs: bytes) -> None:
    body = raw_body()
    body["groups"][0]["completions"][0]["logprobs"] = logprobs
    assert reason(packed(body)) == "logprobs"


def test_text_is_bounded_in_bytes_not_characters() -> None:
    body = raw_body()
    body["groups"][0]["completions"][0]["text"] = "é" * (wire.MAX_TEXT // 2 + 1)
    assert reason(packed(body)) == "size"


def test_surrogates_and_deep_nesting_are_refused() -> None:
    raw = zlib.decompress(wire.encode_body([group()], peer=PEER, round_number=7))
    assert reason(zlib.compress(raw.replace(b"Double it.", b"\xed\xa0\x80 le it."))) == "schema"
    assert reason(zlib.compress(b"\x82\xa1v\x01\xa1x" + b"\x91" * 100_000)) == "schema"


@pytest.mark.parametrize("broken", [
    group(peer_id=OTHER),
    group(completions=()),
    group(completions=(group().completions[0],) * 65),
    group(policy_step=-1),
    group(problem=problem(entry_point="not a name")),
    group(problem=problem(id="nonsense")),
    group(problem=problem(id="0" * 64)),
    group(problem=problem("x" * (wire.MAX_TEXT + 1))),
    group(completions=(Completion("\ud800", (), (), True),)),
    group(completions=(Completion("x", (1, 2), (-1.0,), True),)),
    group(completions=(Completion("x", (-1,), (-1.0,), True),)),
    group(completions=(Completion("x", (1,), (math.nan,), True),)),
    group(completions=(Completion("x", (1,), (0.5,), True),)),
    group(completions=(Completion("x", (1,) * (wire.MAX_TOKENS + 1), (-1.0,) * (wire.MAX_TOKENS + 1), True),)),
])  # fmt: skip
def test_the_sender_is_held_to_the_same_bounds(broken: RolloutGroup) -> None:
    with pytest.raises(WireError):
        wire.encode_body([broken], peer=PEER, round_number=7)


def test_a_body_holds_one_to_thirty_two_groups() -> None:
    for count in (0, 33):
        with pytest.raises(WireError):
            wire.encode_body([group()] * count, peer=PEER, round_number=7)
    assert len(wire.decode_body(wire.encode_body([group()] * 32, peer=PEER, round_number=7))[2]) == 32


@pytest.mark.parametrize("change", [{}, {"v": 2, "environment": b"e" * 16}])
def test_the_fullest_header_fits_its_bound_and_comes_back(change: dict[str, Any]) -> None:
    fullest = header(round=2**53 - 1, size=2 << 20, **change)
    assert len(wire.encode_header(fullest)) <= wire.MAX_HEADER
    assert wire.decode_header(wire.encode_header(fullest)) == fullest


@pytest.mark.parametrize("change", [{"size": (2 << 20) + 1}, {"size": 0}, {"count": 33}, {"count": 0}, {"round": -1},
                                    {"digest": bytes(31)}, {"codec": "zstd"}, {"kind": "b"}, {"reward": math.nan},
                                    {"reward": 1.5}, {"time": math.inf}, {"problems": [bytes(16)] * 17}])  # fmt: skip
def test_a_header_out_of_bounds_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WireRefusal):
        wire.decode_header(msgspec.msgpack.encode(header(**change)))


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


SENDER = fast_identity(1).peer_id


def rolled(environment: TaskEnvironment, level: int = 1, index: int = 0) -> RolloutGroup:
    return attempts(environment.derive(item(environment, level, index)), "7", "8", peer=SENDER, round_number=7)


def test_of_a_derived_problem_only_its_place_travels() -> None:
    sent = rolled(SUMS, 3, 4)
    peer, number, (arrived,) = decode_body(encode_body([sent], peer=SENDER, round_number=7))
    assert (peer, number, arrived.problem.question, arrived.problem.tests) == (SENDER, 7, "", ())
    assert (arrived.problem.item, arrived.problem.id) == (sent.problem.item, sent.problem.id)
    assert arrived.completions == sent.completions
    raw = zlib.decompress(encode_body([sent], peer=SENDER, round_number=7))
    assert sent.problem.question.encode() not in raw and msgspec.msgpack.decode(raw)["v"] == 2
    _, _, (offered,) = decode_proposals(encode_proposals([sent.problem], peer=SENDER, round_number=7))
    assert (offered.item, offered.proposer, offered.source) == (sent.problem.item, SENDER, "sums")


def test_one_body_is_of_one_environment() -> None:
    other = sums(version="2")
    for mixed in ([rolled(SUMS), rolled(other)], [rolled(SUMS), replace(group(peer_id=SENDER), round=7)]):
        with pytest.raises(WireRefusal, match="environment"):
            encode_body(mixed, peer=SENDER, round_number=7)


def test_a_header_names_the_environment_in_version_2_alone() -> None:
    named = environment_of(GROUPS, [rolled(SUMS)])
    assert named == bytes.fromhex(SUMS.digest)[:16] == environment_of(PROPOSALS, [rolled(SUMS).problem])
    assert environment_of(GROUPS, [group(peer_id=SENDER)]) == b""
    assert decode_header(encode_header(header(v=2, environment=named))).environment == named
    for wrong in (header(v=2), header(v=1, environment=named)):
        with pytest.raises(WireRefusal):
            encode_header(wrong)


@pytest.mark.parametrize(
    ("key", "value"), [("level", 0), ("level", 6), ("index", -1), ("index", 2**31), ("id", b"short"), ("more", 1)]
)
def test_a_place_out_of_bounds_is_refused(key: str, value: object) -> None:
    body = msgspec.msgpack.decode(zlib.decompress(encode_body([rolled(SUMS)], peer=SENDER, round_number=7)))
    body["groups"][0]["item"][key] = value
    with pytest.raises(WireRefusal):
        decode_body(zlib.compress(msgspec.msgpack.encode(body)))
    assert ItemGroupsBody.__struct_config__.forbid_unknown_fields
