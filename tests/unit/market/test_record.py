"""Records, votes and prices, on reports whose worth is known.

Does not show what they are worth on models' reports; `codezero bench market` does."""

import math
from random import Random

import pytest
from builders.market import a_game, peer
from hypothesis import given
from hypothesis import strategies as st

from codezero.market import games as module
from codezero.market.games import (
    NEWCOMER,
    Record,
    Reports,
    Score,
    ceiling,
    gain,
    odds,
    price,
    price_row,
    record,
    shares,
)

OPENERS = [peer(number) for number in range(8)]


def games(gains: list[float]) -> list[Score]:
    """With openers in turn."""
    return [Score(OPENERS[at % len(OPENERS)], each, each) for at, each in enumerate(gains)]


def proven(nats: float = 20.0) -> Record:
    return Record(40.0, nats)


def test_gain_is_over_an_even_guess_and_has_a_floor() -> None:
    assert gain(5000, True) == gain(5000, False) == gain(None, True) == 0
    assert gain(9700, True) == pytest.approx(math.log(0.97 * 2))
    assert gain(10_000, False) == gain(9999, False) == gain(0, True) == -3


def test_neither_who_comes_late_nor_who_lies_at_the_end_gains_a_record() -> None:
    copier = record([Score(opener, 0.0, 0.6) for opener in OPENERS * 10])
    assert not copier.vote and not copier.lost
    late_liar = record([Score(opener, 0.6, -3.0) for opener in OPENERS * 10])
    assert late_liar.lost and late_liar.gain < 0


def test_a_vote_takes_twenty_games_and_some_gain() -> None:
    assert not record(games([1.0] * (NEWCOMER - 1))).vote
    assert record(games([1.0] * NEWCOMER)).vote
    assert not record(games([0.0] * NEWCOMER)).vote
    assert not record([]).vote and not record([]).lost


@pytest.mark.parametrize("seed", range(20))
def test_a_liar_and_a_coin_lose_their_vote_and_an_honest_peer_never(seed: int) -> None:
    random = Random(seed)
    coin = [gain(9700, random.random() < 0.5) for _ in range(150)]
    liar = [gain(9700, random.random() < 0.135) for _ in range(150)]
    honest = [gain(9000, True) if random.random() < 0.8 else gain(7000, False) for _ in range(150)]
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
    assert mixed.games == pytest.approx(35 / (1 - module.FRIENDS)) and mixed.gain < 0.2 * mixed.games * 3
    assert record(friends, reader=OPENERS[0]).games == 200


def test_what_one_friend_tells_makes_no_vote() -> None:
    """Who knows nothing else reports the opening price elsewhere; two openers have to tell."""
    single, pair = (games([1.3 if at % 8 < telling else 0.0 for at in range(80)]) for telling in (1, 2))
    assert record(single).gain > 5 and not record(single).vote
    assert record(pair).vote


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


def test_no_peer_has_more_than_two_shares_of_the_price() -> None:
    assert max(shares([400.0] + [0.0] * 7)) == pytest.approx(module.CAP / 8)
    assert shares([7.0] * 4) == [0.25] * 4


def test_with_equal_records_the_price_is_the_plain_log_pool() -> None:
    reports = {peer(number): 1000 * (number + 1) for number in range(6)}
    pooled, voters = price(reports, dict.fromkeys(reports, proven()))
    assert voters == 6 and odds(pooled) == pytest.approx(sum(odds(q / 10_000) for q in reports.values()) / 6)


@given(st.integers(0, 2**32))
def test_prices_do_not_depend_on_the_order_of_peers(seed: int) -> None:
    random = Random(seed)
    reports = {peer(number): random.choice([9700, 100, 5000]) for number in range(9)}
    records = {peer(number): proven(random.uniform(1, 90)) for number in range(8)}
    assert price(reports, records) == price(dict(random.sample([*reports.items()], 9)), records)
    assert price(reports, records)[1] == 8


def test_without_a_voter_the_price_is_even_and_one_sure_error_outweighs_not_everything() -> None:
    assert price({peer(1): 9700}, {peer(1): Record(19.0, 50.0), peer(2): proven()}) == (0.5, 0)
    reports = dict.fromkeys((peer(number) for number in range(5)), 9500) | {peer(5): 0}
    assert price(reports, dict.fromkeys(reports, proven()))[0] > 0.5
    assert module.probability(odds(0.3)) == pytest.approx(0.3)


def test_a_price_has_a_row_for_each_step_and_neither_opener_nor_proposer_is_in_it() -> None:
    reports: dict[str, Reports] = {peer(1): [9000, None, 2000, None], peer(40): [0] * 4, peer(41): [0] * 4}
    row = price_row(a_game(proposer=peer(41)), reports, dict.fromkeys(reports, proven()), 4)
    assert row.steps == pytest.approx([0.9, 0.9, 0.2, 0.2]) and row.voters == 1
