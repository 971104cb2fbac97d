"""Does a swarm of one really learn? Several seeds, each a whole `codezero run` with the embedded models.

Prints JSON: executed average@8 on the held-out set before and after, with 95 % intervals, for every seed.
The reward comes from the frozen judge alone; the executed figure is only watched. `--picture` draws the curves.

    codezero bench first_light --seeds 5 --minutes 2.5 --picture docs/first-light.svg
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=2.5, help="of the loop; the start of the program comes on top")
    picture.add_options(parser)
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    if picture.drawn(options, draw):
        return
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds):
        rows, seconds = train(seed, options.minutes, options.overrides)
        exams = [row for row in rows if row.get("eval/average_at_8") is not None]
        runs.append(summary(seed, exams, seconds))
        print(json.dumps(runs[-1]), file=sys.stderr)
    result = {"runs": runs, "all_rose_by_20_without_overlap": all(run["rose_clearly"] for run in runs)}
    print(json.dumps(result, indent=2))
    if options.picture:
        draw(result, options.picture)


def train(seed: int, minutes: float, overrides: list[str]) -> tuple[list[dict[str, Any]], float]:
    """The metrics of one run and its wall seconds, start of the program included."""
    with tempfile.TemporaryDirectory() as base:
        settings = [f"seed={seed}", f"run.max_minutes={minutes}", "run.name=run", f"run.directory={base}"]
        settings += [f"run.logs={base}/logs", f"swarm.identity={base}/swarm.pem", "monitor.view=off"]
        settings += ["chain.kind=clock", *overrides]
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-P", "-m", "codezero", "run", *settings], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - began
        lines = (Path(base) / "run" / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], seconds


def exam(row: dict[str, Any]) -> list[float]:
    """Executed average@8 with its interval."""
    return [round(row[key], 4) for key in ("eval/average_at_8", "eval/ci_low", "eval/ci_high")]


def summary(seed: int, exams: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    first, last = exams[0], exams[-1]
    rise = last["eval/average_at_8"] - first["eval/average_at_8"]
    return {
        "seed": seed,
        "iterations": last["iteration"],
        "wall_seconds": round(seconds, 1),
        "source": last["eval/source"],
        "start": exam(first),
        "end": exam(last),
        "pass_at_8": [round(row["eval/pass_at_8"], 4) for row in (first, last)],
        "rose_by_points": round(100 * rise, 1),
        "rose_clearly": rise >= 0.2 and last["eval/ci_low"] > first["eval/ci_high"],
        "judge_auroc": [row["judge/auroc"] for row in (first, last)],
        "curve": [[row["iteration"], *exam(row)] for row in exams],
    }


def draw(result: dict[str, Any], path: Path) -> None:
    """A line for each seed."""
    figure, [[axes]] = picture.panels(1, 1)
    for run in result["runs"]:
        points = [[at, *(100 * value for value in exam)] for at, *exam in run.get("curve", [])]
        picture.line(axes, points, picture.COLOURS[run["seed"] % len(picture.COLOURS)], f"seed {run['seed']}")
    axes.set(xlabel="iteration", ylabel="executed average@8, %", ylim=(0, 100))
    axes.set_title("Held-out problems solved, executed in the sandbox; reward from the frozen judge only")
    axes.legend(loc="lower right")
    picture.save(figure, path)


if __name__ == "__main__":
    main()
