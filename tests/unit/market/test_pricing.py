"""Records, votes, prices and the rule of confirmation, on reports whose worth is known.

Does not show what they are worth on models' reports; `codezero bench market` does.
"""

import math
from random import Random

import numpy as np
import pytest
from builders.market import peer, value_game
from hypothesis import given
from hypothesis import strategies as st

from codezero.market.pricing import (
    CAP,
    FRIENDS,
    NEWCOMER,
    POWERS,
    Price,
    Record,
    Score,
    best_power,
    ceiling,
    clip,
    confirmed,
    gain,
    price,
    record,
    robust,
    sharpen,
    skilled,
)

GAME = value_game(answers=("1", "2", "3", ""))
SURE = (9700, 100, 100, 100)
WRONG = (100, 9700, 100, 100)
OPENERS = [peer(number) for number in range(8)]


def games(gains: list[float]) -> list[Score]:
    """With openers in turn."""
    return [Score(OPENERS[at % len(OPENERS)], each, each) for at, each in enumerate(gains)]


def worth(report: tuple[int, ...], answer: int) -> float:
    return gain(report, answer)


def proven(nats: float = 20.0) -> Record:
    return Record(40.0, nats)


def test_gain_is_over_the_opening_price_and_has_a_floor() -> None:
    assert gain((2500,) * 4, 0) == gain(None, 0) == 0
    assert gain(SURE, 0) == pytest.approx(math.log(0.97 * 4))
    assert gain((10_000, 0), 1) == gain((9999, 1), 1) == -3


def test_neither_who_copies_nor_who_lies_at_the_end_gains_a_record() -> None:
    copier = record([Score(opener, 0.0, 1.3) for opener in OPENERS * 10])
    assert not copier.vote and not copier.lost
    late_liar = record([Score(opener, 1.3, -3.0) for opener in OPENERS * 10])
    assert late_liar.lost and late_liar.gain < 0


def test_a_vote_takes_twenty_games_and_some_gain() -> None:
    assert not record(games([1.0] * (NEWCOMER - 1))).vote
    assert record(games([1.0] * NEWCOMER)).vote
    assert not record(games([0.0] * NEWCOMER)).vote
    assert not record([]).vote and not record([]).lost


@pytest.mark.parametrize("seed", range(20))
def test_a_liar_and_a_coin_lose_their_vote_within_fifteen_games_and_an_honest_peer_never(seed: int) -> None:
    random = Random(seed)
    coin = [worth(WRONG, random.randrange(4)) for _ in range(150)]
    liar = [worth(WRONG, 1 if random.random() < 0.135 else 0) for _ in range(150)]
    honest = [worth(SURE, 0) if random.random() < 0.8 else worth((1000, 6000, 2000, 1000), 0) for _ in range(150)]
    assert any(record(games(liar[:count])).lost for count in range(16))
    assert any(record(games(coin[:count])).lost for count in range(40))
    assert not any(record(games(honest[:count])).lost for count in range(150))


def test_a_long_record_does_not_hide_a_turn() -> None:
    turned = [1.2] * 150 + [-3.0] * 12
    assert record(games(turned)).gain > 100 and record(games(turned)).lost
    assert not record(games(turned[:152])).lost


def test_one_opener_makes_at_most_a_fifth_of_a_record() -> None:
    friends = [Score(OPENERS[0], 3.0, 3.0)] * 200
    assert not record(friends).vote and record(friends).games == 0
    mixed = record(friends + games([-0.1] * 40))
    assert mixed.games == pytest.approx(35 / (1 - FRIENDS)) and mixed.gain < 0.2 * mixed.games * 3
    assert record(friends, reader=OPENERS[0]).games == 200


def test_what_one_friend_tells_makes_no_vote() -> None:
    """Who knows nothing else reports the opening price elsewhere; two openers have to tell."""
    one, two = (games([1.3 if at % 8 < telling else 0.0 for at in range(80)]) for telling in (1, 2))
    assert record(one).gain > 5 and not record(one).vote
    assert record(two).vote


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=30),
    st.floats(0.05, 1.0),
    st.floats(0, 50, allow_subnormal=False),
)
def test_nothing_cut_to_the_ceiling_is_more_than_its_share(sizes: list[float], share: float, beside: float) -> None:
    most = ceiling(sizes, share, beside)
    cut = [min(size, most) for size in sizes]
    if share * len(sizes) >= 1 or beside:
        assert max(cut) <= share * (beside + sum(cut)) * (1 + 1e-6)
        if max(cut) < max(sizes):  # no higher than needed
            assert most == pytest.approx(share * (beside + sum(cut)), rel=1e-6)


