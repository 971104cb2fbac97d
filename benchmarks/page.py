"""What the page costs: the run, to keep attempts for it; and the page's process, to follow the metrics of a long run.

Two monitors observe the same iterations in turn, one that keeps attempts and one that keeps none, on a clock that goes
by as in a run of `--pace` iterations a second: how many attempts are kept depends on it. Nothing else is simulated.
The metrics file is then read by processes of their own: as the page does, and whole as a list of rows. Linux only, for
the memory that they take.

    codezero bench page --rows 200000 --json
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from codezero.monitor.metrics_file import FILE_NAME
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.rollouts_db import FILE, RolloutStore
from codezero.proposer.difficulty import BandTS
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Source, Status, Verdict

ME, OTHER = "Qm" + "a" * 44, "Qm" + "b" * 44
GROUPS, ATTEMPTS = 16, 8
"""Of one iteration, of own ones and of peers' each; and attempts in a group."""
KEYS = 70
"""In a row of a run on two cores there are 66."""
READERS = {
    "page": "followed = History(folder); followed.read()",
    "status": "followed = History(folder, budget=1 << 20); followed.read()",
    "whole": "rows = [parse(line) for line in Tail(folder / FILE_NAME).poll()[1]]",
}
APART = """
import json, re, sys, time
from pathlib import Path
from codezero.monitor.run_state import History
from codezero.monitor.metrics_file import FILE_NAME, Tail, parse
folder = Path(sys.argv[1])
most = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before, began, followed = most(), time.perf_counter(), None
{read}
told = {{"seconds": time.perf_counter() - began, "memory_bytes": most() - before}}
if followed is not None:
    with (folder / FILE_NAME).open("rb") as stream:
        row = stream.readline()
    times = []
    for _ in range(50):
        with (folder / FILE_NAME).open("ab") as stream:
            stream.write(row)
        began = time.perf_counter()
        followed.read()
        times.append(time.perf_counter() - began)
    told["next_milliseconds"] = 1e3 * sorted(times)[25]
print(json.dumps(told))
"""


def say(text: str) -> None:
    print(f"page: {text}", file=sys.stderr, flush=True)


def judged(number: int, characters: int) -> list[ScoredGroup]:
    """The groups of one iteration; no two attempts are the same."""
    verdict = Verdict(0.7, 0.7, 1.0, 1.0, 1.0, 1.0, Status.JUDGED, ("correctness 0.70",))
    made: list[ScoredGroup] = []
    for place in range(2 * GROUPS):
        rest = ("x = 1\n" * characters)[:characters]
        texts = [f"{number} {place} {attempt}\n{rest}" for attempt in range(ATTEMPTS)]
        problem = Problem(f"{place:064x}", f"question {place}", ("assert f(1) == 2",), "f", Source.SYNTHETIC, level=3)
        completions = tuple(Completion(text, (1,), (0.0,), True) for text in texts)
        group = RolloutGroup(problem, completions, ME if place % 2 else OTHER, number, number)
        made.append(ScoredGroup(group, (verdict,) * ATTEMPTS))
    return made


def measured(number: int) -> Metrics:
    row: Metrics = {f"measured/number_{place}": number / (place + 3) for place in range(KEYS - 20)}
    return row | {
        "round": number // 60,
        "seconds": 0.25,
        "reward/mean": 0.5,
        "train/loss": -0.004109727335162461,
        "train/entropy": 0.09686853556877137,
        "difficulty/level": 3,
    } | BELIEFS.metrics()  # fmt: skip


BELIEFS = BandTS(seed=0)


class Paced:
    """A clock on which an iteration takes as long as in the run that is imitated."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class KeepsNone(RolloutStore):
    """The other side of the comparison."""

    def begin(self, iteration: int) -> None: ...

    def add(self, iteration: int, judged: Sequence[ScoredGroup]) -> None: ...


def observing(iterations: int, characters: int, pace: float, folder: Path) -> dict[str, Any]:
    """Milliseconds an iteration costs with and without keeping attempts, in turn."""
    clock = Paced()
    monitors: dict[str, RunMonitor] = {}
    for name in ("without", "with"):
        (folder / name).mkdir(parents=True)
        made = RunMonitor(folder=folder / name, view="off", identity=ME, swarm_kind="local", facts={})
        made._rollouts = RolloutStore(folder / name, ME, clock=clock) if name == "with" else KeepsNone(folder, ME)
        made.started(0)
        monitors[name] = made
    took: dict[str, list[float]] = {"without": [], "with": []}
    for number in range(1, iterations + 1):
        clock.now += 1 / pace
        groups, row = judged(number, characters), measured(number)
        for name, made in monitors.items():
            began = time.perf_counter()
            made.observe(number, row, groups)
            took[name].append(1e3 * (time.perf_counter() - began))
    size = sum(path.stat().st_size for path in (folder / "with").glob(f"{FILE}*"))
    for made in monitors.values():
        made.close("measured")
    told = {name: spread(times) for name, times in took.items()}
    return {"attempt_characters": characters, "iterations": iterations, "milliseconds": told, "disk_bytes": size}


def spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "mean": round(statistics.fmean(times), 3),
        "median": round(statistics.median(times), 3),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 3),
        "most": round(ordered[-1], 3),
    }


def reading(rows: int, folder: Path) -> dict[str, Any]:
    """Seconds and memory of reading a long file in different ways."""
    path = folder / FILE_NAME
    line = json.dumps(measured(7) | {"iteration": 7, "time": 1.8e9}).encode() + b"\n"
    with path.open("wb") as stream:
        for number in range(1, rows + 1):
            stream.write(line.replace(b'"iteration": 7,', b'"iteration": %d,' % number))
    told: dict[str, Any] = {"rows": rows, "bytes": path.stat().st_size}
    for name, read in READERS.items():
        say(f"reading {rows} rows: {name}")
        told[name] = read_apart(folder, read)
    return told


def read_apart(folder: Path, read: str) -> dict[str, float]:
    """In a process of its own, so that its memory can be told; then once more after another row."""
    command = [sys.executable, "-P", "-c", APART.format(read=read), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {name: round(value, 4) for name, value in json.loads(done.stdout).items()}


def believing(times: int = 300) -> dict[str, float]:
    """Milliseconds that the difficulty rule needs to tell what it believes, once an iteration."""
    took: list[float] = []
    for _ in range(times):
        began = time.perf_counter()
        BELIEFS.metrics()
        took.append(1e3 * (time.perf_counter() - began))
    return spread(took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--pace", type=float, default=5.0, help="iterations a second of the run that is imitated")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        told: dict[str, Any] = {"observe": []}
        for characters in (150, 4_000):
            say(f"observing {options.iterations} iterations with attempts of {characters} characters")
            told["observe"].append(observing(options.iterations, characters, options.pace, folder / str(characters)))
        told["difficulty_metrics_milliseconds"] = believing()
        told["metrics"] = reading(options.rows, folder)
    print(json.dumps(told, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
