"""A node that nobody watches, for most of an hour, with a fault every minute. What it costs: memory, points, time?

`codezero run --supervise` on the embedded models with a chain and a swarm link of its own and the judge behind HTTP, on
a small file system of its own. Each minute one of six faults is begun, and healed before the minute is over: judge
down, chain down, disk full, a hostile peer, a jump of the clock, the node killed. Their order is shuffled from --seed,
each once before one comes again. Nothing is simulated but the clock, which only Python code sees jump: moving that of
the machine would move it for everybody, and a time namespace has no wall clock. Needs Linux, `unshare` and a checkout.

Every 15 s `codezero status --json` is asked and the node's memory added up: PSS of all its processes but the chain,
without mapped files, whose share depends on who else maps them.
At the end the node is stopped by SIGTERM, and the chain is asked for every round.

* memory: the last five minutes beside minutes 5 to 10, at equal age of the process; `memory_flat` within 5 %.
* points_lost: iterations whose reward is not counted, or in a round that the chain does not hold with its value.
* stuck_unseen: minutes without a new iteration that `status` did not show, by a problem or the age of the last step.

Prints JSON; exit code 1 when memory is not flat, a point is lost, a stuck minute was not seen, or the node's own exit
code is not 0. --keep DIR gets the samples, the logs and the metrics.

    python benchmarks/soak.py --json [--minutes 45] [--seed 0] [--keep DIR]
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "soak_ways"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import figures
from faults import ChainDown, ChildKilled, ClockJump, DiskFull, Fault, HostilePeer, JudgeDown
from living import TESTS, Clock, Judge, Living

LOOK_SECONDS, FOLLOW_SECONDS = 15.0, 0.5
BEGIN, HEAL = 5.0, 45.0  # Seconds of each minute at which its fault begins, and is over
START_SECONDS = 420.0  # For the first iteration, on a busy machine
DISK_MIB = 256
INSIDE = "SOAK_DISK"


def say(text: str) -> None:
    print(f"soak: {text}", file=sys.stderr, flush=True)


class Watching:
    """Looks at the node from threads of its own."""

    def __init__(self, node: Living, keep: Path) -> None:
        self.node, self.fault = node, ""
        self.samples: list[figures.Sample] = []
        self._over = threading.Event()
        self._told = (keep / "samples.jsonl").open("a")
        self._threads = [threading.Thread(target=work) for work in (self._follow, self._look)]
        for thread in self._threads:
            thread.start()

    def _follow(self) -> None:
        while not self._over.wait(FOLLOW_SECONDS):
            self.node.follow()

    def _look(self) -> None:
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            due = max(due + LOOK_SECONDS, time.monotonic())
            self.samples.append(self.node.look(self.fault))
            print(json.dumps(asdict(self.samples[-1])), file=self._told, flush=True)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._told.close()


def shuffled(kinds: dict[str, Fault], seed: int, minutes: int) -> list[str]:
    """For each minute one; each once before one comes again."""
    dice, order = random.Random(seed), list[str]()
    while len(order) < minutes:
        turn = list(kinds)
        dice.shuffle(turn)
        order += turn
    return order[:minutes]


def torment(node: Living, watching: Watching, kinds: dict[str, Fault], order: list[str]) -> list[dict[str, Any]]:
    """A fault each minute; what was done, and when, in seconds since the node's start."""
    done: list[dict[str, Any]] = []
    first = time.monotonic()
    for minute, kind in enumerate(order):
        time.sleep(max(0.0, first + 60 * minute + BEGIN - time.monotonic()))
        watching.fault, at = kind, node.now
        how = kinds[kind].begin(node)
        say(f"minute {minute + 1} of {len(order)}: {kind}: {how or 'nothing there to hit'}")
        time.sleep(max(0.0, first + 60 * minute + HEAL - time.monotonic()))
        if how:
            kinds[kind].heal(node)
        watching.fault = ""
        done.append({"kind": kind, "how": how, "at": round(at, 1), "healed": round(node.now, 1)})
        if node.process.poll() is not None:
            say(f"the node ended by itself with {node.process.returncode}")
            break
    time.sleep(max(0.0, first + 60 * len(done) - time.monotonic()))
    return done


