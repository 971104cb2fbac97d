"""Attacks on the DHT's records, each against the validator that every node runs. No network here."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest
from builders.swarm import SWARM, fast_identity

from codezero.errors import WireError
from codezero.swarm.identity import Identity
from codezero.swarm.records import (
    CROWD,
    LEVELS,
    MAX_SHARDS,
    DHTRecord,
    Envelope,
    PeerRecordValidator,
    RecordPlace,
    ShardEstimate,
    parse_key,
    shard_of,
    signed_message,
)

NOW = 1_700_000_000.0
ROUND = 12
PLACE = RecordPlace(SWARM, "h", ROUND)
ALICE, MALLORY = fast_identity(), fast_identity()
pack = msgspec.msgpack.encode


def validator(round_number: int | None = ROUND, identity: Identity = ALICE) -> PeerRecordValidator:
    made = PeerRecordValidator(identity, SWARM, clock=lambda: NOW)
    made.round = round_number
    return made


def record(
    identity: Identity = ALICE, payload: bytes = b"header", place: RecordPlace = PLACE, expiry: float = NOW + 300
) -> DHTRecord:
    """What an honest `identity` stores."""
    bare = DHTRecord(place.id, pack(identity.peer_id), pack(payload), expiry)
    signer = PeerRecordValidator(identity, place.swarm, clock=lambda: NOW)
    signer.declare(place)
    return replace(bare, value=signer.sign_value(bare))


def envelope(forged: DHTRecord, key: str, owner: Identity, signer: Identity, payload: bytes = b"FORGED") -> bytes:
    message = signed_message(SWARM, key, forged, payload)
    return pack(pack(Envelope(key, owner.public_key_bytes, signer.sign(message), payload)))


def refusal(attack: DHTRecord, **change: object) -> str:
    node = validator(**change)  # type: ignore[arg-type]
    assert not node.validate(attack)
    ((reason, count),) = node.refused.items()
    assert count == 1
    return reason


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_an_honest_record_is_stored_and_read(kind: str, tmp_path: Path) -> None:
    identity = ALICE if kind == "ed25519" else Identity.load_or_create(tmp_path / "swarm.pem")
    honest, node = record(identity), validator()
    assert node.validate(honest) and node.validate(honest)
    assert msgspec.msgpack.decode(node.strip_value(honest)) == b"header"
    assert not node.refused


def test_overwriting_another_peer_s_record_unsigned() -> None:
    assert refusal(replace(record(), value=pack(b"FORGED"))) == "format"


@pytest.mark.parametrize(("key", "reason"), [(MALLORY, "owner"), (ALICE, "signature")])
def test_another_peer_s_name_with_the_own_signature(key: Identity, reason: str) -> None:
    forged = replace(record(), value=b"")
    assert refusal(replace(forged, value=envelope(forged, PLACE.key, key, MALLORY))) == reason


@pytest.mark.parametrize("subkey", [b"", pack(None), pack(1), pack(b"x"), pack("x" * 90), b"\xc1", b"\xa2\xff\xff"])
def test_a_record_of_nobody(subkey: bytes) -> None:
    """Plain values and whole dictionaries would wipe out or block everybody's records."""
    assert refusal(replace(record(), subkey=subkey)) == "subkey"


def test_an_invented_subkey() -> None:
    assert refusal(replace(record(), subkey=pack("sybil1"))) == "owner"


def test_a_long_spelling_of_the_own_name() -> None:
    """Holders keep the name and not its spelling, so the signature would fail for their readers."""
    name = MALLORY.peer_id.encode()
    forged = DHTRecord(PLACE.id, b"\xda" + len(name).to_bytes(2, "big") + name, b"", NOW + 300)
    assert refusal(replace(forged, value=envelope(forged, PLACE.key, MALLORY, MALLORY))) == "subkey"


@pytest.mark.parametrize("value", [b"", b"\xc1\xff", b"\xff", pack(b""), pack(b"\xc1"), pack(pack([1, 2, 3, 4]))])
def test_bytes_that_are_no_envelope(value: bytes) -> None:
    assert refusal(replace(record(), value=value)) == "format"


@pytest.mark.parametrize("payload", [10_000, 513])
def test_a_large_payload(payload: int) -> None:
    assert refusal(record(payload=b"z" * payload)) in {"size", "format"}


@pytest.mark.parametrize("expiry", [NOW - 4, NOW + 904, NOW + 1e8, math.inf, -math.inf, math.nan])
def test_a_life_too_long_or_over(expiry: float) -> None:
    assert refusal(record(MALLORY, expiry=expiry)) == "expiry"


def test_clocks_may_differ_by_three_seconds() -> None:
    assert validator().validate(record(expiry=NOW - 2)) and validator().validate(record(expiry=NOW + 902))


