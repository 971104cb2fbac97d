"""How games end: who is in the jury, what it decides, what is void, and what counts in records."""

from collections import Counter
from random import Random

import msgspec
import pytest
from builders.market import SALT, opening_of, peer, program_game, random_positions, reports_on, value_game
from hypothesis import given
from hypothesis import strategies as st

from codezero.market.games import NONE, Game, Opening
from codezero.market.jury import (
    FEW_BALLOTS,
    PROVEN,
    SEATS,
    UNDECIDED,
    UNPROVEN,
    VOID,
    Ballot,
    Decision,
    answer_of,
    as_bits,
    decide,
    places,
    seats,
    settle,
)
from codezero.market.payout import pay, positions, seal_root

ACCOUNTS = {peer(number): f"0x{number}" for number in range(20)}
ROOT = b"r" * 32


def ballots(game: Game, *answers: int | None, first: int = 0) -> list[Ballot]:
    return [Ballot(game.id, peer(first + number), answer) for number, answer in enumerate(answers)]


SEATED = tuple(peer(number) for number in range(SEATS))


def test_a_jury_is_the_same_for_everybody_and_another_for_each_game_and_root() -> None:
    game = program_game()
    drawn = seats(game, ROOT, ACCOUNTS)
    assert len(set(drawn)) == SEATS and drawn == seats(game, ROOT, dict(reversed(ACCOUNTS.items())))
    assert drawn != seats(game, b"s" * 32, ACCOUNTS) and drawn != seats(program_game(round=11), ROOT, ACCOUNTS)


def test_opener_and_proposer_are_in_no_jury_with_none_of_their_peers() -> None:
    game = value_game(opener=peer(0))
    accounts = {peer(0): "own", peer(1): "own", peer(41): "proposer's", **{peer(n): f"0x{n}" for n in range(2, 6)}}
    assert set(seats(game, ROOT, accounts)) == {peer(n) for n in range(2, 6)}


def test_many_ids_of_one_account_have_one_seat_and_no_better_chance() -> None:
    many = {peer(number): "sybil" if number < 10 else f"0x{number}" for number in range(20)}
    drawn = [seats(program_game(round=round), ROOT, many) for round in range(400)]
    taken = Counter(many[name] for jury in drawn for name in jury)
    assert all(len({many[name] for name in jury}) == SEATS for jury in drawn)
    assert 0.5 < taken["sybil"] / 400 < 0.77  # 7 of 11 accounts


@pytest.mark.parametrize(
    ("given", "winner"),
    [
        ((0, 0, 0, 0, 0, 1, 1), 0), ((0, 0, 0, 0, 1, 1, 1), None), ((0, 0, 1), 0), ((0, 0), None), ((), None),
        ((0, 0, None), 0), ((None, None, None), None), ((0, 0, 0, 1, 1), None), ((0, 0, 0, 0, 1, 1), 0),
    ],
)  # fmt: skip
def test_two_thirds_of_three_ballots_or_more_decide(given: tuple[int | None, ...], winner: int | None) -> None:
    assert decide(program_game(), SEATED, ballots(program_game(), *given), {})[::2] == (winner, len(given))


def test_only_ballots_of_this_game_and_jury_count_and_of_each_juror_the_first() -> None:
    game = program_game()
    strangers = ballots(game, 1, 1, 1, 1, first=20) + ballots(program_game(round=11), 1, 1, 1) + ballots(game, 7, 7)
    assert decide(game, SEATED, [*strangers, *ballots(game, 0, 0, 0)], {})[::2] == (0, 3)
    assert decide(game, SEATED, [*ballots(game, 0, 0, 1), *ballots(game, 1, 1)], {})[::2] == (0, 3)
    assert decide(game, SEATED, [*ballots(game, 0, 0, 0), *ballots(game, 0)], {})[::2] == (0, 3)


def test_what_more_than_half_of_the_jurors_saw_opened_counts_whatever_the_others_say() -> None:
    game = program_game()
    anchored = {number: {peer(n): bytes([number, n]) * 16 for n in range(3)} for number in game.reporting}
    bits = places(game, anchored)
    here, there = list(bits)[:7], list(bits)[5:9]
    votes = [Ballot(game.id, peer(n), 0, as_bits(here if n < 4 else there, bits)) for n in range(7)]
    assert decide(game, SEATED, votes, bits) == (0, False, 7, frozenset(here))
    assert decide(game, SEATED, votes[1:], bits).shown == {*here} & {*there}  # three against three
    assert decide(game, SEATED, [], bits).shown == frozenset()


def test_of_many_roots_of_a_round_the_same_ones_count_for_everybody() -> None:
    game = program_game()
    anchored = {
        n: {peer(k): bytes([n, k]) * 16 for k in range(57)} | {f"{k}": bytes([k]) * 32 for k in range(57)}
        for n in game.reporting
    }
    bits = places(game, {number: dict(reversed(of.items())) for number, of in anchored.items()})
    assert bits == places(game, anchored) and sorted(bits.values()) == list(range(256))
    assert as_bits(bits, bits) == b"\xff" * 32


