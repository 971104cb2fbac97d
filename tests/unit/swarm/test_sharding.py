"""The number of shards follows the size of the swarm and comes to rest."""

from random import Random

import pytest

from codezero.swarm.records import CROWD, LEVELS, MAX_SHARDS, ShardEstimate


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
