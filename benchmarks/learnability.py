"""Does a proposer that learns write problems that teach more? The solver is at rest, so that only the proposals differ.

In each iteration the embedded proposer writes a group of 32 problems at one level, the embedded solver attempts each
usable one eight times, the frozen judge says which attempts succeed, and the proposer learns from what they earned
(validity x novelty x learnability). `trained` learns; `still` is the same with a learning rate of next to nothing.
A level is held (`--levels 5`: far too hard for this solver), or follows the success as in a node (`auto`).

Told of each arm and seed, for the first and the last fifth of the iterations: the mean learnability 4p(1 - p) of the
problems that were attempted, their success, and what one proposal earned. `gain`: of each seed the learnability in the
last fifth, trained less still, with its mean and 95 % interval over seeds.

Prints JSON. `--into` keeps the runs, and the same command goes on with those that are missing.

    codezero bench learnability --json --into /tmp/learnability --picture docs/learnability.svg
"""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import picture
import torch

from codezero.config import NodeConfig
from codezero.environments.code import CodeEnvironment
from codezero.problems.filters import Screen
from codezero.proposer.difficulty import BandTS
from codezero.proposer.training import judged_learnability
from codezero.protocols import Evaluator, Proposer, Solver
from codezero.settings import compose
from codezero.stats import mean_interval
from codezero.wiring.evaluator import EMBEDDED, build_evaluator
from codezero.wiring.models import build_learner, build_sampler, load_policy
from codezero.wiring.node import holding
from codezero.wiring.proposer import build_trained
from codezero.wiring.solver import build_solver

AT_REST = 1e-12
"""A learning rate that moves no weight in float32."""
RATE = 3e-4
GROUP = 32
PEER = "QmNobody"
ARMS = ("trained", "still")
AUTO = "auto"
STEPS = 5
"""Iterations in a point of the curve."""
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--levels", nargs="*", choices=[*"12345", AUTO], default=["5", AUTO])
    parser.add_argument("--into", type=Path, help="keep the runs in this folder")
    picture.add_options(parser)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    if picture.drawn(options, draw):
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        base = options.into or Path(temporary)
        runs: dict[str, dict[str, list[list[Row]]]] = {level: {arm: [] for arm in ARMS} for level in options.levels}
        for level in options.levels:
            for seed in range(options.seeds):
                for arm in ARMS:
                    runs[level][arm].append(kept(base, level, arm, seed, options.iterations, options.overrides))
    told = {f"level {level}": compared(by_arm) for level, by_arm in runs.items()}
    print(json.dumps(told, indent=None if options.json else 1))
    if options.picture:
        draw(told, options.picture)
    return 0


def kept(base: Path, level: str, arm: str, seed: int, iterations: int, overrides: Sequence[str]) -> list[Row]:
    """The rows of one run; one that was cut off begins anew."""
    file = base / f"{level}-{arm}-{seed}.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    if len(rows) < iterations:
        base.mkdir(parents=True, exist_ok=True)
        rows = []
        with file.open("w") as out:
            for row in play(level, arm, seed, iterations, overrides):
                rows.append(row)
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(f"learnability: level {level}, {arm}, seed {seed}: {len(rows)}", file=sys.stderr, flush=True)
    return rows[:iterations]


def play(level: str, arm: str, seed: int, iterations: int, overrides: Sequence[str]) -> Iterator[Row]:
    """The round loop's part that proposers see, with real parts."""
    settings = [f"seed={seed}", "proposer.train=true", "proposer.every=1", "data.proposer_share=1"]
    settings += [f"proposer.group_size={GROUP}", f"solver.problems_per_iteration={GROUP}"]
    settings += [f"proposer.learning_rate={RATE if arm == 'trained' else AT_REST}"]
    config = compose([*settings, *overrides])
    torch.manual_seed(seed)
    with contextlib.ExitStack() as stack:
        solver, evaluator, proposer = parts(config, stack)
        difficulty = BandTS(seed=seed)
        for iteration in range(1, iterations + 1):
            asked = difficulty.draw(1)[0] if level == AUTO else int(level)
            problems = proposer.propose([asked])
            scored = evaluator.score(solver.rollout(problems, iteration)) if problems else []
            difficulty.observe(scored, evaluator.rates())
            looked = proposer.metrics()
            proposer.learn(scored)
            yield {
                "iteration": iteration,
                "level": asked,
                "validity": looked["proposer/validity"],
                "novelty": looked["proposer/novelty"],
                "learnability": known([judged_learnability([one]) for one in scored]),
                "success": known([one.believed for one in scored]),
            }


