"""The figures against independent formulas."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero import stats


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=40))
def test_auroc_is_the_share_of_pairs_in_order(pairs: list[tuple[int, bool]]):
    right = [score for score, good in pairs if good]
    wrong = [score for score, good in pairs if not good]
    area = stats.auroc([float(s) for s, _ in pairs], [good for _, good in pairs])
    if not right or not wrong:
        assert math.isnan(area)
        return
    ordered = sum((r > w) + 0.5 * (r == w) for r in right for w in wrong)
    assert area == pytest.approx(ordered / (len(right) * len(wrong)))


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    truth = 0.5 * (1 + math.erf(1.0 / math.sqrt(2) / math.sqrt(2)))  # two normals one deviation apart
    covered = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        right = [index % 2 == 0 for index in range(100)]
        _, low, high = stats.auroc_interval([float(draw.normal(1.0 if good else 0.0)) for good in right], right)
        covered += low <= truth <= high
    assert covered >= 180


def test_the_interval_of_a_perfect_score_is_not_a_point():
    area, low, high = stats.auroc_interval([0.0] * 20 + [1.0] * 20, [False] * 20 + [True] * 20)
    assert area == 1 and high == 1
    assert 0.8 < low < 1


def test_brier_and_ece_by_hand():
    p, y = np.array([0.9, 0.8, 0.3, 0.1]), np.array([1.0, 0.0, 0.0, 0.0])
    assert stats.brier(p, y) == pytest.approx((0.01 + 0.64 + 0.09 + 0.01) / 4)
    assert stats.ece(p, y) == pytest.approx((0.1 + 0.8 + 0.3 + 0.1) / 4)
    assert stats.ece(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == 0


@pytest.mark.parametrize(
    ("right", "of", "low", "high"), [(8, 10, 0.4902, 0.9433), (45, 50, 0.7864, 0.9565), (0, 10, 0.0, 0.2775)]
)
def test_wilson_by_hand(right: int, of: int, low: float, high: float):
    assert stats.wilson(right / of, of) == pytest.approx((low, high), abs=1e-4)


@given(st.floats(0, 1), st.floats(0, 1e6))
def test_wilson_holds_its_share_and_stays_in_range(share: float, count: float):
    low, high = stats.wilson(share, count)
    assert 0 <= low <= share + 1e-9 and share - 1e-9 <= high <= 1


def test_the_interval_of_a_mean_covers_it_about_as_often_as_it_says():
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        _, low, high = stats.mean_interval(draw.random(200))
        covered += low <= 0.5 <= high
    assert 270 <= covered <= 298


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_no_share_is_without_doubt(value: float):
    interval = stats.bounded_interval([value] * 40)
    assert value in interval and 0.04 < interval.high - interval.low < 0.09


@pytest.mark.parametrize("attempts", [1, 8])
@pytest.mark.parametrize("rare", [0.04, 0.3])
def test_the_interval_of_a_share_covers_it_where_most_problems_fail(rare: float, attempts: int):
    """`rare` of the problems succeed every other time, the others never. Resampling alone covers 50 to 80 %."""
    draw, covered = np.random.default_rng(2), 0
    for seed in range(150):
        chances = np.where(draw.random(40) < rare, 0.5, 0.0)
        low, high = stats.bounded_interval(draw.binomial(attempts, chances) / attempts, seed=seed)
        covered += low <= rare / 2 <= high
    assert covered >= 135


ATTEMPTS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=8)


@given(st.lists(ATTEMPTS, max_size=6))
def test_the_within_group_auroc_is_the_share_of_pairs_of_one_group_in_order(groups: list[list[tuple[int, bool]]]):
    pairs = [
        1.0 if right > wrong else 0.5 if right == wrong else 0.0
        for group in groups
        for right, passed in group
        for wrong, failed in group
        if passed and not failed
    ]
    within = stats.within_groups(map(stats.group_order, groups))
    if not pairs:
        assert within is None
        return
    assert within is not None and within.pairs == len(pairs) and within.low <= within.area <= within.high
    assert within.area == pytest.approx(sum(pairs) / len(pairs))
    assert within.groups == sum(len({passed for _, passed in group}) == 2 for group in groups)


def test_scores_that_only_tell_easy_problems_apart_order_no_group():
    draw = np.random.default_rng(4)
    groups = [[(ease, bool(draw.random() < ease)) for _ in range(8)] for ease in draw.random(200)]
    flat = [row for group in groups for row in group]
    within = stats.within_groups(map(stats.group_order, groups))
    assert stats.auroc([score for score, _ in flat], [right for _, right in flat]) > 0.7
    assert within is not None and within.area == 0.5


def test_the_within_group_interval_covers_about_as_often_as_it_says():
    """Two of five groups are ordered without fault, the others by chance, so pairs are far from independent."""
    draw, covered = np.random.default_rng(5), 0
    for _ in range(200):
        groups = [(draw.random(8) < 0.5, draw.random() < 0.4) for _ in range(40)]
        within = stats.within_groups(
            stats.group_order([(float(right if known else draw.random()), bool(right)) for right in members])
            for members, known in groups
        )
        assert within is not None
        covered += within.low <= 0.7 <= within.high
    assert 180 <= covered <= 198
