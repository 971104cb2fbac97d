"""Every decoder of foreign bytes, against mutants of real messages: a value within bounds or a WireRefusal, no third.

Does not show: what mutants of mutants find; `test_what_coverage_leads_to` looks for those where atheris is installed.
"""

import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from builders.mutating import SWAPS, mutant, pack, unpack
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given
from hypothesis import strategies as st

from codezero.swarm.calls import CHUNK, BodyServer, ChunkRequest
from codezero.swarm.identity import Identity
from codezero.swarm.records import DHTRecord, PeerRecordValidator, RecordPlace, parse_key
from codezero.swarm.supervisor import Counted, Failed, Logged, Message, NetworkReady, OpenRound, Publish, ReceivedBody
from codezero.swarm.trust import Limits, PeerTrust
from codezero.swarm.wire import (
    MAX_ITEMS,
    WireRefusal,
    decode_body,
    decode_feedback,
    decode_header,
    decode_market,
    decode_proposals,
    encode_body,
    encode_header,
    encode_market,
    encode_proposals,
)
from codezero.system.files import UNDECODABLE

VECTORS = json.loads((Path(__file__).parents[1] / "golden" / "wire_vectors.json").read_text())
RAW = {name: bytes.fromhex(VECTORS[name]) for name in VECTORS if name not in {"peer", "key", "expiration_time"}}
NOW = VECTORS["expiration_time"] - 300
SLOWEST = 5.0  # Seconds of processor time that no single message may take, with room for any machine


VECTOR = DHTRecord(RAW["record_id"], RAW["subkey"], RAW["value"], VECTORS["expiration_time"])
IDENTITY = Identity(ed25519.Ed25519PrivateKey.from_private_bytes(RAW["identity_seed"]))
VALIDATOR = PeerRecordValidator(IDENTITY, "codezero", clock=lambda: NOW)
SERVER = BodyServer(
    PeerTrust(lambda _: True, limits=Limits(requests_per_second=1e9, requests_burst=1e12, bytes_burst=1e15))
)
SERVER.bodies[RAW["digest"]] = RAW["body"]
REQUEST = pack(ChunkRequest(RAW["digest"], 100))
MESSAGES: list[Message] = [
    OpenRound(7), Publish("h", 7, RAW["body"], [0.5, None], bytes(32)), Logged(30, "text"),
    Failed("why"),
    NetworkReady(["/ip4/127.0.0.1/tcp/1"], 1, ["/s"]), ReceivedBody("p", VECTORS["peer"], 7, RAW["body"], bytes(32)),
    Counted({"bytes_in": 1}, 2),
]  # fmt: skip


def squeezed(raw: bytes, random: Random) -> bytes:
    """A body whose inside is the mutant, which says more than a broken stream; sometimes that."""
    return mutant(zlib.compress(raw, 1), random) if random.random() < 0.1 else zlib.compress(mutant(raw, random), 1)


def body(random: Random) -> None:
    peer, round_number, groups = decode_body(squeezed(RAW[random.choice(("body_inflated", "items_inflated"))], random))
    assert 1 <= len(groups) <= MAX_ITEMS
    again = encode_body(groups, peer=peer, round_number=round_number)
    assert decode_body(again) == (peer, round_number, groups)


def proposals(random: Random) -> None:
    peer, round_number, problems = decode_proposals(squeezed(RAW["proposals_inflated"], random))
    assert {problem.proposer for problem in problems} == {peer}
    again = encode_proposals(problems, peer=peer, round_number=round_number)
    assert decode_proposals(again) == (peer, round_number, problems)


def market(random: Random) -> None:
    peer, round_number, payloads = decode_market(squeezed(RAW["market_inflated"], random))
    again = encode_market(payloads, peer=peer, round_number=round_number)
    assert decode_market(again) == (peer, round_number, payloads)


def header(random: Random) -> None:
    read = decode_header(mutant(RAW["header"], random))
    assert decode_header(encode_header(read)) == read


def record(random: Random) -> None:
    """What validates is the vector itself: same place, owner, payload and end."""
    change: dict[str, Any] = {}
    for name in random.sample(["key", "subkey", "value", "inside", "expiration_time"], random.choice((1, 1, 2))):
        if name == "inside":
            change["value"] = pack(mutant(unpack(RAW["value"]), random))
        elif name == "expiration_time":
            change[name] = random.choice(
                (NOW, NOW + 899, VECTOR.expiration_time + 1e-3, float("nan"), float("inf"), -0.0)
            )
        else:
            change[name] = mutant(getattr(VECTOR, name), random)
    mutated = replace(VECTOR, **change)
    if VALIDATOR.validate(mutated):
        meant = (mutated.key, mutated.subkey, VALIDATOR.strip_value(mutated), mutated.expiration_time)
        assert meant == (VECTOR.key, VECTOR.subkey, pack(RAW["header"]), VECTOR.expiration_time)


def key(random: Random) -> None:
    text = mutant(VECTORS["key"].encode(), random).decode("utf-8", random.choice(("replace", "surrogateescape")))
    place = parse_key(text)
    assert isinstance(place, RecordPlace) and place.key == text


def request(random: Random) -> None:
    piece = SERVER.answer(VECTORS["peer"], mutant(REQUEST, random))
    assert piece in RAW["body"] and len(piece) <= CHUNK


