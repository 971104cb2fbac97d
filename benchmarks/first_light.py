"""Does a swarm of one really learn? Several seeds, each a whole `codezero run` with the embedded models.

Prints JSON: executed average@8 on the held-out set before and after, with 95 % intervals, for every seed.
The reward comes from the frozen judge alone; the executed figure is only watched. `--picture` draws the curves.

    .venv/bin/python benchmarks/first_light.py --seeds 5 --minutes 2.5 --picture docs/first-light.png
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=2.5, help="of the loop; the start of the program comes on top")
    parser.add_argument("--picture", type=Path, help="write the curves to this PNG file")
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    runs: list[dict[str, Any]] = []
    curves: list[list[tuple[int, float, float, float, float]]] = []
    for seed in range(options.seeds):
        rows, seconds = train(seed, options.minutes, options.overrides)
        exams = [row for row in rows if row.get("eval/average_at_8") is not None]
        curves.append([point(row) for row in exams])
        runs.append(summary(seed, exams, seconds))
        print(json.dumps(runs[-1]), file=sys.stderr)
    print(
        json.dumps({"runs": runs, "all_rose_by_20_without_overlap": all(run["rose_clearly"] for run in runs)}, indent=2)
    )
    if options.picture:
        draw(curves, options.picture)


def train(seed: int, minutes: float, overrides: list[str]) -> tuple[list[dict[str, Any]], float]:
    """The metrics of one run and its wall seconds, start of the program included."""
    with tempfile.TemporaryDirectory() as base:
        settings = [f"seed={seed}", f"run.max_minutes={minutes}", "run.name=run", f"run.directory={base}"]
        settings += [f"run.logs={base}/logs", f"swarm.identity={base}/swarm.pem", "monitor.view=off"]
        settings += ["chain.kind=clock", *overrides]
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "codezero", "run", *settings], check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
        lines = (Path(base) / "run" / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], seconds


def point(row: dict[str, Any]) -> tuple[int, float, float, float, float]:
    """(iteration, average@8, low, high, reward)."""
    reward = row["reward/mean"] if row["reward/mean"] is not None else float("nan")
    return row["iteration"], row["eval/average_at_8"], row["eval/ci_low"], row["eval/ci_high"], reward


def summary(seed: int, exams: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    first, last = exams[0], exams[-1]
    rise = last["eval/average_at_8"] - first["eval/average_at_8"]
    return {
        "seed": seed,
        "iterations": last["iteration"],
        "wall_seconds": round(seconds, 1),
        "source": last["eval/source"],
        "start": [round(first[key], 4) for key in ("eval/average_at_8", "eval/ci_low", "eval/ci_high")],
        "end": [round(last[key], 4) for key in ("eval/average_at_8", "eval/ci_low", "eval/ci_high")],
        "pass_at_8": [round(row["eval/pass_at_8"], 4) for row in (first, last)],
        "rose_by_points": round(100 * rise, 1),
        "rose_clearly": rise >= 0.2 and last["eval/ci_low"] > first["eval/ci_high"],
        "judge_auroc": [row["judge/auroc"] for row in (first, last)],
    }


def draw(curves: list[list[tuple[int, float, float, float, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.2), dpi=130)
    for seed, curve in enumerate(curves):
        iterations, average, low, high, _ = zip(*curve, strict=True)
        (line,) = axes.plot(iterations, [100 * value for value in average], linewidth=1.8, label=f"seed {seed}")
        axes.fill_between(
            iterations, [100 * v for v in low], [100 * v for v in high], color=line.get_color(), alpha=0.12, linewidth=0
        )
    axes.set(xlabel="iteration", ylabel="executed average@8, %", ylim=(0, 100))
    axes.set_title("Held-out problems solved, executed in the sandbox; reward from the frozen judge only", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


if __name__ == "__main__":
    main()