def soak(disk: Path, keep: Path, minutes: int, seed: int) -> dict[str, Any]:
    judge, clock = Judge(keep), Clock(keep)
    node = Living(disk, keep, judge, clock)
    watching = Watching(node, keep)
    try:
        end = time.monotonic() + START_SECONDS
        while not node.steps and node.process.poll() is None and time.monotonic() < end:
            time.sleep(0.5)
        if not node.steps:
            raise SystemExit(f"soak: the node made no iteration in {START_SECONDS:g} s; see {keep}")
        kinds: dict[str, Fault] = {"judge down": JudgeDown(judge), "chain down": ChainDown(), "disk full": DiskFull()}
        kinds |= {"peer hostile": HostilePeer(keep), "clock jump": ClockJump(clock), "child killed": ChildKilled()}
        done = torment(node, watching, kinds, shuffled(kinds, seed, minutes))
        watching.close()
        finished = node.now
        code = node.stop()
        return report(node, watching.samples, done, finished) | {"exit_code": code, "seed": seed}
    finally:
        watching.close()
        node.kill()
        judge.kill()
        (keep / "steps.json").write_text(json.dumps(node.steps))
        for found in ("logs", "runs/soak/metrics.jsonl", "runs/chain/chain.log"):
            source, target = disk / found, keep / Path(found).name
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, target)


def report(node: Living, samples: list[figures.Sample], done: list[dict[str, Any]], finished: float) -> dict[str, Any]:
    counted = node.counted()
    chain = node.on_chain(sorted({number for number, _ in counted}))
    standing = figures.stuck(node.steps, samples, finished)
    return {
        "minutes": len(done),
        "iterations": len(node.steps),
        "restarts": node.lives - 1,
        "most_deaths_in_a_row": node.deaths_in_a_row(),
        "machine_load_median": round(statistics.median(one.load for one in samples), 1),
        "faults": figures.by_fault(done, samples),
        "memory": figures.memory(samples),
        "points": figures.points(node.rewards(), counted, chain),
        **standing,
        "status_exit_codes": sorted({one.code for one in samples}),
        "order": done,
    }


def passed(told: dict[str, Any]) -> bool:
    sound = told["memory"]["memory_flat"] and not told["points"]["points_lost"] and not told["stuck_unseen"]
    return bool(sound) and told["exit_code"] == 0


def inside(arguments: list[str]) -> int:
    """This program again, where a small file system can be mounted that nobody else sees and that ends with it."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        script = 'mount -t tmpfs -o size="$0" soak "$SOAK_DISK" && exec "$@"'
        words = ["unshare", "-rm", "sh", "-c", script, f"{DISK_MIB}m", sys.executable, __file__, *arguments]
        return subprocess.run(words, env=os.environ | {INSIDE: folder}).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=int, default=45, help="faults, one a minute (default 45)")
    parser.add_argument("--seed", type=int, default=0, help="of the faults' order")
    parser.add_argument("--keep", type=Path, help="folder for samples, logs and metrics")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    options = parser.parse_args()
    if not (TESTS / "fakes" / "judge_server.py").exists() or shutil.which("unshare") is None:
        raise SystemExit(
            "soak: needs a checkout, whose tests have the judge and the hostile peer, and `unshare` of Linux"
        )
    if INSIDE not in os.environ:
        return inside(sys.argv[1:])
    keep = options.keep or Path(tempfile.mkdtemp(prefix="soak-kept-"))
    keep.mkdir(parents=True, exist_ok=True)
    told = soak(Path(os.environ[INSIDE]), keep.resolve(), options.minutes, options.seed)
    (keep / "soak.json").write_text(json.dumps(told, indent=2))
    print(json.dumps(told, indent=None if options.json else 2))
    return 0 if passed(told) else 1


if __name__ == "__main__":
    sys.exit(main())
