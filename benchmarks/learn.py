"""What sharing is worth, in miniature: swarms of embedded solvers that learn with and without each other's rollouts.

Each run is eight nodes (`learn_swarm.py`) with real exchange and exact reward; measured is executed average@8 on
held-out problems against rounds and against the completions a node sampled itself. A mix I/J is I problems of its own
and at most J groups of others in a round, with `external.share` out of the way. Scenarios: `same` (all draw from all
levels), `specialists` (each draws from one level and is examined on all), `sparse` (a weak start: most groups fail
altogether), `strong` (one peer begins far ahead), `poisoned` (three of eight publish wrong programs as the best of
their groups; figures are of the other five), `absent` (the three say nothing: what their lies are compared with),
`marked` (three or one of eight sell words with right programs: `written` is the share of another's attempts that
have the mark in the last quarter of the rounds, less that of the first round, with and without the limits on strangers'
rows; with none of eight, what the limits cost), `mixed` (models of three sizes and two tokenizers), `gym`
(each attempts one kind of reasoning-gym's tasks and is examined on all: SAPO's experiment in miniature, arXiv
2509.08721, whose total rewards were 561.8, 854.4, 1093.3 and 945.9 for 8/0, 6/2, 4/4 and 2/6).

Runs are kept in --into, one JSON line each, and the same command goes on with those that are missing. For each
scenario the result has `area` (mean of the curve less its start, in points: what was learned, averaged over the rounds)
by arm with a bootstrap interval over nodes and seeds, `best_mix`, `gain_over_solo` (its area over solo's, less 1),
`completions_ratio` (own completions of the best mix over those of solo), `collapsed_nodes` and `ci`; `gain_best` is the
gain over solo among specialists.

    codezero bench learn --json --into /tmp/learn --picture docs/sharing.svg
"""

import argparse
import dataclasses
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # `codezero bench` runs this file by its path

import picture
from learn_liars import MARKS
from learn_swarm import Case

SWARM = Path(__file__).with_name("learn_swarm.py")
MIXES = ((8, 0), (6, 2), (4, 4), (4, 12), (2, 6), (2, 14), (4, 0))
POLICIES = ("positives", "sapo")
SCENARIOS = ("same", "specialists", "sparse", "strong", "mixed", "poisoned", "absent", "marked", "gym")
WEAK_STEPS = 320
"""Steps of supervised training that the weak start has, which then solves some 5 %; the shipped solver has 700."""
OTHER_STARTS = {"small": (2, "solver"), "large": (5, "solver"), "other": (3, "judge")}
"""Layers, and whose tokenizer: of the scenario `mixed`."""
OTHER_STEPS = 900
STRONG_ROUNDS = 150
"""Iterations of 16 problems, with exact reward, that the strong peer is ahead."""
RESAMPLES = 2000
LIARS = {"poisoned": 3, "absent": 3}
VICTIMS = 1
"""Nodes of the scenario `marked` that learn: the others cost time and say nothing more."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--into", type=Path, default=Path("runs/bench-learn"), help="keep the runs in this folder")
    picture.add_options(parser)
    parser.add_argument("--scenarios", nargs="*", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--only", metavar="PATTERN", default="", help="arms whose name this finds: '3 of 8 .*, limits'")
    parser.add_argument("--report", action="store_true", help="run nothing; tell what is there")
    options = parser.parse_args(argv)
    if picture.drawn(options, draw):
        return 0
    options.into.mkdir(parents=True, exist_ok=True)
    kept = options.into / "runs.jsonl"
    wanted = [case for case in cases(options) if re.search(options.only, label_of(dataclasses.asdict(case)))]
    if not options.report:
        done = {identity(row) for row in read(kept)}
        missing = [case for case in wanted if identity(dataclasses.asdict(case)) not in done]
        say(f"{len(wanted)} runs, of which {len(missing)} are missing")
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda case: play(case, options.into, kept), missing))
    names = {identity(dataclasses.asdict(case)) for case in wanted}
    rows = [row for row in read(kept) if identity(row) in names]
    report = {name: scenario(rows, name) for name in options.scenarios if any(r["scenario"] == name for r in rows)}
    if "specialists" in report:
        report["gain_best"] = report["specialists"].get("gain_over_solo")
    if "poisoned" in report and "absent" in report:
        report["poison_costs_points"] = poison(report["absent"]["arms"], report["poisoned"]["arms"])
    if options.picture:
        draw(report, options.picture)
    print(json.dumps(report, indent=None if options.json else 1))
    return 0


def cases(options: argparse.Namespace) -> Iterator[Case]:
    """Seed by seed and the most telling arms first, so that a part of the whole compares what matters already."""
    by_scenario = {name: arms(name) for name in options.scenarios}
    for seed in range(options.seeds):
        for row in itertools.zip_longest(*by_scenario.values()):
            for name, arm in zip(by_scenario, row, strict=True):
                if arm is not None:
                    size = (seed, options.nodes, options.rounds, options.rounds // 4)
                    yield Case(name, *arm[:4], *size, *arm[4:])


class Arm(NamedTuple):
    """What is compared within a scenario."""

    own: int
    others: int
    policy: str = "positives"
    gate: bool = True
    liars: int = 0
    defended: bool = True
    mark: str = ""
    learners: int = 8


SMALL = [Arm(4, 12), Arm(2, 14), Arm(4, 4)]
"""What is run in every scenario: the shipped policy, with more or less of one's own."""


