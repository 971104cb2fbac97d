"""What confirmed values are worth to training (A9): the same proposals with other expected values, executed as reward.

`claimed`: as they were proposed. `confirmed`: with those values that one node confirms by the rule, as a node with
`market.confirm=true` does; the rest stays claimed. `true`: what the described program returns. The embedded solver
learns from them alone; the exam is on embedded problems of all levels that are none of them.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import recipes

from codezero.config import MarketConfig
from codezero.market.opinions import with_values
from codezero.market.pricing import confirmed, price
from codezero.stats import mean_interval
from codezero.types import Problem, Source, Standing, problem_id
from market_parts.value_games import Tried
from market_parts.worth import Play, fitted

WAYS = ("claimed", "confirmed", "true")
DEFAULTS = MarketConfig()


def values_of(of: Play) -> dict[str, dict[tuple[str, str], str]]:
    """By way, question and call: the value in the place of the claim. Games that are settled before are left out."""
    first, last = (of.rows(step, known=True) for step in (of.steps[0], of.steps[-1]))
    records, powers = fitted(of.rows(of.games, known=True), first, last, of.peers)
    found: dict[str, dict[tuple[str, str], str]] = {way: {} for way in WAYS}
    for each, given in zip(of.rows(of.games, known=False), of.rows(of.steps[-1], known=False), strict=True):
        others = {peer: q for peer, q in given.items() if peer != of.peers[0]}
        now = price(each.game, others, records, powers)
        key = each.game.question, each.game.tests[0]
        value = confirmed(each.game, now, each.values[0], DEFAULTS.threshold, DEFAULTS.voters)
        found["true"][key] = each.true
        if value is not None:
            found["confirmed"][key] = value
    return found


def problems_of(games: Sequence[Tried]) -> list[Problem]:
    """As they were proposed."""
    tests = defaultdict[str, list[str]](list)
    for each in games:
        tests[each.game.question].append(f"assert {each.game.tests[0]} == {each.game.answers[0]}")
    return [
        Problem(problem_id(text, own), text, own, "", Source.PROPOSER, Standing.CLAIMED)
        for text, some in tests.items()
        if len(own := tuple(some)) > 1
    ]


def run(plays: Sequence[Play], base: Path, iterations: int) -> dict[str, Any]:
    """One whole run a way and seed."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    right: dict[str, list[float]] = {way: [] for way in WAYS}
    options = argparse.Namespace(iterations=iterations, problems=200, overrides=[])
    for seed, of in enumerate(plays):
        problems, values = problems_of(of.rows(of.games, known=False)), values_of(of)
        truth = {f"assert {call} == {value}" for (_, call), value in values["true"].items()}
        for way in WAYS:
            used = [with_values(problem, values[way]) for problem in problems]
            file = base / f"{way}-{seed}.jsonl"
            file.write_text("".join(json.dumps({"question": p.question, "tests": p.tests}) + "\n" for p in used))
            right[way].append(fmean(test in truth for problem in used for test in problem.tests))
            settings = [f"data.sources=[{file}]", "reward.mode=rlvr", "proposer.problems_per_iteration=0"]
            runs[way].append(recipes.run(way, settings, seed, base, options))
    gains = {way: [each["gain"] for each in of_way] for way, of_way in runs.items()}
    less = [one - two for one, two in zip(gains["confirmed"], gains["claimed"], strict=True)]
    return {
        "tests_right": {way: [round(each, 3) for each in shares] for way, shares in right.items()},
        "gain": {way: [round(value, 2) for value in mean_interval(each)] for way, each in gains.items()},
        "end": {way: round(fmean(each["end"] for each in of_way), 2) for way, of_way in runs.items()},
        "confirmed_less_claimed": [round(value, 2) for value in mean_interval(less)],
    }