@pytest.mark.parametrize("round_number", [0, ROUND - 4, ROUND + 17, 99])
def test_a_round_that_is_over_or_far_away(round_number: int) -> None:
    assert refusal(record(MALLORY, place=RecordPlace(SWARM, "h", round_number))) == "round"


@pytest.mark.parametrize("round_number", [ROUND - 3, ROUND - 1, ROUND + 1, ROUND + 3, ROUND + 16])
def test_a_peer_a_few_rounds_off_is_heard(round_number: int) -> None:
    assert validator().validate(record(place=RecordPlace(SWARM, "h", round_number)))


def test_before_the_first_round_every_round_may_be_the_one() -> None:
    assert validator(None).validate(record(place=RecordPlace(SWARM, "h", 10_000)))


def test_a_replay_in_the_next_round() -> None:
    assert refusal(replace(record(), key=RecordPlace(SWARM, "h", ROUND + 1).id)) == "key"


def test_a_replay_with_a_later_expiry() -> None:
    honest = record()
    node = validator()
    assert node.validate(honest)
    assert not node.validate(replace(honest, expiration_time=honest.expiration_time + 100))
    assert node.refused == {"signature": 1}


def test_another_swarm_s_record() -> None:
    assert refusal(record(place=RecordPlace("other", "h", ROUND))) == "key"


def test_the_shard_is_not_a_matter_of_choice() -> None:
    own = shard_of(ROUND, ALICE.peer_id, 4)
    assert validator().validate(record(place=RecordPlace(SWARM, "h", ROUND, 4, own)))
    assert refusal(record(place=RecordPlace(SWARM, "h", ROUND, 4, (own + 1) % 4))) == "shard"


def test_a_remembered_signature_does_not_excuse_a_record_from_the_other_rules() -> None:
    honest, node = record(), validator()
    assert node.validate(honest)
    node.round = ROUND + 10
    assert not node.validate(honest)


def test_only_members_write() -> None:
    node = PeerRecordValidator(ALICE, SWARM, clock=lambda: NOW, member=lambda peer: peer == ALICE.peer_id)
    assert node.validate(record(ALICE)) and not node.validate(record(MALLORY))
    assert node.refused == {"member": 1}


@pytest.mark.parametrize("key", ["cz1/t/h/01/1/0", "cz1/t/h/1/3/0", "cz1/t/h/1/2/2", "cz1/t/h/-1/1/0", "cz1/t/h/1/1/0 ",
                                 "cz1/t/h/1_0/1/0", "cz1/t/b/1/1/0", "cz1//h/1/1/0", "cz1/t/h/\u0661/1/0",
                                 "cz1/t/h/1/2048/0", "cz1/t/h/9999999999999999/1/0"])  # fmt: skip
def test_a_key_has_one_spelling_and_bounds(key: str) -> None:
    with pytest.raises(WireError):
        parse_key(key)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_dht_hashes_keys_as_we_do() -> None:
    from hivemind.dht.protocol import DHTProtocol
    from hivemind.dht.routing import DHTID

    assert DHTID.generate(PLACE.key).to_bytes() == PLACE.id
    assert DHTProtocol.serializer.dumps(ALICE.peer_id) == pack(ALICE.peer_id)
    assert {DHTProtocol.IS_DICTIONARY, DHTProtocol.IS_REGULAR_VALUE} == {b"", pack(None)}


def settled(peers: int, crowd: ShardEstimate, looks: int = 200) -> ShardEstimate:
    """After so many looks at a swarm that spreads as this node judges."""
    for _ in range(looks):
        crowd.note(crowd.shards, peers / crowd.shards)
        for other in crowd.elsewhere():
            if other != crowd.shards:
                crowd.note(other, 0)
    return crowd


@pytest.mark.parametrize("peers", [1, 31, 33, 100, 1_000, 10_000])
def test_no_place_is_crowded_and_none_is_deserted(peers: int) -> None:
    crowd = settled(peers, ShardEstimate(Random(1)))
    assert peers / crowd.shards <= CROWD
    assert crowd.shards == 1 or peers / crowd.shards > CROWD / 4


def test_a_swarm_that_shrinks_comes_together_again() -> None:
    crowd = settled(1_000, ShardEstimate(Random(2)))
    assert settled(20, crowd).shards == 1


def test_a_size_between_two_numbers_does_not_make_it_swing() -> None:
    crowd, seen = settled(40, ShardEstimate(Random(3))), set[int]()
    for peers in (30, 36, 28, 40, 33) * 20:
        crowd.note(crowd.shards, peers / crowd.shards)
        seen.add(crowd.shards)
    assert len(seen) == 1


def test_however_crowded_the_number_is_bounded() -> None:
    crowd = ShardEstimate(Random(4))
    crowd.note(1, 1e9)
    assert crowd.shards == MAX_SHARDS


def test_who_sees_nobody_looks_everywhere() -> None:
    crowd = ShardEstimate(Random(5))
    assert {level for _ in range(100) for level in crowd.elsewhere()} == set(LEVELS)
