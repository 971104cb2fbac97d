"""Do proposals teach, and does their level follow? Whole runs, solo.

The solver attempts what the proposer wrote and, while that does not fill an iteration, synthetic problems
(`proposals_share` says how many were proposals); the frozen judge gives the reward. Told are executed average@8 on the
held-out set before and after with 95 % intervals, the level asked for most at the beginning and at the end, and the
share of iterations after the warm-up in which the judged success at proposals, over a window, is from 0.3 to 0.7.

Prints JSON. `--into` keeps the runs, and the same command goes on with those that are missing.

    codezero bench proposing --json --into /tmp/proposing --picture docs/level.svg
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, mode
from typing import Any

import picture

WINDOW = 10  # iterations of 8 problems
WARM_UP = 20  # iterations in which the rule knows too little to be measured by
BOUNDS = (0.3, 0.7)
Row = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--into", type=Path, help="keep the runs in this folder")
    picture.add_options(parser)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    if picture.drawn(options, draw):
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        base = options.into or Path(temporary)
        runs = [play(base, seed, options.iterations, options.overrides) for seed in range(options.seeds)]
    told = [figures_of(rows) for rows in runs]
    print(json.dumps(told, indent=None if options.json else 1))
    if options.picture:
        draw(told, options.picture)
    return 0


def play(base: Path, seed: int, iterations: int, overrides: Sequence[str]) -> list[Row]:
    """The metrics of one run; it goes on where it was cut off."""
    name = f"alone-{seed}"
    file = base / name / "metrics.jsonl"
    if not (file.is_file() and read(file)[-1]["iteration"] >= iterations):
        print(f"proposing: {name}", file=sys.stderr, flush=True)
        settings = [f"seed={seed}", f"run.name={name}", f"run.directory={base}", f"run.logs={base}/logs"]
        settings += [f"swarm.identity={base}/{name}.pem", "monitor.view=off", "login.page=off", "chain.kind=clock"]
        settings += [
            "data.proposer_share=1",
            "proposer.every=1",
            "proposer.vetting=0",
            "proposer.problems_per_iteration=20",
            "solver.problems_per_iteration=8",
        ]
        settings += [f"run.max_iterations={iterations + 1}", f"evals.every={iterations}", "evals.problems=200"]
        command = [sys.executable, "-P", "-m", "codezero", "run", *settings, *overrides]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read(file)


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def figures_of(rows: Sequence[Row]) -> dict[str, Any]:
    exams = [row for row in rows if row["eval/average_at_8"] is not None]
    drawn = rows[-1]["problems/drawn_proposals"]
    asked = [(row["iteration"], row["difficulty/level"]) for row in rows if row.get("difficulty/level") is not None]
    levels = [level for _, level in asked]
    means = [mean for at, mean in windows(rows) if at >= WARM_UP + WINDOW]
    return {
        "before": exam(exams[0]),
        "after": exam(exams[-1]),
        "proposals_share": round(drawn / (drawn + rows[-1]["problems/drawn_synthetic"]), 3),
        "level": [mode(levels[:WARM_UP]), mode(levels[-WARM_UP:])],
        "success_within_bounds": round(fmean(BOUNDS[0] <= mean <= BOUNDS[1] for mean in means), 3) if means else None,
        "success": [round(min(means), 3), round(fmean(means), 3), round(max(means), 3)] if means else None,
        "level_curve": asked,
        "success_curve": [(at, round(mean, 3)) for at, mean in windows(rows)],
    }


def exam(row: Row) -> list[float]:
    """Executed average@8 with its interval."""
    return [round(row[key], 4) for key in ("eval/average_at_8", "eval/ci_low", "eval/ci_high")]


def windows(rows: Sequence[Row]) -> list[tuple[int, float]]:
    """(iteration, mean judged success at proposals of the WINDOW iterations that end there)."""
    known = [(row["iteration"], row["difficulty/success"]) for row in rows if row.get("difficulty/success") is not None]
    return [
        (known[end][0], fmean(one for _, one in known[end + 1 - WINDOW : end + 1]))
        for end in range(WINDOW - 1, len(known))
    ]


def draw(result: Sequence[dict[str, Any]], path: Path) -> None:
    """Above the level asked for, below the judged success at proposals; a line for each seed."""
    figure, [[above], [below]] = picture.panels(2, 1, sharex=True)
    for seed, run in enumerate(result):
        colour = picture.COLOURS[seed % len(picture.COLOURS)]
        picture.line(above, run.get("level_curve", []), colour, f"seed {seed}", drawstyle="steps-post")
        picture.line(below, run.get("success_curve", []), colour)
    above.set(ylabel="level asked for", yticks=range(1, 6), ylim=(0.8, 5.2))
    below.set(ylabel=f"judged success, {WINDOW} iterations", xlabel="iteration", ylim=(0, 1))
    below.axhspan(*BOUNDS, color=picture.INK, alpha=0.15, linewidth=0)
    above.set_title("A solo run on its own proposals: the level follows the skill")
    above.legend(loc="lower right")
    picture.save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
