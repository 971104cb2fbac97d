"""Rounds by the clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.chain.rounds import ClockCoordinator, NoOutbox
from codezero.errors import ConfigError
from codezero.protocols import Coordinator, Outbox


def test_a_round_lasts_round_seconds() -> None:
    clock = iter([0.0, 59.9, 60.0, 3600.5])
    coordinator: Coordinator = ClockCoordinator(60.0, now=lambda: next(clock))
    assert [coordinator.current_round() for _ in range(4)] == [0, 0, 1, 60]


@given(st.floats(0, 4e9), st.floats(0.1, 1e5))
def test_nodes_agree_without_talking_and_rounds_never_go_back(now: float, seconds: float) -> None:
    one, other = (ClockCoordinator(seconds, now=lambda: now) for _ in range(2))
    assert one.current_round() == other.current_round()
    assert ClockCoordinator(seconds, now=lambda: now + 1).current_round() >= one.current_round()


def test_the_default_clock_is_the_time_of_day() -> None:
    assert ClockCoordinator(1.0).current_round() > 1_700_000_000


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_round_that_cannot_be_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"chain\.round_seconds"):
        ClockCoordinator(seconds)


def test_no_outbox_keeps_only_the_counts() -> None:
    outbox = NoOutbox()
    sink: Outbox = outbox
    sink.add(1, 0.5, None)
    sink.add(2, 0.25, "peer")
    assert (outbox.entries, outbox.points) == (2, 0.75)