def parts(config: NodeConfig, stack: contextlib.ExitStack) -> tuple[Solver, Evaluator, Proposer]:
    policy = load_policy(config, quiet)
    sampler = build_sampler(config, policy, quiet, stack)
    solver = build_solver(config, CodeEnvironment(), build_learner(config, policy), sampler, PEER)
    evaluator = build_evaluator(config, EMBEDDED, stack, quiet)
    return (
        solver,
        evaluator,
        build_trained(
            config, PEER, Screen(CodeEnvironment(), holding(config, CodeEnvironment(), lambda: policy)), quiet
        )[0],
    )


def quiet(what: str) -> None:
    """Nobody is told what takes its time: every row is."""


def known(figures: Sequence[float | None]) -> list[float]:
    return [round(one, 4) for one in figures if one is not None]


def compared(by_arm: dict[str, list[list[Row]]]) -> dict[str, Any]:
    """Of each arm the figures by seed, and what training gained."""
    told: dict[str, Any] = {}
    for arm, runs in by_arm.items():
        told[arm] = {
            when: {name: [round(figure(rows), 3) for rows in fifths] for name, figure in FIGURES.items()}
            for when, fifths in (("first", [fifth(run, 0) for run in runs]), ("last", [fifth(run, 4) for run in runs]))
        }
    ends = [[learnability(fifth(run, 4)) for run in by_arm[arm]] for arm in ARMS]
    gains = [after - before for after, before in zip(*ends, strict=True)]
    told["gain"] = {"by_seed": [round(gain, 3) for gain in gains], "mean": round(fmean(gains), 3)}
    if len(gains) > 1:
        told["gain"]["ci"] = [round(end, 3) for end in mean_interval(gains)[1:]]
    return told | {"curve": {arm: curve(runs) for arm, runs in by_arm.items()}}


def curve(runs: Sequence[Sequence[Row]]) -> list[list[float]]:
    """Iteration and learnability, means of STEPS iterations: the mean over the runs, with its interval for several."""
    at_steps = range(0, min(map(len, runs)) - STEPS + 1, STEPS)
    means = [[learnability(rows[at : at + STEPS]) for rows in runs] for at in at_steps]
    ends = [mean_interval(values) if len(values) > 1 else values for values in means]
    return [[at + STEPS / 2 + 0.5, *(round(end, 3) for end in each)] for at, each in zip(at_steps, ends, strict=True)]


def fifth(rows: Sequence[Row], which: int) -> Sequence[Row]:
    """The first fifth of a run's rows is 0, the last is 4."""
    size = max(1, len(rows) // 5)
    return rows[which * size : (which + 1) * size] if which < 4 else rows[-size:]


def learnability(rows: Sequence[Row]) -> float:
    """Mean over the problems that were attempted."""
    return fmean(one for row in rows for one in row["learnability"])


def earned(rows: Sequence[Row]) -> float:
    """By one proposal: the broken and the repeated earn nothing."""
    return sum(one for row in rows for one in row["learnability"]) / (GROUP * len(rows))


FIGURES = {
    "learnability": learnability,
    "success": lambda rows: fmean(one for row in rows for one in row["success"]),
    "earned": earned,
    "validity": lambda rows: fmean(row["validity"] for row in rows),
    "novelty": lambda rows: fmean(row["novelty"] for row in rows if row["novelty"] is not None),
    "level": lambda rows: fmean(row["level"] for row in rows),
}


def draw(result: dict[str, Any], path: Path) -> None:
    """One panel a level: the learnability of what was attempted, by arm; 95 % over seeds."""
    figure, [row] = picture.panels(1, len(result), sharey=True)
    for axes, (level, told) in zip(row, result.items(), strict=True):
        for arm in ARMS:
            picture.line(axes, told.get("curve", {}).get(arm, []), picture.colour(arm, ARMS), arm)
        title = "the level follows the success" if level == f"level {AUTO}" else f"asked for {level}"
        axes.set(xlabel="iteration", title=title, ylim=(0.4, 1))
    row[0].set_ylabel(f"learnability 4p(1 - p), {STEPS} iterations")
    row[0].legend()
    picture.save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
