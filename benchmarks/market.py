"""What the prediction market is worth and what attacks on it gain, on simulated games. No figure is a time.

`prices`: Brier scores (0 best, 2 worst) of the best peer, of the plain average and of the price, where peers are
honest, lie from the start, or turn once their record is made. `votes`: after how many games a bad peer loses its vote.
`friends`: what a peer gets that knows nothing but what some openers tell it. `copies`: what who repeats the average of
a step, seen before it reports, wins of what an honest peer wins: reports are not sealed.

    codezero bench market --json
    codezero bench market --json --games 200 --seeds 2
"""

import argparse
import json
import sys
from collections.abc import Callable
from random import Random
from statistics import fmean
from typing import Any

from codezero.market.games import (
    NEWCOMER,
    ONE,
    STEPS,
    Reports,
    Score,
    gain,
    odds,
    pay,
    price,
    probability,
    record,
    standing,
)
from codezero.stats import mean_interval

PEERS, OPENERS = 8, 8
SCENES = {"honest": (0, 0), "3 liars": (3, 0), "3 turned": (0, 3), "5 turned": (0, 5)}  # lie from the start; turn
AFTER, WITHIN = 100, 150  # honest games before a peer turns, and games in which it may be found out
HABITS: dict[str, Callable[[Random, int], bool]] = {
    "liar": lambda _, __: True,
    "half liar": lambda random, _: random.random() < 0.5,
    "sleeper in one of ten": lambda random, _: random.random() < 0.1,
    "turned": lambda _, count: count >= AFTER,
    "honest": lambda _, __: False,
}  # does it lie in this game, of which it has played so many?


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=600, help="of a seed, the first third to make records")
    parser.add_argument("--seeds", type=int, default=10, help="at least 2, for an interval")
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    options = parser.parse_args(argv)
    if options.games < 90 or options.seeds < 2:
        parser.error("at least 90 games, for records, and 2 seeds")
    seeds = range(options.seeds)
    report: dict[str, Any] = {
        "settings": vars(options),
        "prices": {name: prices(options.games, seeds, *scene) for name, scene in SCENES.items()},
        "votes": {name: votes(habit, name, 10 * options.seeds) for name, habit in HABITS.items()},
        "friends": {f"{telling} of {OPENERS}": friends(telling, options.seeds) for telling in range(4)},
        "copies": copies(options.games, seeds),
    }
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


def game(random: Random) -> tuple[bool, dict[str, int]]:
    """Is the attempt right, and what do peers believe? Their judges are of different skill, and share some errors."""
    right, shared = random.random() < 0.5, random.gauss(0, 0.7)
    sign = 1 if right else -1
    beliefs = (sign * (0.5 + 0.15 * number) + shared + random.gauss(0, 1.2) for number in range(PEERS))
    return right, {f"peer {number}": round(ONE * probability(belief)) for number, belief in enumerate(beliefs)}


def prices(games: int, seeds: range, liars: int, turned: int) -> dict[str, Any]:
    """Brier scores after the first third of the games."""
    brier: dict[str, list[float]] = {"best peer": [], "average": [], "price": []}
    for seed in seeds:
        random, scores = Random(seed), dict[str, list[Score]]()
        for at in range(games):
            right, reports = game(random)
            names = sorted(reports, reverse=True)
            for name in names[:liars] + (names[:turned] if at >= games // 3 else []):
                reports[name] = 200 if right else ONE - 200  # the most skilled lie
            if at >= games // 3:
                records = {name: record(rows) for name, rows in scores.items()}
                best = f"peer {PEERS - 1 - max(liars, turned)}"  # of the honest
                average = fmean(reports.values()) / ONE
                for name, p in zip(brier, (reports[best] / ONE, average, price(reports, records)[0]), strict=True):
                    brier[name].append(2 * (p - right) ** 2)
            for name, q in reports.items():
                scores.setdefault(name, []).append(Score(f"opener {at % OPENERS}", gain(q, right), gain(q, right)))
    rows = [p - a for p, a in zip(brier["price"], brier["average"], strict=True)]
    shown = {name: round(fmean(values), 4) for name, values in brier.items()}
    return shown | {"price_less_average": [round(end, 4) for end in mean_interval(rows)]}


def votes(habit: Callable[[Random, int], bool], name: str, orders: int) -> dict[str, Any]:
    """After how many games the vote is lost; of `turned` peers, after how many lies."""
    losses: list[int | None] = []
    for order in range(orders):
        random, scores = Random(f"{name} {order}"), list[Score]()
        start = AFTER if name == "turned" else 0
        for count in range(start + WITHIN):
            right, reports = game(random)
            q = reports[f"peer {PEERS - 1}"]
            q = (200 if right else ONE - 200) if habit(random, count) else q
            scores.append(Score(f"opener {count % OPENERS}", gain(q, right), gain(q, right)))
        counts = range(start + 1, start + WITHIN + 1)
        losses.append(next((count - start for count in counts if record(scores[:count]).lost), None))
    lost = sorted(count for count in losses if count is not None)
    return {
        f"lost_within_{WITHIN}": round(len(lost) / orders, 3),
        f"lost_within_{NEWCOMER}": round(sum(count <= NEWCOMER for count in lost) / orders, 3),
        "median": lost[len(lost) // 2] if lost else None,
    }


def friends(telling: int, orders: int) -> dict[str, Any]:
    """A peer that is told the answers of some openers and reports an even guess elsewhere."""
    records = []
    for order in range(orders):
        random = Random(order)
        openers = [random.randrange(OPENERS) for _ in range(WITHIN)]
        gains = [gain(ONE - 200, True) if opener < telling else 0.0 for opener in openers]
        records.append(record([Score(f"{o}", each, each) for o, each in zip(openers, gains, strict=True)]))
    return {
        "has_a_vote": fmean(each.vote for each in records),
        "gain_nats": round(fmean(each.gain for each in records), 1),
    }


def copies(games: int, seeds: range) -> dict[str, Any]:
    """Points a game of who believes by itself, of who repeats the average of the same step, and of the step before."""
    won: dict[str, list[float]] = {"honest": [], "copies the step": [], "copies the step before": []}
    for seed in seeds:
        random = Random(seed)
        for _ in range(games):
            right, beliefs = game(random)
            reports: dict[str, Reports] = {name: [q] * STEPS for name, q in beliefs.items()}
            pooled = round(ONE * probability(fmean(odds(q / ONE) for q in beliefs.values())))
            late: Reports = [None, *[pooled] * (STEPS - 1)]
            wins = pay(reports | {"same": [pooled] * STEPS, "before": late}, right)
            assert standing(late) == pooled
            for name, peer in zip(won, (f"peer {PEERS - 1}", "same", "before"), strict=True):
                won[name].append(wins[peer] / 1000)
    return {name: round(fmean(values), 3) for name, values in won.items()}


if __name__ == "__main__":
    sys.exit(main())
