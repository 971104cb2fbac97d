"""What the prediction market is worth and costs, and what attacks on it gain: A1 to A5, A9, abuse.

A1: the pay is exact and bounded. A2 to A4: prices and confirmations on `value` games of the embedded models, where
peers are honest, lie from the start, or turn once their record is made; `judges 0` and `judges 2`: how many of eight
have one. A5: after how many executed games a bad peer loses its vote. A9: what
the confirmed values teach, beside the claimed and the true ones (`training`: whole runs, so the longest). Each aim
stands beside its figure. `abuse`: what bluffs of a coalition gain, how often a jury is held, what friends of an opener
get. No figure is a time.

    codezero bench market --json                       # everything; `--parts` for less
    codezero bench market --json --games 120 --seeds 1 --runs 4 --random 500 --parts a1 values
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "tests"))

from market_parts import abuse, training, value_games, worth

PEERS = 8
JUDGES = (0, 2)
PARTS = ("a1", "values", "training", "abuse")
Report = dict[str, Any]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=500, help="`value` games of a seed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--orders", type=int, default=100, help="random orders of the games, for A5")
    parser.add_argument("--runs", type=int, default=30, help="simulated populations, at least 2")
    parser.add_argument("--random", type=int, default=10_000, help="random games of A1; a fifth as many juries")
    parser.add_argument("--iterations", type=int, default=60, help="of each run of A9")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    options = parser.parse_args(argv)
    if options.runs < 2 or options.seeds < 1 or options.games < 60:
        parser.error("at least 2 runs, for an interval, 1 seed, and 60 games, for records")
    if "training" in options.parts and options.seeds < 2:
        parser.error("--parts training needs 2 seeds or more, for an interval")
    report: Report = {"settings": vars(options)}
    if "a1" in options.parts:
        say("A1: the pay against its formula")
        report["A1"] = abuse.exactness(options.random)
    if {"values", "training"} & {*options.parts}:
        report |= values(options)
    if "abuse" in options.parts:
        report["abuse"] = attacks(options)
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


def values(options: argparse.Namespace) -> Report:
    """A2 to A5."""
    import torch

    torch.set_num_threads(options.threads)
    games = [value_games.gather(options.games, PEERS, seed, say) for seed in range(options.seeds)]
    report: Report = {"values": {}, "A5": {}}
    if "training" in options.parts:
        say(f"A9: {options.seeds} runs of each way, one after another")
        with tempfile.TemporaryDirectory() as base:
            plays = [worth.play(each, PEERS, max(JUDGES)) for each in games]
            report["A9"] = training.run(plays, Path(base), options.iterations)
        say(f"A9: {json.dumps(report['A9'])}")
    if "values" not in options.parts:
        return report
    for judges in JUDGES:
        plays = [worth.play(each, PEERS, judges) for each in games]
        shown = report["values"][f"judges {judges}"] = {}
        for name, (liars, turned) in worth.SCENES.items():
            outcomes = [worth.scene(each, liars, turned) for each in plays]
            every = [outcome for of_seed in outcomes for outcome in of_seed]
            shown[name] = worth.summary(every, plays[0].peers)
            shown[name]["seeds"] = [brief(worth.summary(each, plays[0].peers)) for each in outcomes]
            say(f"judges {judges}, {name}: {json.dumps(brief(shown[name]))}")
        shown["brier_by_step"] = [worth.by_step(each) for each in plays]
        shown["return_per_stake"] = [worth.returns(each) for each in plays]
        report["A5"][f"judges {judges}"] = abuse.detection(plays[0], options.orders)
        say(f"A5, judges {judges}: {json.dumps(report['A5'][f'judges {judges}'])}")
    return report | aims(report)


def brief(summed: Report) -> Report:
    return {"brier": summed["brier"], "confirmed": summed["confirmed"]["rule"]}


def aims(report: Report) -> Report:
    """The figures of acceptance, each with what it should be."""
    alone, judged = (report["values"][f"judges {judges}"] for judges in JUDGES)
    one, two = alone["honest"]["brier"], judged["honest"]["brier"]
    turned = {f"{name}, judges {judges}": shown[name]["confirmed"]["rule"]
              for judges, shown in zip(JUDGES, (alone, judged), strict=True)
              for name in ("3 turned", "5 turned")}  # fmt: skip
    return {
        "A2": {
            "skilled_to_best_peer": round(two["skilled"] / two["best_peer"], 4),
            "at_most": 0.9,
            "skilled_less_equal_without_judges": round(one["skilled"] - one["equal"], 4),
            "at_most_without_judges": 0.01,
        },
        "A3": {
            **{f"judges {n}": of["honest"]["confirmed"]["rule"] for n, of in zip(JUDGES, (alone, judged), strict=True)},
            "aim": "confirmed >= 0.6, right >= 0.97, its interval from 0.95",
        },
        "A4": {**turned, "aim": "3 turned: right >= 0.97; 5 turned: wrong of all <= 0.02"},
    }


def attacks(options: argparse.Namespace) -> Report:
    say("coalitions, juries, friends")
    shares = (0.1, 0.2, 0.3, 0.4)
    return {
        "coalition_gains": {
            f"{share:.0%}": abuse.coalition(share, 10 * options.runs) for share in (0.2, 0.4, 0.6, 0.8)
        },
        "jury_held": {f"{share:.0%}": abuse.capture(share, max(10, options.random // 5)) for share in shares},
        "friends_of_openers": {f"{telling} of 8": abuse.friends(telling, 8, 150, 20) for telling in range(4)},
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
