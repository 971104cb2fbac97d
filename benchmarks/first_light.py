"""Does a swarm of one really learn? Several seeds, each a whole `codezero run` with the embedded models.

Prints JSON: executed average@8 on the held-out set before and after, with 95 % intervals, for every seed.
The reward comes from the frozen judge alone; the executed figure is only watched. `--picture` draws the curves.
With --start instead: what the way to the first exam's figure takes, by process, command and library, of one run.

    codezero bench first_light --seeds 5 --minutes 2.5 --picture docs/first-light.svg
    codezero bench first_light --start
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import picture
import psutil

LIBRARIES = ("torch", "transformers", "datasets", "trl", "hivemind", "web3", "eth_account", "hydra")
TAKEN_FROM = {"transformers": "PreTrainedModel", "trl": "GRPOTrainer"}
"""What makes a library that loads lazily load."""
COMMANDS = (["status"], ["runs"], ["doctor"])
PROCESSES = {"dashboard": "page", "network_process": "network", "devchain": "chain", "codezero.code.worker": "guard",
             "monty": "sandbox"}  # fmt: skip
"""By a word of its command line; any other is the node."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=2.5, help="of the loop; the start of the program comes on top")
    parser.add_argument("--start", action="store_true", help="measure the start instead of the learning")
    picture.add_options(parser)
    parser.add_argument("--json", action="store_true", help="as always; here so that every benchmark takes it")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    if picture.drawn(options, draw):
        return
    if options.start:
        print(json.dumps(start(options.overrides), indent=2))
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
        settings = [*places(base), f"seed={seed}", f"run.max_minutes={minutes}", "monitor.view=off"]
        settings += ["chain.kind=clock", *overrides]
        began = time.monotonic()
        subprocess.run(
            [sys.executable, "-P", "-m", "codezero", "run", *settings], check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - began
        lines = (Path(base) / "run" / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines], seconds


def places(base: str) -> list[str]:
    return ["run.name=run", f"run.directory={base}", f"run.logs={base}/logs", f"swarm.identity={base}/swarm.pem"]


def start(overrides: list[str]) -> dict[str, Any]:
    """CPU seconds and peak MiB: of each process until the first exam's figure, of commands, and of bare imports."""
    imports = {name: f"from {name} import {TAKEN_FROM.get(name, '__name__')}" for name in LIBRARIES}
    with tempfile.TemporaryDirectory() as base:
        own = [f"login.directory={base}/login", f"chain.directory={base}/chain", f"chain.wallet={base}/wallet.json"]
        settings = [*places(base), *own, "run.max_iterations=1", *overrides]
        seconds, processes = watch([sys.executable, "-m", "codezero", "run", *settings], Path(base, "run"))
        commands = {
            words[0]: cost(
                ["-m", "codezero", *words, *(settings if words == ["doctor"] else [f"run.directory={base}"])]
            )
            for words in COMMANDS
        }
    return {
        "first_exam": {
            "wall_seconds": round(seconds, 1),
            "cpu_seconds": round(sum(row["cpu_seconds"] for row in processes), 1),
            "peak_mib": sum(row["peak_mib"] for row in processes),
        },
        "processes": processes,
        "commands": commands,
        "libraries": {name: cost(["-c", statement]) for name, statement in imports.items()},
    }


def watch(command: list[str], run: Path) -> tuple[float, list[dict[str, Any]]]:
    """Wall seconds until the first exam's figure, and what each process has taken by then."""
    began, node, taken = (
        time.monotonic(),
        subprocess.Popen(command, stdout=subprocess.DEVNULL),
        dict[int, dict[str, Any]](),
    )
    try:
        while not any('"eval/average_at_8": 0' in path.read_text() for path in run.glob("metrics.jsonl")):
            if node.poll() is not None:
                raise SystemExit(f"the run ended with {node.returncode} before its first exam")
            with contextlib.suppress(psutil.Error):  # one has ended; who comes after it is seen the next time
                for process in [tree := psutil.Process(node.pid), *tree.children(recursive=True)]:
                    words, times, memory = " ".join(process.cmdline()), process.cpu_times(), process.memory_info()
                    name = next((name for word, name in PROCESSES.items() if word in words), "node")
                    row = taken.setdefault(process.pid, {"process": name, "cpu_seconds": 0.0, "peak_mib": 0})
                    row["cpu_seconds"] = round(times.user + times.system, 2)
                    row["peak_mib"] = max(row["peak_mib"], memory.rss >> 20)
            time.sleep(0.25)
        return time.monotonic() - began, list(taken.values())
    finally:
        node.terminate()
        node.wait()


def cost(arguments: list[str]) -> dict[str, Any]:
    """Of a Python process with the children that it waits for."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {"cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2), "peak_mib": usage.ru_maxrss >> 10}


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
