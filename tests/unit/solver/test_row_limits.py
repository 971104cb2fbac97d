"""What of a stranger's row pushes, and how far."""

import dataclasses
import math

import pytest
from builders.models import judged
from hypothesis import given
from hypothesis import strategies as st

from codezero.solver.batch import TrainingRow
from codezero.solver.row_limits import (
    LEAST_LOGPROB,
    LEAST_MEAN_LOGPROB,
    WINDOW,
    OwnMeasure,
    least_window,
    limited_weights,
    program_weights,
)

LETTERS = [(at, at + 1) for at in range(6)]


def test_tokens_outside_the_program_have_no_weight_and_the_end_has() -> None:
    assert program_weights(((1, 3), (4, 5)), LETTERS, finished=True) == (0, 1, 1, 0, 1, 0, 1)
    assert program_weights(((1, 3),), [(0, 2), (2, 3), (2, 6)], finished=False) == (0, 1, 0)  # half in is not in
    assert program_weights((), LETTERS, finished=False) == (0,) * 6
    assert program_weights(None, LETTERS, finished=False) == (1,) * 6
    assert program_weights(((0, 6),), [(0, 0), (0, 9)], finished=False) == (0, 0)  # no place, and beyond the text


def test_the_least_likely_stretch_is_seen_in_a_long_easy_row() -> None:
    easy = [-0.1] * 200
    assert least_window([*easy, *[-8.0] * WINDOW, *easy]) == pytest.approx(-8.0)
    assert least_window([-1.0, -3.0]) == pytest.approx(-2.0)


@given(st.lists(st.floats(-50, 0), min_size=1, max_size=60))
def test_no_stretch_is_less_likely(logprobs: list[float]) -> None:
    stretches = [logprobs[at : at + WINDOW] for at in range(max(1, len(logprobs) - WINDOW + 1))]
    means = [math.fsum(stretch) / len(stretch) for stretch in stretches]
    assert least_window(logprobs) == pytest.approx(min(means), abs=1e-9)


def test_a_row_with_a_stretch_that_own_attempts_do_not_have_does_not_push() -> None:
    slogan, own = [-0.1] * 50 + [-3.0] * WINDOW, OwnMeasure(-1.0, 100)
    assert limited_weights((1.0,) * len(slogan), slogan, own) == ()
    assert limited_weights((1.0,) * 50 + (0.0,) * WINDOW, slogan, own)  # where it is no program it does not count
    assert limited_weights((1.0,) * 2, (LEAST_MEAN_LOGPROB - 1,) * 2, OwnMeasure()) == ()
    assert limited_weights((0.0,) * 2, (-0.1,) * 2, OwnMeasure()) == ()


def test_a_token_that_is_next_to_impossible_is_not_pushed_and_its_row_is() -> None:
    logprobs = [-0.1] * 30 + [LEAST_LOGPROB - 0.1]
    assert limited_weights((1.0,) * 31, logprobs, OwnMeasure()) == (1.0,) * 30 + (0.0,)


def test_a_longer_row_than_own_ones_pushes_no_more_than_those() -> None:
    weights = limited_weights((1.0,) * 40, (-0.1,) * 40, OwnMeasure(longest=10))
    assert math.fsum(weights) == pytest.approx(10)


def test_the_own_measure_is_of_the_own_attempts() -> None:
    def group(logprobs: list[list[float]]):
        scored = judged(0, [1.0] * len(logprobs), peer_id="me")
        attempts = tuple(
            dataclasses.replace(each, token_ids=(1,) * len(nats), logprobs=tuple(nats))
            for each, nats in zip(scored.group.completions, logprobs, strict=True)
        )
        return dataclasses.replace(scored, group=dataclasses.replace(scored.group, completions=attempts))

    rows = [[-0.1] * length for length in range(1, 21)]
    measure = OwnMeasure.of([group(rows)])
    assert measure.least_window == pytest.approx(-0.1) and measure.longest == 19
    assert OwnMeasure.of([group([[-9.0] * 5] * 20)]).least_window == LEAST_MEAN_LOGPROB
    assert OwnMeasure.of([]) == OwnMeasure()


def test_a_later_pass_keeps_what_has_no_weight() -> None:
    row = TrainingRow((1,), (2, 3), (-1.0, -1.0), 1.0, (0.0, 0.5))
    assert row.weighed((2.0, 2.0)) == (0.0, 1.0)
    assert dataclasses.replace(row, weights=()).weighed((2.0, 2.0)) == (2.0, 2.0)
