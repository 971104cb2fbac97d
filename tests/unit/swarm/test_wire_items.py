"""Version 2 of the wire: problems that every node derives are named and never believed."""

import zlib
from dataclasses import replace

import msgspec
import pytest
from builders.environments import attempts, item, sums
from builders.swarm import fast_identity, group
from hypothesis import given
from hypothesis import strategies as st
from unit.swarm.test_wire import header

from codezero.environments.tasks import TaskEnvironment
from codezero.swarm.wire import (
    GROUPS,
    PROPOSALS,
    ItemGroupsBody,
    WireRefusal,
    decode_body,
    decode_header,
    decode_proposals,
    encode_body,
    encode_header,
    encode_proposals,
    environment_of,
)
from codezero.types import RolloutGroup

PEER = fast_identity(1).peer_id
SUMS = sums()


def rolled(environment: TaskEnvironment, level: int = 1, index: int = 0) -> RolloutGroup:
    return attempts(environment.derive(item(environment, level, index)), "7", "8", peer=PEER, round_number=7)


def test_of_a_derived_problem_only_its_place_travels() -> None:
    sent = rolled(SUMS, 3, 4)
    peer, number, (arrived,) = decode_body(encode_body([sent], peer=PEER, round_number=7))
    assert (peer, number, arrived.problem.question, arrived.problem.tests) == (PEER, 7, "", ())
    assert (arrived.problem.item, arrived.problem.id) == (sent.problem.item, sent.problem.id)
    assert arrived.completions == sent.completions
    raw = zlib.decompress(encode_body([sent], peer=PEER, round_number=7))
    assert sent.problem.question.encode() not in raw and msgspec.msgpack.decode(raw)["v"] == 2
    _, _, (offered,) = decode_proposals(encode_proposals([sent.problem], peer=PEER, round_number=7))
    assert (offered.item, offered.proposer, offered.source) == (sent.problem.item, PEER, "sums")


def test_one_body_is_of_one_environment() -> None:
    other = sums(version="2")
    for mixed in ([rolled(SUMS), rolled(other)], [rolled(SUMS), replace(group(PEER), round=7)]):
        with pytest.raises(WireRefusal, match="environment"):
            encode_body(mixed, peer=PEER, round_number=7)


def test_a_header_names_the_environment_in_version_2_alone() -> None:
    named = environment_of(GROUPS, [rolled(SUMS)])
    assert named == bytes.fromhex(SUMS.digest)[:16] == environment_of(PROPOSALS, [rolled(SUMS).problem])
    assert environment_of(GROUPS, [group(PEER)]) == b""
    assert decode_header(encode_header(header(v=2, environment=named))).environment == named
    for wrong in (header(v=2), header(v=1, environment=named)):
        with pytest.raises(WireRefusal):
            encode_header(wrong)


def test_a_reader_of_version_1_skips_version_2_and_says_so() -> None:
    class OldHeader(msgspec.Struct):
        v: int

    raw = encode_header(header(v=2, environment=b"e" * 16))
    assert msgspec.msgpack.decode(raw, type=OldHeader).v != 1  # which it refuses as "version", and blames nobody


@given(st.binary(max_size=200))
def test_whatever_comes_is_a_refusal_or_a_group(noise: bytes) -> None:
    whole = zlib.decompress(encode_body([rolled(SUMS)], peer=PEER, round_number=7))
    for data in (noise, zlib.compress(noise), zlib.compress(whole[: len(noise)] + noise)):
        try:
            _, _, groups = decode_body(data)
        except WireRefusal:
            continue
        assert groups


@pytest.mark.parametrize(
    ("key", "value"), [("level", 0), ("level", 6), ("index", -1), ("index", 2**31), ("id", b"short"), ("more", 1)]
)
def test_a_place_out_of_bounds_is_refused(key: str, value: object) -> None:
    body = msgspec.msgpack.decode(zlib.decompress(encode_body([rolled(SUMS)], peer=PEER, round_number=7)))
    body["groups"][0]["item"][key] = value
    with pytest.raises(WireRefusal):
        decode_body(zlib.compress(msgspec.msgpack.encode(body)))
    assert ItemGroupsBody.__struct_config__.forbid_unknown_fields
