"""Commit and reveal: the same bytes whatever the order, nothing counts elsewhere or twice, and hiding is seen."""

from random import Random

import msgspec
import pytest
from builders.market import SALT, peer, probabilities, program_game, reports_on, value_game
from hypothesis import given
from hypothesis import strategies as st

from codezero.market.games import Game, StepReport
from codezero.market.payout import Place, Position, Sealed, positions, seal, seal_root

YES, NO, HALF = (9000, 1000), (1000, 9000), (5000, 5000)
GAME = program_game(round=10)


def sealed(*reports: StepReport) -> Sealed:
    return SALT, reports


def found(shown: dict[Place, Sealed], hidden: tuple[Place, ...] = (), game: Game = GAME) -> tuple[Position, ...]:
    """Positions where all of `shown` was anchored, and `hidden` never opened."""
    roots = {place: seal_root(place[0], *content) for place, content in shown.items()} | dict.fromkeys(
        hidden, b"r" * 32
    )
    return positions(game, {peer(number): 1000 for number in range(40)}, roots, shown)


def at(step: int, q: tuple[int, ...], game: Game = GAME) -> StepReport:
    return StepReport(game.id, step, q)


@given(st.integers(0, 2**32))
def test_a_seal_comes_back_and_does_not_depend_on_order(seed: int) -> None:
    random = Random(seed)
    reports = [at(random.randrange(4), probabilities(random, 3), value_game(peer(n))) for n in range(5)]
    shuffled = random.sample(reports, len(reports))
    assert seal_root("a", SALT, reports) == seal_root("a", SALT, shuffled)
    salt, back = msgspec.msgpack.decode(seal(SALT, reports), type=Sealed)
    assert salt == SALT and seal(salt, back) == seal(SALT, reports)
    others = [("a", b"t" * 32, reports), ("a", SALT, reports[1:]), ("b", SALT, reports)]
    assert seal_root("a", SALT, reports) not in [seal_root(*other) for other in others]


def test_reports_stand_until_they_are_replaced() -> None:
    (position,) = found({(peer(1), 11): sealed(at(0, YES)), (peer(1), 13): sealed(at(2, NO))})
    assert position == Position(peer(1), 1000, (YES, None, NO, None))
    assert [position.standing(step) for step in range(4)] == [YES, YES, NO, NO]


@pytest.mark.parametrize(
    "late",
    [{(peer(1), 12): sealed(at(0, YES))}, {(peer(1), 11): sealed(at(1, YES))}, {(peer(1), 10): sealed(at(0, YES))}],
)
def test_a_report_of_another_round_does_not_count(late: dict[Place, Sealed]) -> None:
    assert found(late) == ()


def test_a_report_cannot_be_replayed_in_another_game() -> None:
    assert found({(peer(1), 11): sealed(at(0, YES))}, game=program_game(peer(41))) == ()


def test_what_was_not_anchored_does_not_count() -> None:
    place = (peer(1), 11)
    assert positions(GAME, {}, {}, {place: sealed(at(0, YES))}) == ()


def test_two_reports_on_one_step_are_both_void() -> None:
    first = sealed(at(0, HALF))
    (position,) = found({(peer(1), 11): first, (peer(1), 12): sealed(at(1, YES), at(1, NO))})
    assert position.reports == (HALF, None, None, None) and not position.hidden


def test_a_report_of_another_length_does_not_count() -> None:
    assert found({(peer(1), 11): sealed(StepReport(GAME.id, 0, (5000, 2500, 2500)))}) == ()


def test_hidden_steps_are_seen_in_games_that_the_peer_is_in() -> None:
    (position,) = found({(peer(1), 12): sealed(at(1, YES))}, hidden=((peer(1), 11), (peer(2), 11), (peer(1), 15)))
    assert position.hidden == {0}


def test_opener_and_proposer_have_no_stake() -> None:
    game = value_game()
    q = (9000, 500, 500)
    shown = {(name, 11): (SALT, reports_on(game, q)) for name in (game.opener, peer(41), peer(1))}
    assert {each.peer: each.stake for each in found(shown, game=game)} == {game.opener: 0, peer(41): 0, peer(1): 1000}
