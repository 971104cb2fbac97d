"""Weights of tokens that an earlier policy sampled, against the formulas by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.solver import updater
from codezero.solver.updater import LARGEST_WEIGHT, second_moment_weights, truncated_weights

LOGS = st.floats(-30, 0)
ROWS = st.lists(
    st.tuples(st.lists(st.tuples(LOGS, LOGS), min_size=1, max_size=6), st.floats(-1, 1)), min_size=1, max_size=6
)


def test_truncation_follows_the_ratio_up_to_its_limit():
    now, then = [[-1.0, -1.0, -3.0]], [[-1.0, -3.0, -1.0]]
    assert truncated_weights(now, then) == [[1.0, 2.0, pytest.approx(math.exp(-2))]]


def test_an_unchanged_policy_weighs_everything_one():
    rows = [[-1.0, -2.0], [-0.5]]
    assert truncated_weights(rows, rows) == second_moment_weights(rows, rows, [0.5, -0.5]) == [[1.0, 1.0], [1.0]]


def test_little_drift_clips_nothing():
    now, then = [[-1.0, -1.1]], [[-1.1, -1.0]]
    assert second_moment_weights(now, then, [1.0])[0] == pytest.approx([math.exp(0.1), math.exp(-0.1)])


def test_harmful_tokens_beyond_the_clip_weigh_nothing_and_harmless_ones_stay():
    now, then = [[-1.0, -5.0, -1.0, -1.0]], [[-3.0, -1.0, -1.05, -0.95]]  # log r = 2, -4, .05 and -.05
    kept = [pytest.approx(math.exp(0.05)), pytest.approx(math.exp(-0.05))]
    assert second_moment_weights(now, then, [1.0]) == [[0.0, pytest.approx(math.exp(-4)), *kept]]
    assert second_moment_weights(now, then, [-1.0]) == [[pytest.approx(math.exp(2)), 0.0, *kept]]


@pytest.mark.parametrize(("spread", "clipped"), [(0.05, 0), (0.1, 0.07), (0.2, 18), (0.4, 33)])
def test_the_clip_takes_its_known_share_of_gradients(spread: float, clipped: float):
    """Percent of tokens whose log-ratios are N(0, spread), at advantages of 1 and -1."""
    chance = np.random.default_rng(0)
    logs, pushes = chance.normal(0, spread, 20_000).tolist(), chance.choice([-1.0, 1.0], 20_000).tolist()
    weights = second_moment_weights([[log] for log in logs], [[0.0]] * len(logs), pushes)
    assert 100 * sum(weight == [0.0] for weight in weights) / len(weights) == pytest.approx(clipped, abs=0.9)


def test_nothing_is_clipped_further_than_the_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(updater, "BUDGET", 10.0)
    assert second_moment_weights([[-3.1, -2.9]], [[0.0] * 2], [-1.0])[0][0] == 0.0


@given(ROWS)
def test_weights_are_finite_and_bounded(rows: list[tuple[list[tuple[float, float]], float]]):
    now = [[a for a, _ in row] for row, _ in rows]
    then = [[b for _, b in row] for row, _ in rows]
    for weights in (truncated_weights(now, then), second_moment_weights(now, then, [a for _, a in rows])):
        assert all(0 <= weight <= LARGEST_WEIGHT * (1 + 1e-9) for row in weights for weight in row)
        assert [len(row) for row in weights] == [len(row) for row in now]
