"""Games, posts and pay: what decodes is well-formed, what is changed has another id, and honesty pays best."""

from random import Random
from typing import Any

import msgspec
import pytest
from builders.market import a_game, peer
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import MarketError
from codezero.market import games
from codezero.market.games import ONE, STEPS, Evidence, Game, GameReport, MarketPost, Reports, parse_post, standing

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
PEER = peer(40)


def test_a_game_comes_back_from_its_bytes_with_the_same_id_and_another_has_another() -> None:
    assert decode(encode(a_game()), type=Game) == a_game() and decode(encode(a_game()), type=Game).id == a_game().id
    for change in ({"swarm": "other"}, {"opener": peer(3)}, {"round": 11}, {"question": "f(n)"}, {"code": "x"}):
        assert a_game(**change).id != a_game().id


@pytest.mark.parametrize(
    "change",
    [
        {"opener": "nobody"}, {"round": -1}, {"round": 2**53}, {"question": "x" * 70_000}, {"tests": []},
        {"tests": ["t"] * 65}, {"code": ""}, {"extra": 1}, {"swarm": ""}, {"proposer": "nobody"},
    ],
)  # fmt: skip
def test_a_malformed_game_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(msgspec.to_builtins(a_game()) | change), type=Game)


def refused(post: object, peer: str = PEER, round: int = 10) -> None:
    with pytest.raises(MarketError):
        parse_post(encode(post), peer=peer, round=round, swarm="swarm")


def test_a_post_that_breaks_a_rule_is_refused_whole() -> None:
    report = GameReport(bytes(32), 1)
    post = MarketPost((a_game(),), (report,), (Evidence(bytes(32), (True, None)),))
    assert parse_post(encode(post), peer=PEER, round=10, swarm="swarm") == post
    refused(post, peer=peer(3))
    refused(post, round=9)
    refused(post, round=12)
    refused(MarketPost((a_game(swarm="other"),)))
    refused(MarketPost((a_game(tests=("assert f(x",)),)))
    refused(MarketPost((a_game(code="x" * games.MOST_TEXT),)))
    refused(MarketPost((a_game(),) * (2 * games.MOST_GAMES + 1)))
    refused(MarketPost(reports=(report, GameReport(bytes(32), 2))))
    ids = (bytes([n % 256, n // 256]) * 16 for n in range(games.MOST_REPORTS + 1))
    refused(MarketPost(reports=tuple(GameReport(game, 1) for game in ids)))
    whole: dict[str, Any] = msgspec.to_builtins(post, builtin_types=(bytes,))
    for q in (-1, ONE + 1, 0.5, None, True, "1"):
        refused(whole | {"reports": [{"game": bytes(32), "q": q}]})
    refused(whole | {"reports": [{"game": b"short", "q": 1}]})
    refused(whole | {"evidence": [{"game": bytes(32), "outcomes": [1]}]})
    refused(whole | {"evidence": [{"game": bytes(32), "outcomes": [True] * 65}]})
    refused(whole | {"seals": []})


@given(st.binary(max_size=200))
def test_any_bytes_are_a_post_or_refused(payload: bytes) -> None:
    try:
        post = parse_post(payload, peer=PEER, round=10, swarm="swarm")
    except MarketError:
        return
    assert post == MarketPost()


def test_every_round_means_one_thing() -> None:
    assert [games.step_of(a_game(round=10), round) for round in range(9, 17)] == [None, None, 0, 1, 2, 3, None, None]


# ---- pay


def random_reports(random: Random, peers: int = 7) -> dict[str, Reports]:
    """Some come late, some report once."""
    reports: dict[str, Reports] = {}
    for number in range(peers):
        first = 0 if random.random() < 0.7 else random.randrange(STEPS)
        kept = [step == first or (step > first and random.random() < 0.6) for step in range(STEPS)]
        reports[peer(number)] = [random.randrange(ONE + 1) if yes else None for yes in kept]
    return reports


def plain(reports: dict[str, Reports], right: bool) -> dict[str, float]:
    """The formula as it is written."""
    wins = dict.fromkeys(reports, 0.0)
    for name, own in reports.items():
        for step in range(STEPS):
            if (q := standing(own, step)) is not None:
                before = [standing(of, step - 1) for other, of in reports.items() if other != name] if step else []
                known = [value / ONE for value in before if value is not None]
                p = sum(known) / len(known) if known else 0.5
                wins[name] += games.STAKE * games.WEIGHTS[step] * ((p - right) ** 2 - (q / ONE - right) ** 2)
    return wins


@pytest.mark.parametrize("seed", range(5))
def test_it_pays_what_the_formula_says_and_nobody_loses_more_than_the_stake(seed: int) -> None:
    reports = random_reports(Random(seed))
    for right in (True, False):
        wins = games.pay(reports, right)
        assert wins == {name: round(win) for name, win in plain(reports, right).items()}
        assert min(wins.values()) >= -games.STAKE
        assert games.pay(dict(reversed(reports.items())), right) == wins


@pytest.mark.parametrize("seed", range(5))
def test_the_truth_is_best_early_is_better_and_who_repeats_the_price_wins_nothing(seed: int) -> None:
    random = Random(seed)
    reports, me, belief = random_reports(random), peer(20), random.randrange(500, ONE - 500)

    def worth(steps: Reports) -> float:
        wins = [plain(reports | {me: steps}, right)[me] for right in (True, False)]
        return belief / ONE * wins[0] + (1 - belief / ONE) * wins[1]

    honest: list[int | None] = [belief] * STEPS
    for step in range(STEPS):
        for q in (0, belief // 2, (belief + ONE) // 2, ONE):
            assert worth([*honest[:step], q, *honest[step + 1 :]]) < worth(honest)
    flat: dict[str, Reports] = {peer(number): [ONE // 2] * STEPS for number in range(5)}
    early, late = (games.pay(flat | {me: steps}, True)[me] for steps in ([9000, *[None] * 3], [*[None] * 3, 9000]))
    assert early == 15 * late > 0
    assert games.pay(flat | {me: [ONE // 2] * STEPS}, True)[me] == 0
    assert games.pay({me: [None] * STEPS}, True) == {me: 0}


def test_reports_stand_until_they_are_replaced_and_opener_and_proposer_play_not() -> None:
    assert [standing([None, 3, None, 4], step) for step in range(STEPS)] == [None, 3, 3, 4]
    reports: dict[str, Reports] = {peer(number): [1] * STEPS for number in (1, 40, 41)}
    assert games.players(a_game(proposer=peer(41)), reports).keys() == {peer(1)}
