"""Advantages and losses, against numbers worked out by hand."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from builders.models import judged
from hypothesis import given
from hypothesis import strategies as st

from codezero.solver.batch import LEAST_SPREAD, advantages, merged_advantages, outcomes
from codezero.types import Status

REWARDS = st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=1, max_size=16)


@given(REWARDS, st.sampled_from(["none", "group", "mean"]))
def test_advantages_are_centred_over_the_trainable_and_zero_elsewhere(pairs: list[tuple[float, bool]], scale: str):
    rewards, trainable = torch.tensor([r for r, _ in pairs]), torch.tensor([t for _, t in pairs])
    result = advantages(rewards.where(trainable, math.nan), scale)
    assert result.shape == rewards.shape and result.isfinite().all()
    assert abs(float(result.sum())) < 1e-3
    assert (result[~trainable] == 0).all()
    known = rewards[trainable]
    if not len(known) or known.max() - known.min() <= LEAST_SPREAD:
        assert (result == 0).all()


@given(REWARDS)
def test_a_better_reward_never_has_a_lower_advantage(pairs: list[tuple[float, bool]]):
    rewards = torch.tensor([r for r, _ in pairs])
    result = advantages(rewards)
    order = rewards.argsort()
    assert (result[order].diff() >= 0).all()


def test_what_cannot_be_trained_on_is_left_out_of_the_mean():
    group = judged(
        0, [1.0, 0.0, 0.0, 0.0], status=[Status.JUDGED, Status.JUDGED, Status.QUARANTINED, Status.UNAVAILABLE]
    )
    assert merged_advantages([group], "none") == {id(group): [0.5, -0.5, 0.0, 0.0]}


def test_a_certain_failure_is_trained_on():
    group = judged(0, [1.0, 0.0], status=[Status.JUDGED, Status.CERTAIN_FAILURE])
    assert merged_advantages([group], "none") == {id(group): [0.5, -0.5]}


def test_group_scale_is_one_standard_deviation():
    result = advantages(torch.tensor([0.0, 0.0, 1.0, 1.0]), "group")
    assert float(result.std()) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("right", range(1, 8))
def test_mean_scale_pushes_a_success_the_more_the_rarer_it_is(right: int):
    result = advantages(torch.tensor([1.0] * right + [0.0] * (8 - right)), "mean")
    assert result[:right].tolist() == pytest.approx([8 / right - 1] * right)
    assert result[right:].tolist() == pytest.approx([-1.0] * (8 - right))


@given(st.floats(0.02, 0.98), st.integers(2, 6))
def test_mean_scale_follows_the_logarithm_of_success_up_to_the_groups_size(chance: float, size: int):
    """Over all groups of `size` attempts the expected gradient, by the logit of success, is that of the sum of
    pass@k / k for k = 1 .. size - 1: the series of log(success), cut off."""
    expected = 0.0
    for outcome in itertools.product([0.0, 1.0], repeat=size):
        weights = advantages(torch.tensor(outcome), "mean").tolist()
        likelihood = math.prod(chance if each else 1 - chance for each in outcome)
        pushed = sum(weight * (each - chance) for weight, each in zip(weights, outcome, strict=True)) / size
        expected += likelihood * pushed
    series = sum(chance * (1 - chance) * (1 - chance) ** (k - 1) for k in range(1, size))
    assert expected == pytest.approx(series, abs=1e-5)


def test_what_became_of_own_attempts_and_why():
    status = [Status.JUDGED, Status.CERTAIN_FAILURE, Status.QUARANTINED, Status.UNAVAILABLE, Status.UNAVAILABLE]
    flat, spread = judged(1, [0.6, 0.6, 0.0, 0.0, 0.0], status=status), judged(2, [0.1, 0.9, 0.5])
    why = [(), (), (), ("3 words are new",), ("4 words are new",)]
    verdicts = tuple(replace(each, reasons=reasons) for each, reasons in zip(flat.verdicts, why, strict=True))
    cut = tuple(replace(each, finished=number > 0) for number, each in enumerate(flat.group.completions))
    result = outcomes([replace(flat, group=replace(flat.group, completions=cut), verdicts=verdicts), spread], 3)
    shares = {name.removeprefix("attempts/"): value for name, value in result.items() if isinstance(value, float)}
    assert shares == {
        "learned_share": 3 / 8, "cut_off_share": 1 / 8, "no_verdict_share": 2 / 8, "quarantined_share": 1 / 8,
        "failing_share": 1 / 8, "wrong_share": 0.0, "right_share": 0.0, "train/zero_spread_share": 0.5,
    }  # fmt: skip
    assert (result["attempts/count"], result["attempts/no_verdict_reason"]) == (8, "3 words are new")
    nothing = outcomes([], 0)
    assert nothing.pop("attempts/count") == 0 and not any(value is not None for value in nothing.values())
