from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.evals.figures import pass_at_k
from codezero.stats import bounded_interval

shares = st.lists(st.floats(0, 1), min_size=1, max_size=40)
outcomes = st.lists(st.booleans(), min_size=1, max_size=24)


@given(outcomes)
def test_pass_at_n_is_any(passed: list[bool]) -> None:
    assert pass_at_k(len(passed), sum(passed), len(passed)) == float(any(passed))


@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@given(st.integers(2, 60), st.data())
def test_pass_at_k_rises_with_k_and_with_passes(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n - 1)), data.draw(st.integers(1, n - 1))
    assert pass_at_k(n, c, k) <= pass_at_k(n, c, k + 1) + 1e-12
    assert pass_at_k(n, c, k) <= pass_at_k(n, c + 1, k) + 1e-12


@given(shares, st.integers(0, 3))
def test_bounded_interval_contains_the_mean(values: list[float], seed: int) -> None:
    low, high = bounded_interval(values, seed=seed)
    assert 0 <= low <= sum(values) / len(values) + 1e-12
    assert sum(values) / len(values) - 1e-12 <= high <= 1 + 1e-12


def test_bootstrap_is_seeded_and_narrows_with_problems() -> None:
    few, many = [0.0, 1.0] * 10, [0.0, 1.0] * 1000
    assert bounded_interval(few, seed=1) == bounded_interval(few, seed=1)
    assert bounded_interval(few, seed=1) != bounded_interval(few, seed=2)
    narrow, wide = bounded_interval(many, seed=1), bounded_interval(few, seed=1)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 5


def test_bootstrap_covers_the_truth_about_95_times_in_100() -> None:
    import numpy as np

    draw = np.random.default_rng(7)
    covered = 0
    for seed in range(200):
        low, high = bounded_interval(draw.binomial(8, 0.4, size=100) / 8, seed=seed)
        covered += low <= 0.4 <= high
    assert 180 <= covered <= 199
