"""What a game pays, against the formula written out in fractions; and what players can make of it.

Does not show that agents with beliefs of models keep to the truth; `codezero bench market` plays some.
"""

from dataclasses import replace
from fractions import Fraction
from random import Random

from builders.market import peer, probabilities, random_positions
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import step_scoring

from codezero.market.payout import FEWEST, STEPS, Position, opening, pay

SEEDS = st.integers(0, 2**32)
BIG = 10**9
"""A stake at which one floored milli-point is nothing."""


def play(seed: int, *, least: int = FEWEST, most: int = 12) -> tuple[Random, list[Position], int, int]:
    """The source of chance, positions, the true answer and how many there are."""
    random = Random(seed)
    answers = random.randint(2, 8)
    return random, random_positions(random, answers, random.randint(least, most)), random.randrange(answers), answers


def expected(own: Position, others: list[Position], belief: tuple[int, ...]) -> Fraction:
    """What it wins if its belief is right, in parts of the stake; the error is below 1e-8."""
    return sum(
        (Fraction(p, 10_000 * own.stake) * pay([own, *others], y)[own.peer] for y, p in enumerate(belief)), Fraction(0)
    )


@settings(max_examples=300)
@given(SEEDS)
def test_it_pays_what_the_formula_says(seed: int) -> None:
    _, positions, answer, answers = play(seed)
    stakes = {each.peer: each.stake for each in positions}
    reports = {each.peer: each.reports for each in positions}
    assert pay(positions, answer) == step_scoring.wins(stakes, reports, answer, answers)


def test_it_pays_what_it_paid() -> None:
    """A game whose wins are in the repository: no release may change what was settled before."""
    positions = random_positions(Random(7), 3, 6, stake=100_000)
    assert [pay(positions, answer) for answer in range(3)] == GOLDEN


@given(SEEDS)
def test_nobody_loses_more_than_fifteen_sixteenths(seed: int) -> None:
    random, positions, answer, _ = play(seed)
    positions = [
        replace(each, hidden=frozenset(random.sample(range(STEPS), random.randint(0, 2)))) for each in positions
    ]
    wins = pay(positions, answer)
    assert all(-15 * each.stake - 16 <= 16 * wins[each.peer] <= 15 * each.stake for each in positions)


@given(SEEDS)
def test_the_order_of_peers_does_not_matter(seed: int) -> None:
    random, positions, answer, _ = play(seed)
    assert pay(random.sample(positions, len(positions)), answer) == pay(positions, answer)


@given(SEEDS)
def test_who_repeats_the_price_wins_nothing(seed: int) -> None:
    random, positions, answer, answers = play(seed)
    told = probabilities(random, answers)
    others = [replace(each, reports=(told, *each.reports[1:])) for each in positions]
    others = [replace(each, reports=(told, None, None, None)) for each in others]
    copier = Position(peer(30), 5000, (None, told, told, told))
    assert pay([copier, *others], answer)[copier.peer] == 0


@settings(max_examples=30)
@given(SEEDS)
def test_the_truth_is_best_at_every_step(seed: int) -> None:
    random = Random(seed)
    answers = random.randint(2, 4)
    belief = probabilities(random, answers)
    others = [replace(each, stake=random.randint(1, 5) * BIG) for each in random_positions(random, answers, 5)]
    honest = Position(peer(30), BIG, (belief,) * STEPS)
    truth = expected(honest, others, belief)
    for step in range(STEPS):
        bluff = probabilities(random, answers, random.choice([1, 5, 30]))
        reports = tuple(bluff if at == step else belief for at in range(STEPS))
        assert expected(replace(honest, reports=reports), others, belief) <= truth + Fraction(1, 10**7)


@settings(max_examples=30)
@given(SEEDS)
def test_early_is_better_than_late_where_nothing_new_is_learned(seed: int) -> None:
    random = Random(seed)
    belief = probabilities(random, 3, 5)
    others = [Position(peer(number), BIG, (opening(3),) * STEPS) for number in range(5)]
    worth = [
        expected(Position(peer(30), BIG, (None,) * late + (belief,) * (STEPS - late)), others, belief)
        for late in range(STEPS)
    ]
    assert worth == sorted(worth, reverse=True)


@given(SEEDS)
def test_hiding_a_step_costs_a_quarter_of_it_and_no_other_peer_anything(seed: int) -> None:
    _, positions, answer, _ = play(seed)
    shown, *rest = positions
    silent = replace(shown, reports=(shown.standing(), None, None, None))
    hidden = replace(silent, hidden=frozenset({2}))
    before, after = pay([silent, *rest], answer), pay([hidden, *rest], answer)
    unscored = replace(silent, hidden=frozenset(range(STEPS)))
    assert {name: win for name, win in after.items() if name != shown.peer} == {
        name: win for name, win in before.items() if name != shown.peer
    }
    assert pay([unscored, *rest], answer)[shown.peer] == -15 * shown.stake // 64


def test_few_peers_and_peers_without_a_stake_are_paid_nothing() -> None:
    positions = random_positions(Random(1), 3, FEWEST)
    assert any(pay(positions, 0).values())
    assert not any(pay(positions[1:], 0).values())
    assert not any(pay([replace(positions[0], stake=0), *positions[1:]], 0).values())
    assert pay([*positions, Position(peer(30), 0, ((10_000, 0, 0),) * STEPS)], 0) == pay(positions, 0)


@given(SEEDS)
def test_a_quarter_of_the_points_is_a_quarter_of_each_win(seed: int) -> None:
    _, positions, answer, _ = play(seed)
    whole, part = pay(positions, answer), pay(positions, answer, Fraction(1, 4))
    assert all(0 <= Fraction(whole[name] + 1, 4) - part[name] <= Fraction(5, 4) for name in whole)


def test_the_opening_price_is_whole() -> None:
    assert all(sum(opening(answers)) == 10_000 for answers in range(2, 9))


GOLDEN = [
    dict(zip(map(peer, range(6)), wins, strict=True))
    for wins in (
        [-29033, -14839, -2259, 1301, 2985, 1618],
        [-22140, 7209, -2960, 1334, -5337, -2647],
        [10753, -8100, 136, -3299, 509, -2411],
    )
]