def arms(name: str) -> list[Arm]:
    """Without others policy and gate say nothing, so those run once."""
    alone, liars = [Arm(8, 0)], LIARS.get(name, 0)
    small = [arm._replace(liars=liars) for arm in SMALL]
    match name:
        case "marked":
            attacks = [Arm(4, 12, liars=liars, mark=mark, learners=VICTIMS) for liars in (3, 1) for mark in MARKS]
            each = [*attacks[: len(MARKS)], Arm(4, 12), *attacks[len(MARKS) :]]
            return [arm._replace(defended=defended) for arm in each for defended in (False, True)]
        case "mixed":
            return [Arm(4, 0), *(Arm(4, 12, policy) for policy in POLICIES)]
        case "gym":
            return [*alone, Arm(6, 2), Arm(4, 4), Arm(2, 6)]
        case "same":
            return [*alone, *small, Arm(4, 4, "sapo", False), Arm(2, 6), Arm(6, 2), Arm(4, 0)]
        case _:
            return small if liars else [*alone, *small]


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[field.name] for field in dataclasses.fields(Case))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def play(case: Case, into: Path, kept: Path) -> None:
    """One run in a process of its own; its line is appended when it has ended."""
    make_start(case, into)
    command = [sys.executable, str(SWARM), json.dumps(dataclasses.asdict(case)), str(into)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    with kept.open("a") as file:
        file.write(ended.stdout.splitlines()[-1] + "\n")


# ------------------------------------------------------------------ starts


def make_start(case: Case, into: Path) -> None:
    if case.scenario == "sparse" and not (into / "weak" / "config.json").is_file():
        from tools.nano.build import RECIPES

        say(f"training a weak start, {WEAK_STEPS} steps")
        taught_start(into / "weak", WEAK_STEPS, RECIPES["solver"].layers, "solver")
    if case.scenario == "strong" and not (into / "strong" / "config.json").is_file():
        say(f"training a strong peer, {STRONG_ROUNDS} rounds")
        strong_start(into / "strong")
    for name, (layers, tokenizer) in OTHER_STARTS.items() if case.scenario == "mixed" else ():
        if not (into / name / "config.json").is_file():
            say(f"training the start `{name}`, {OTHER_STEPS} steps")
            taught_start(into / name, OTHER_STEPS, layers, tokenizer)


def taught_start(folder: Path, steps: int, layers: int, role: str) -> None:
    """The shipped solver's lessons, for another model. role: whose tokenizer it has."""
    import torch

    from codezero.models.load import load_model
    from codezero.nano import weights_directory
    from tools.nano.lessons import solver_pairs
    from tools.nano.train import batches_of, new_model, train

    torch.set_num_threads(1)
    tokenizer = load_model(str(weights_directory(role)), role=role).tokenizer
    torch.manual_seed(0)
    model = new_model(layers, tokenizer, 0)
    train(model, batches_of(tokenizer, solver_pairs(Random(0)), Random(0)), steps=steps)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def strong_start(folder: Path) -> None:
    """The shipped solver after GRPO alone, with exact reward."""
    import torch
    from learn_swarm import Remembering, make_node, publish
    from simulation.hub import LocalHub

    torch.set_num_threads(1)
    case, judge = Case(own=16), Remembering()
    node = make_node(case, 0, LocalHub(), judge, folder)
    for number in range(STRONG_ROUNDS):
        node.solver.step(publish(node, case.own, number, judge), [])
    node.solver.learner.policy.model.save_pretrained(folder)
    node.solver.reader.tokenizer.save_pretrained(folder)


# ------------------------------------------------------------------ figures


def label_of(row: dict[str, Any]) -> str:
    if row["scenario"] == "marked":
        return f"{row['liars']} of {row['nodes']} {row['mark']}, {'limits' if row['defended'] else 'no limits'}"
    mix = f"{row['own']}/{row['others']}"
    return mix if not row["others"] else f"{mix} {row['policy']}{' gate' if row['gate'] else ''}"


def areas(row: dict[str, Any]) -> list[float]:
    """By node: mean of its curve over rounds (trapezoids) less its start, points."""
    curve = row["curve"]
    return [
        100 * sum((b[0] - a[0]) * (a[2][node] + b[2][node]) / 2 for a, b in itertools.pairwise(curve)) / curve[-1][0]
        - 100 * curve[0][2][node]
        for node in range(len(curve[0][2]))
    ]


def interval(seeds: Sequence[Sequence[float]]) -> list[float]:
    """95 %, resampling seeds and the nodes of each (hierarchical bootstrap)."""
    chance = Random(0)
    means = sorted(
        sum(chance.choice(nodes) for nodes in chance.choices(seeds, k=len(seeds)) for _ in nodes)
        / sum(len(nodes) for nodes in seeds)
        for _ in range(RESAMPLES)
    )
    return [round(means[int(share * RESAMPLES)], 2) for share in (0.025, 0.975)]


def scenario(rows: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["scenario"] == name:
            grouped.setdefault(label_of(row), []).append(row)
    told = {label: summary(group) for label, group in grouped.items()}
    if name == "marked":
        for label, group in grouped.items():
            told[label]["written"] = written(group)
    shared = {label: one["area"] for label, one in told.items() if not label.endswith("/0")}
    alone = next((label for label in ("8/0", "4/0") if label in told), None)
    if alone is None or not shared:
        return {"arms": told}
    best = max(shared, key=lambda label: shared[label])
    solo, own = told[alone]["area"], {label: group[0]["own_completions"] for label, group in grouped.items()}
    return {
        "area": {label: one["area"] for label, one in told.items()},
        "best_mix": best,
        "gain_over_solo": round(shared[best] / solo - 1, 3),
        "completions_ratio": round(own[best] / own[alone], 3),
        "collapsed_nodes": {label: one["collapsed_nodes"] for label, one in told.items()},
        "ci": {label: one["ci"] for label, one in told.items()},
        "arms": told,
    }


def written(group: Sequence[dict[str, Any]]) -> list[float] | None:
    """By how much the share of attempts with the mark grew: mean, least and most over seeds."""
    grown = [row["marks"][row["mark"]] - row["marks_before"][row["mark"]] for row in group if row["mark"]]
    return [round(value, 4) for value in (sum(grown) / len(grown), min(grown), max(grown))] if grown else None


def poison(clean: dict[str, Any], poisoned: dict[str, Any]) -> dict[str, float]:
    """By arm: how much less honest nodes reach in the end where the others lie and do not say nothing, points of
    average@8."""
    return {label: round(clean[label]["end"] - poisoned[label]["end"], 2) for label in poisoned if label in clean}


def summary(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    by_seed = [areas(row) for row in group]
    ends = [100 * value for row in group for value in row["curve"][-1][2]]
    every = [value for nodes in by_seed for value in nodes]
    return {
        "seeds": len(group),
        "area": round(sum(every) / len(every), 2),
        "ci": interval(by_seed),
        "end": round(sum(ends) / len(ends), 2),
        "worst_node": round(min(ends), 1),
        "collapsed_nodes": sum(row["collapsed_nodes"] for row in group),
        "own_completions": group[0]["own_completions"],
        "external_groups_per_round": round(sum(r["external_groups_per_round"] for r in group) / len(group), 2),
        "curve": [curve_point(points) for points in zip(*(row["curve"] for row in group), strict=True)],
    }


def curve_point(points: Sequence[Sequence[Any]]) -> list[float]:
    """Round, executed average@8 in % and its interval, of one point of each seed."""
    mean = 100 * sum(point[1] for point in points) / len(points)
    return [points[0][0], round(mean, 2), *interval([[100 * node for node in point[2]] for point in points])]


def draw(result: dict[str, Any], path: Path) -> None:
    """Two curves for each scenario: against rounds, and against own completions; 95 % over seeds and nodes."""
    names = [name for name in SCENARIOS if name in result]
    figure, (above, below) = picture.panels(2, len(names), sharey="col")
    for name, by_rounds, by_completions in zip(names, above, below, strict=True):
        for label, arm in result[name]["arms"].items():
            curve = arm.get("curve", [])
            each = arm["own_completions"] / curve[-1][0] if curve else 0
            look = {"linestyle": "--" if "no limits" in label else "-"}
            picture.line(by_rounds, curve, colour_of(label), label, **look)
            picture.line(by_completions, [[each * at, *ends] for at, *ends in curve], colour_of(label), **look)
        by_rounds.set(title=name, xlabel="rounds", ylabel="executed average@8, %")
        by_completions.set(xlabel="own completions", ylabel="executed average@8, %")
        by_rounds.legend()
    picture.save(figure, path)


def colour_of(label: str) -> str:
    """By the mix with the shipped policy, by another policy, or by the mark that is sold."""
    mixes, others = [f"{own}/{each}" for own, each in MIXES], list(POLICIES[1:])
    words = [word.strip(",") for word in label.split()]
    kind = next(word for word in reversed(words) if word in (*mixes, *others, *MARKS))
    return picture.colour(kind, [*MARKS] if kind in MARKS else [*mixes, *others])


def say(text: str) -> None:
    print(f"learn: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
