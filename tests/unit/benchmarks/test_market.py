"""What the benchmark of the market makes of games: figures that can be checked by hand, and attacks in small.

Does not show what the market is worth; the benchmark does.
"""

import numpy as np
import pytest
from market_parts import abuse, worth
from market_parts.value_games import Tried, by_peer, names, played, points, returned

from codezero.market.games import NONE, Game, GameKind
from codezero.market.pricing import Price
from codezero.sandbox.monty import MontySandbox

PEERS = names(8)


def tried(at: int, right: int = 1) -> Tried:
    """A game that the claim is wrong about; of each peer's attempts all but two return the truth."""
    answers = ("7", "8", "9", NONE)
    game = Game(GameKind.VALUE, "benchmark", PEERS[at % 8], at, "", "", ("f()",), answers, commitment=b"0" * 32)
    values: list[list[str | None]] = [[answers[right]] * 6 + ["9", None] for _ in PEERS]
    codes: list[list[str | None]] = [["x"] * 6 + ["y", "z"] for _ in PEERS]
    return Tried(game, str(at), right, answers[right], values, codes, np.full((8, 8), 0.9))


@pytest.fixture(scope="module")
def play() -> worth.Play:
    return worth.play([tried(at) for at in range(90)], 8, 2)


def test_attempts_become_whole_reports() -> None:
    each = tried(0)
    assert each.opinion(0, 3, judged=True) == pytest.approx([0, 5.4, 0.9, 0])
    assert each.opinion(0, 0, judged=False) == pytest.approx([0, 0.35, 0, 0])
    assert each.different(0) == ["8", "9", None]
    assert sum(points(np.array([1, 1, 1]) / 3)) == 10_000
    assert played([each], [True], 0, 3, judged=True)[0].argmax() == 1
    assert by_peer(["1"] * 16) == [["1"] * 8] * 2


def test_values_come_from_the_sandbox() -> None:
    with MontySandbox() as sandbox:
        code = "def f(n):\n    return [n] * 2 if n else g()"
        assert returned(sandbox, code, ["f(1)", "f(0)", "f('a')"]) == ["[1, 1]", None, "['a', 'a']"]
        assert returned(sandbox, "while True: pass", ["1"]) == [None]


def test_honest_peers_confirm_the_truth_and_a_turned_majority_nothing(play: worth.Play) -> None:
    honest = worth.summary(worth.scene(play, 0, 0), play.peers)
    assert honest["games"] == 60 and honest["brier"]["claim"] > 1.9 > 0.1 > honest["brier"]["skilled"]
    assert honest["confirmed"]["rule"]["confirmed"] == honest["confirmed"]["rule"]["right"] == 1
    turned = worth.summary(worth.scene(play, 0, 5), play.peers)["confirmed"]
    assert turned["rule"]["wrong_of_all"] == 0 and turned["without veto"]["wrong_of_all"] == 1
    liars = worth.summary(worth.scene(play, 3, 0), play.peers)
    assert liars["confirmed"]["rule"]["right"] == 1 and liars["brier"]["skilled"] < 0.1


def test_nothing_confirmed_has_no_share_that_is_right() -> None:
    flat = Price(np.full(4, 0.25), np.full(4, 0.25), 8)
    none = worth.Outcome("p", 1, flat, {}, {"rule": []}, 8)
    some = worth.Outcome("p", 1, flat, {}, {"rule": [True, True, True, False]}, 8)
    assert worth.shares([none], "rule") == {
        "confirmed": 0, "right": None, "right_interval": None, "wrong_of_all": 0,
    }  # fmt: skip
    assert worth.shares([none, some], "rule")["right"] == 0.75
    assert worth.difference([none, some], lambda _: 1.0, lambda _: 0.5) == [0.5, 0.5, 0.5]


def test_steps_returns_and_detection_have_a_figure_for_each(play: worth.Play) -> None:
    assert len(worth.by_step(play)) == 4 and len(worth.returns(play)) == 8
    found = abuse.detection(play, 3)
    assert found["liar"]["lost_within_15"] == 1 and found["honest"]["lost_within_150"] == 0


def test_pay_is_exact_and_bounded() -> None:
    found = abuse.exactness(50)
    assert found["different"] == found["copies_that_won_or_lost"] == 0
    assert found["worst_loss_of_a_stake"] <= found["bound"]


def test_attacks_in_small() -> None:
    assert abuse.friends(0, 8, 100, 2)["has_a_vote"] == 0
    assert abuse.capture(0.0, 20)["held"] == 0 and abuse.capture(1.0, 20)["held"] == 1
    assert abuse.coalition(0.4, 2)["best"] < 0.02
