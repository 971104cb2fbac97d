"""What the recipes learn: whole runs on the embedded models, by executed average@8 on held-out problems.

Arms, each with the same seeds: `full` and `delta` (recipe=nano-single-full and -delta: trainer and server apart, all
weights or what changed of them), and `ahead` (the server draws ahead of the learner, up to 4 versions).

Prints JSON. Of each run: average@8 at its exams, tokens sampled a second, and the digest of the final weights. Of each
arm means and 95 % intervals over seeds. --into keeps the runs, and the same command goes on with those that were cut
off.

    codezero bench recipes --into /tmp/recipes --arms full delta ahead
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from codezero.stats import mean_interval

ARMS = {
    "full": ["recipe=nano-single-full"],
    "delta": ["recipe=nano-single-delta"],
    "ahead": ["recipe=nano-single-full", "rollout.in_flight=128", "rollout.max_staleness=4"],
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--problems", type=int, default=200, help="of an exam, eight attempts each")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--into", type=Path, help="keep the runs in this folder")
    parser.add_argument("--arms", nargs="*", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.jobs) as pool:
        base = options.into or Path(temporary)
        jobs = [(arm, seed) for seed in range(options.seeds) for arm in options.arms]
        runs = list(pool.map(lambda job: run(job[0], ARMS[job[0]], job[1], base, options), jobs))
    print(json.dumps({"runs": runs, "arms": {arm: over_seeds(runs, arm) for arm in options.arms}}, indent=1))
    return 0


def run(arm: str, chosen: list[str], seed: int, base: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One whole `codezero run`, or what is left of it."""
    folder = base / f"{arm}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    settings = [f"seed={seed}", f"run.max_iterations={options.iterations}", "run.name=run", f"run.directory={folder}"]
    settings += [f"run.logs={folder}/logs", f"swarm.identity={base}/seed-{seed}.pem", "chain.kind=clock"]
    settings += ["monitor.view=off", f"evals.problems={options.problems}", "run.checkpoint_seconds=60"]
    command = [sys.executable, "-P", "-m", "codezero", "run", *chosen, *settings, *options.overrides]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{arm}, seed {seed}: {done.stderr.strip()[-500:]}")
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    found = summary(arm, seed, rows) | {"weights": digest(folder / "run")}
    print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def summary(arm: str, seed: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    curve = [(row["iteration"], row["eval/average_at_8"]) for row in rows if row.get("eval/average_at_8") is not None]
    return {
        "arm": arm,
        "seed": seed,
        "start": round(100 * curve[0][1], 2),
        "end": round(100 * curve[-1][1], 2),
        "gain": round(100 * (curve[-1][1] - curve[0][1]), 2),
        "tokens_a_second": round(fmean(row["tokens/sampled_per_second"] for row in rows[1:]), 1),
        "seconds": round(sum(row["seconds"] for row in rows[1:]), 1),
        "curve": [[at, round(100 * truth, 2)] for at, truth in curve],
    }


def digest(folder: Path) -> str:
    """Of the newest checkpoint's policy: 16 hex digits."""
    (newest,) = sorted(folder.glob("checkpoints/*/solver/model/model.safetensors"))[-1:]
    return hashlib.sha256(newest.read_bytes()).hexdigest()[:16]


def over_seeds(runs: list[dict[str, Any]], arm: str) -> dict[str, Any]:
    """Each figure as [mean, low, high]."""
    own = [each for each in runs if each["arm"] == arm]
    figures = {name: [each[name] for each in own] for name in ("start", "end", "gain", "tokens_a_second", "seconds")}
    return {name: [round(value, 3) for value in mean_interval(values)] for name, values in figures.items()}


if __name__ == "__main__":
    raise SystemExit(main())
