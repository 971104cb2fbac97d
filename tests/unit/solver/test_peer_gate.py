"""Which peers are learned from, and that the memory of it is bounded and kept."""

import random
from pathlib import Path

import pytest
from builders.models import judged
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.errors import CheckpointError
from codezero.solver.peer_rollouts import MARGIN, STORED_PEERS, PeerFilter
from codezero.types import Status


def passes(gate: PeerFilter, peer: str) -> float:
    """Share of iterations in which the peer may be learned from."""
    chance = random.Random(0)
    return sum(peer in gate.passing([peer], chance) for _ in range(1000)) / 1000


def taught(own: float, peer: float, times: int = 5) -> PeerFilter:
    gate = PeerFilter()
    for _ in range(times):
        gate.observe([judged(0, [own] * 4, peer_id="me")], [judged(1, [peer] * 4, peer_id="other")])
    return gate


def test_who_was_never_compared_may_be_learned_from():
    assert passes(PeerFilter(), "stranger") == 1


def test_a_better_or_equal_peer_passes_and_a_worse_one_is_only_probed():
    assert passes(taught(0.4, 0.8), "other") == passes(taught(0.5, 0.5), "other") == 1
    assert 0.05 < passes(taught(0.8, 0.4), "other") < 0.15


def test_chance_shuts_no_equal_peer_out():
    gate, chance = PeerFilter(), random.Random(0)
    passed = 0
    for _ in range(500):
        mine, theirs = ([float(chance.random() < 0.5) for _ in range(2)] * 4 for _ in range(2))
        gate.observe([judged(0, mine)], [judged(1, theirs, peer_id="other")])
        passed += gate.lead("other") >= -MARGIN
    assert passed > 400


def test_a_peer_that_gets_better_comes_back():
    gate = taught(0.8, 0.4)
    for _ in range(20):
        gate.observe([], [judged(1, [1.0] * 4, peer_id="other")])
    assert gate.lead("other") > 0 and passes(gate, "other") == 1


def test_only_what_could_be_compared_counts():
    gate = PeerFilter()
    gate.observe([], [judged(1, [0.0] * 4, peer_id="other")])  # nothing own to compare with
    gate.observe([judged(0, [0.8] * 4)], [judged(1, [0.0], peer_id="other", status=[Status.UNAVAILABLE])])
    assert gate.lead("other") == 0


def test_it_is_kept(tmp_path: Path):
    gate, again = taught(0.8, 0.4), PeerFilter()
    gate.save(tmp_path)
    again.load(tmp_path)
    assert again.lead("other") == gate.lead("other") < 0
    for one in (gate, again):
        one.observe([judged(0, [0.1] * 4)], [judged(1, [0.9] * 4, peer_id="other")])
    assert again.lead("other") == gate.lead("other")


@pytest.mark.parametrize("text", ["", "{}", '{"own": {}, "leads": {"peer": 7}}', '{"own": {"1": NaN}, "leads": {}}'])
def test_a_damaged_memory_is_named(tmp_path: Path, text: str):
    (tmp_path / "gate.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"gate\.json"):
        PeerFilter().load(tmp_path)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3000), max_size=50))
def test_a_crowd_of_names_fills_no_memory(peers: list[int]):
    gate = PeerFilter()
    gate.observe([judged(0, [0.5] * 4)], [judged(1, [0.1] * 4, peer_id=f"{i}") for i in range(STORED_PEERS)])
    gate.observe([], [judged(1, [0.1] * 4, peer_id=f"{i}") for i in peers])
    assert len(gate.memory.leads) <= STORED_PEERS
    assert all(gate.lead(str(i)) < 0 for i in peers)


def test_a_reward_that_is_no_number_says_nothing():
    gate = taught(0.5, 0.4)
    gate.observe([judged(0, [float("nan")] * 4)], [judged(1, [float("inf")] * 4, peer_id="other")])
    assert gate.lead("other") == taught(0.5, 0.4).lead("other")
