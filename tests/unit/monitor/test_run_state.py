"""Exams of one run against each other: what the exam keeps of each problem, and what a run makes of two."""

import numpy as np
import pytest

from codezero.evals.exam import packed_shares
from codezero.monitor.run_state import paired_gain
from codezero.stats import bounded_interval


@pytest.mark.slow
@pytest.mark.parametrize(("problems", "attempts"), [(12, 4), (150, 4), (200, 8)])
def test_the_interval_of_a_paired_gain_covers_it_and_is_narrower_than_two_alone(problems: int, attempts: int):
    draw, covered, narrower = np.random.default_rng(3), 0, 0
    for _ in range(200):
        before = draw.beta(0.3, 0.7, problems)
        after = np.where(draw.random(problems) < 0.2, (1 + before) / 2, before)
        seen = [draw.binomial(attempts, chances) / attempts for chances in (before, after)]
        gain = paired_gain(*(packed_shares(list(each)) for each in seen))
        assert gain is not None
        covered += gain[0] <= (after - before).mean() <= gain[1]
        alone = [bounded_interval(each) for each in seen]
        narrower += gain[1] - gain[0] < sum(each.high - each.low for each in alone)
    assert covered >= 186 and narrower == 200


@pytest.mark.parametrize(("first", "last"), [("", ""), ("00", "0000"), ("zz", "00"), ("ff", "00"), ("0", "0")])
def test_what_is_not_the_same_problems_twice_has_no_paired_gain(first: str, last: str):
    assert paired_gain(first, last) is None


def test_a_paired_gain_passes_over_what_was_not_decided():
    assert paired_gain(packed_shares([None, 0.0]), packed_shares([1.0, 0.5])) == paired_gain("00", "7f")
    assert packed_shares([0.5] * 501) == ""