def feedback(random: Random) -> None:
    read = decode_feedback(mutant(RAW["feedback"], random))
    assert decode_feedback(pack(read)) == read and 1 <= len(read.outcomes) <= MAX_ITEMS


def message(random: Random) -> None:
    """Between the two processes of one node, so these come from nobody: bytes that are none are named as such."""
    try:
        read = msgspec.msgpack.decode(mutant(pack(random.choice(MESSAGES)), random), type=Message)
    except UNDECODABLE as error:
        raise WireRefusal("schema") from error
    assert type(read) in {type(one) for one in MESSAGES}


DECODERS: list[Callable[[Random], None]] = [
    body, proposals, market, header, record, key, request, feedback, message,
]  # fmt: skip


def attack(decoder: Callable[[Random], None], count: int) -> int:
    """Mutants that were read all the same; AssertionError for one that took too long or broke a promise."""
    read = 0
    for seed in range(count):
        began = time.process_time()
        try:
            decoder(Random(seed))
            read += 1
        except WireRefusal:
            pass
        except Exception as error:
            raise AssertionError(f"{decoder.__name__}: mutant {seed} raises {type(error).__name__}") from error
        assert time.process_time() - began < SLOWEST, f"{decoder.__name__}: mutant {seed}"
    return read


@pytest.mark.parametrize("decoder", DECODERS)
def test_mutants_are_read_or_refused(decoder: Callable[[Random], None]) -> None:
    attack(decoder, 1500)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_hundred_thousand_mutants_are_read_or_refused(decoder: Callable[[Random], None]) -> None:
    attack(decoder, 15_000)


def test_the_mutants_reach_far_and_are_not_all_refused() -> None:
    """Else the tests above would show that rubbish is refused, and nothing else."""
    assert all(attack(decoder, 300) > 0 for decoder in DECODERS if decoder not in (record, feedback))
    VALIDATOR.refused.clear()
    assert attack(record, 600) == 600  # none raises
    assert {"format", "key", "expiry", "subkey", "signature", "owner"} <= VALIDATOR.refused.keys()


scalars = st.sampled_from([value for value in SWAPS if not isinstance(value, (list, dict))])
scalars |= st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=80)
scalars |= st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


def outcome(decode: Callable[[bytes], Any], raw: bytes) -> None:
    try:
        decode(raw)
    except WireRefusal:
        return


@given(trees)
def test_any_message_at_all(tree: Any) -> None:
    raw = pack(tree) if _packs(tree) else b""
    outcome(decode_header, raw)
    for decode in (decode_body, decode_proposals, decode_market):
        outcome(decode, zlib.compress(raw))
    assert SERVER.answer(VECTORS["peer"], raw) in RAW["body"]
    assert not VALIDATOR.validate(replace(VECTOR, value=raw))
    assert not VALIDATOR.validate(replace(VECTOR, value=pack(raw)))


@given(st.sampled_from(sorted(unpack(RAW["header"]))), trees)
def test_any_value_in_any_field_of_a_header(field: str, tree: Any) -> None:
    outcome(decode_header, pack(unpack(RAW["header"]) | {field: tree if _packs(tree) else None}))


@given(st.lists(scalars, min_size=4, max_size=4), st.integers(0, 15))
def test_any_value_in_any_part_of_an_envelope(values: list[Any], kept: int) -> None:
    parts = unpack(unpack(RAW["value"]))
    mixed = [part if kept >> at & 1 else value for at, (part, value) in enumerate(zip(parts, values, strict=True))]
    believed = VALIDATOR.validate(replace(VECTOR, value=pack(pack(mixed))))
    assert believed == (mixed == parts)


def _packs(tree: Any) -> bool:
    try:
        pack(tree)
    except (OverflowError, ValueError, RecursionError):
        return False
    return True


FUZZER = """
import sys
import atheris
with atheris.instrument_imports(include=["codezero.swarm"]):
    from hostile import test_mutations
    from codezero.swarm.wire import WireRefusal
import zlib
from dataclasses import replace
from hostile import test_mutations as t

def one(raw):
    t.outcome(t.decode_header, raw)
    t.outcome(t.decode_feedback, raw)
    t.outcome(t.decode_body, zlib.compress(raw, 1))
    t.outcome(t.decode_proposals, zlib.compress(raw, 1))
    t.outcome(t.parse_key, raw.decode("utf-8", "replace"))
    t.SERVER.answer(t.VECTORS["peer"], raw)
    stored = replace(t.VECTOR, value=t.pack(raw))
    assert not t.VALIDATOR.validate(stored) or t.VALIDATOR.strip_value(stored) == t.pack(t.RAW["header"])

atheris.Setup(sys.argv, one)
atheris.Fuzz()
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_coverage_leads_to(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris, which the project does not depend on, is not installed")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in ("header", "body_inflated", "proposals_inflated", "feedback", "value"):
        (corpus / name).write_bytes(RAW[name])
    (corpus / "envelope").write_bytes(unpack(RAW["value"]))
    (corpus / "request").write_bytes(REQUEST)
    (corpus / "key").write_text(VECTORS["key"])
    script = tmp_path / "fuzz.py"
    script.write_text(FUZZER)
    command = [sys.executable, str(script), str(corpus), "-atheris_runs=100000", "-max_total_time=120", "-max_len=4096"]
    paths = [str(Path(__file__).parents[1]), *sys.path]
    environment = {"PYTHONPATH": ":".join(path for path in paths if path), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr[-3000:]
