"""What the benchmarks of sharing and of proposing make of runs: figures that can be checked by hand.

Does not show what sharing or proposing is worth; the benchmarks do."""

from typing import Any

import learn
import proposing


def ran(own: int, others: int, first: float, last: float, seed: int = 0, scenario: str = "same") -> dict[str, Any]:
    """A run of two nodes whose curve is a line."""
    case = {"scenario": scenario, "own": own, "others": others, "policy": "positives", "gate": True, "seed": seed}
    curve = [[at, mean, [mean, mean]] for at, mean in ((0, first), (10, (first + last) / 2), (20, last))]
    rest = {"nodes": 2, "rounds": 20, "every": 10, "own_completions": own * 8 * 20, "collapsed_nodes": 0}
    return case | rest | {"curve": curve, "external_groups_per_round": 0.0}


def test_a_mix_is_compared_with_solo_by_area_and_by_completions() -> None:
    rows = [ran(own, others, 0.4, last, seed) for own, others, last in ((8, 0, 0.6), (2, 14, 0.7)) for seed in (0, 1)]
    told = learn.scenario(rows, "same")
    assert told["best_mix"] == "2/14 positives gate"
    assert told["gain_over_solo"] == 0.5
    assert told["completions_ratio"] == 0.25
    assert told["arms"]["8/0"]["seeds"] == 2 and told["ci"]["8/0"] == [10.0, 10.0]


def rows_of(success: list[float | None]) -> list[dict[str, Any]]:
    return [
        {
            "iteration": at, "difficulty/success": value, "difficulty/level": 1 + at // 50,
            "eval/average_at_8": 0.4 + at / 1000 if at in (0, 99) else None, "eval/ci_low": 0.3, "eval/ci_high": 0.6,
            "problems/drawn_proposals": 7 * at, "problems/drawn_synthetic": at,
        }
        for at, value in enumerate(success)
    ]  # fmt: skip


def test_success_is_looked_at_in_windows_after_the_warm_up() -> None:
    rows = rows_of([None, *[1.0] * 19, *[0.5] * 40, *[0.9] * 40])
    del rows[0]["difficulty/success"]  # the row of the first exam has no more than its own figures
    told = proposing.figures_of(rows)
    assert told["success_within_bounds"] == 0.5  # windows that end at 30 to 64
    assert told["success"][0] == 0.5 and told["success"][2] == 0.9
    assert told["level"] == [1, 2] and told["proposals_share"] == 0.875
    assert told["before"][0] == 0.4 and told["after"][0] == 0.499