@pytest.mark.parametrize(
    ("reference", "siblings", "executed", "values", "answer"),
    [
        ("def f(n): return n", 0, 1, [], PROVEN + 1), ("def f(n): return n", 0, None, ["2"] * 5, None),
        ("", 1, 0, ["2", "2", "1"], 0), ("", 1, None, ["9", "9", "1"], 2), ("", 1, None, ["1", "2"], VOID),
        ("", 1, None, [], None), ("", 0, None, ["2", "2"], VOID), ("", 5, None, ["2", "2"], VOID),
        (None, 1, 0, ["2", "2"], VOID),
    ],
)  # fmt: skip
def test_a_juror_answers_only_what_was_opened_and_leaves_out_openers_without_enough_sentinels(
    reference: str | None, siblings: int, executed: int | None, values: list[str], answer: int | None
) -> None:
    game = value_game(answers=("2", "1", NONE), reference=reference or "")
    openings = {} if reference is None else opening_of(game, reference)
    for number in range(max(1, siblings) if siblings else 0):
        solution = "def f(n): return n" if number == 0 else ""
        openings[bytes([number]) * 32] = Opening(bytes([number]) * 32, SALT, solution)
    assert answer_of(game, openings, executed, values) == answer
    assert answer_of(program_game(), {}, executed, values) == executed


def decided(answer: int | None, *, proven: bool = False, ballots: int = 3) -> Decision:
    return Decision(answer, proven, ballots, frozenset())


def test_a_settled_game_pays_by_ballots_and_records_by_execution() -> None:
    game, held = program_game(), random_positions(Random(1), 2, 8)
    settled = settle(game, held, decided(0), 1)
    assert not settled.void and settled.contested
    assert settled.answer == 0 and settled.wins == pay(held, 0)
    truth = settle(game, held, decided(1), 1)
    assert not truth.void and settled.scores == truth.scores and not truth.contested
    assert settle(game, held, decided(0), None).scores == {}


def test_what_is_void_pays_nothing_and_still_counts_in_records() -> None:
    game, held = program_game(), random_positions(Random(1), 2, 8)
    for ballots, reason in ((4, UNDECIDED), (1, FEW_BALLOTS)):
        void = settle(game, held, decided(None, ballots=ballots), 0)
        assert void.answer is None and void.void == reason and void.wins == {} and len(void.scores) == 8


def test_a_sentinel_pays_whole_and_counts_and_another_value_game_neither() -> None:
    game, held = value_game(), random_positions(Random(2), 3, 8)
    settled = settle(game, held, decided(1, proven=True), 1)
    assert not settled.void and settled.wins == pay(held, 1) and len(settled.scores) == 8
    settled = settle(game, held, decided(1), 0)
    assert not settled.void and settled.wins == pay(held, 1, UNPROVEN)
    assert settled.scores == {} and not settled.contested


def test_who_could_know_the_answer_has_no_gain_in_records() -> None:
    game, held = value_game(opener=peer(0)), random_positions(Random(3), 3, 6)
    settled = settle(game, held, decided(1, proven=True), 1)
    assert set(settled.scores) == {peer(number) for number in range(1, 6)}


@given(st.integers(0, 2**32))
def test_a_settlement_does_not_depend_on_any_order(seed: int) -> None:
    random = Random(seed)
    game, held = value_game(), random_positions(random, 3, 9)
    votes = ballots(game, *(random.choice([0, 9, 9, 9, None]) for _ in range(SEATS)))
    seen = [
        settle(
            game,
            random.sample(held, 9),
            decide(game, tuple(random.sample(SEATED, SEATS)), random.sample(votes, SEATS), {}),
            1,
        )
        for _ in range(3)
    ]
    assert seen[0] == seen[1] == seen[2]
    assert msgspec.json.decode(msgspec.json.encode(seen[0]), type=type(seen[0])) == seen[0]


def test_from_seals_to_points_in_one_line_of_functions() -> None:
    """Six peers seal, one hides a step, one copies late: the same for everybody who has the same messages."""
    game = value_game()
    names = [peer(number) for number in range(6)]
    plans = {name: reports_on(game, (1000, 8000, 1000), None, None, (500, 9000, 500)) for name in names[:5]}
    plans[names[5]] = reports_on(game, None, (1000, 8000, 1000))
    sealed = {(name, 11 + each.step): (SALT, (each,)) for name, plan in plans.items() for each in plan}
    roots = {place: seal_root(place[0], *content) for place, content in sealed.items()}
    del sealed[names[0], 14]
    stakes = dict.fromkeys(names, 10_000)
    jury = seats(game, ROOT, {name: name for name in [*names, game.opener]})
    bits = places(game, {n: {name: root for (name, at), root in roots.items() if at == n} for n in game.reporting})
    decision = decide(game, jury, [Ballot(game.id, name, PROVEN + 1, as_bits(sealed, bits)) for name in jury], bits)
    assert decision.shown == sealed.keys()
    results = [
        settle(game, positions(game, stakes, dict(shuffled), sealed), decision, 1)
        for shuffled in ([*roots.items()], [*reversed(roots.items())])
    ]
    assert results[0] == results[1] and not (settled := results[0]).void
    assert settled.answer == 1 and set(jury) == set(names)
    assert settled.wins[names[0]] < settled.wins[names[1]] == settled.wins[names[4]] > 0
    assert settled.wins[names[5]] == 0 == settled.scores[names[5]].first < settled.scores[names[1]].first