def test_no_peer_has_more_than_two_shares_of_the_skilled_price() -> None:
    rows = np.array([SURE] + [(2500,) * 4] * 7) / 10_000
    best = skilled(rows, [400.0] + [0.0] * 7)
    share = CAP / 8
    uniform, own = np.log(0.25), np.log(clip(rows[0], 0.003))
    wanted = np.exp(share * own + (1 - share) * uniform)
    assert best == pytest.approx(wanted / wanted.sum())


def test_with_equal_records_the_skilled_price_is_the_plain_log_pool() -> None:
    rows = clip(np.random.default_rng(0).random((6, 4)), 0.003)
    pooled = np.exp(np.log(clip(rows, 0.003)).mean(0))
    assert skilled(rows, [7.0] * 6) == pytest.approx(pooled / pooled.sum())


def test_a_minority_moves_the_robust_price_less_than_one_honest_peer_would() -> None:
    honest = [(8000, 1000, 500, 500), (7000, 1000, 1000, 1000), (9000, 400, 300, 300), SURE, (6000, 2000, 1000, 1000)]
    attacked = robust(np.array([*honest, WRONG, WRONG, WRONG]) / 10_000)
    assert attacked.argmax() == 0 and attacked[0] > 0.5
    assert attacked.sum() == pytest.approx(1)


@given(st.integers(0, 2**32))
def test_prices_do_not_depend_on_the_order_of_peers(seed: int) -> None:
    random = Random(seed)
    reports = {peer(n): random.choice([SURE, WRONG, (2500,) * 4]) for n in range(9)}
    records = {peer(n): proven(random.uniform(1, 90)) for n in range(8)}
    shuffled = dict(random.sample([*reports.items()], 9))
    first, second = price(GAME, reports, records, (2.0, 1.5)), price(GAME, shuffled, records, (2.0, 1.5))
    assert first.voters == second.voters == 8
    assert (first.skilled == second.skilled).all() and (first.robust == second.robust).all()
    assert first.skilled.sum() == pytest.approx(1)


def test_without_a_voter_the_price_is_the_opening_price() -> None:
    nobody = price(GAME, {peer(1): SURE}, {peer(1): Record(19.0, 50.0), peer(2): proven()})
    assert nobody.voters == 0 and nobody.skilled == pytest.approx([0.25] * 4)


def test_the_power_is_the_one_that_would_have_been_best() -> None:
    modest = np.array([0.4, 0.2, 0.2, 0.2])
    assert best_power([(modest, 0)] * 20) == max(POWERS)
    assert best_power([(modest, 1)] * 20) == min(POWERS)
    assert best_power([]) == 1.0
    assert sharpen(modest, 2.0)[0] == pytest.approx(0.16 / 0.28)


def confident(top: int = 0, skill: float = 0.95, vote: float = 0.95, voters: int = 5) -> Price:
    def peak(height: float) -> np.ndarray:
        return np.array([height if k == top else (1 - height) / 3 for k in range(4)])

    return Price(peak(skill), peak(vote), voters)


@pytest.mark.parametrize(
    ("found", "own", "value"),
    [
        (confident(), ["1", "1"], "1"),
        (confident(), ["1", "1", None, "2"], "1"),
        (confident(), ["1", "1", "2", "2"], "1"),
        (confident(), ["1", "1", "2", "2", "2"], None),
        (confident(), ["1", None, None], None),
        (confident(), ["1", "1", "9", "9", "9"], None),
        (confident(), [], None),
        (confident(top=1), ["1", "1"], None),
        (confident(top=3), ["", ""], None),
        (confident(skill=0.89), ["1", "1"], None),
        (confident(vote=0.89), ["1", "1"], None),
        (confident(voters=4), ["1", "1"], None),
        (Price(confident().skilled, confident(top=1).robust, 9), ["1", "1"], None),
    ],
)
def test_a_value_is_confirmed_where_both_prices_and_own_attempts_agree(
    found: Price, own: list[str | None], value: str | None
) -> None:
    assert confirmed(GAME, found, own) == value
