"""What is worth measuring on one card in at most nine minutes: real shapes, random weights, no network.

G1 the preflight's estimate by the measured peak; G2 the learner's tokens a second and MFU, by tokens of a pass and with
activations kept or recomputed; G3 the sampler's, with and without graphs, by rows, through an adapter, and grouped
attention beside torch's of variable length; G4 the gap between sampler and learner; G5 verdicts a second by rows of a
pass; G6 memory that runs out, and two nodes on one card. `card_parts/` says how each is counted; beside the figures
stand those of others, with their source (ANCHORS).

Each part runs in a worker process, for at most its budget, and is written to `card.jsonl` of --into as it ends; the
same command goes on where it was killed. A part that failed or ran out of time is written too, and is not tried again
until its line is removed. --minutes bounds one command, so that several short ones do. --tiny runs everything at a size
for a CPU, which shows that it runs and measures nothing.

Usage: python benchmarks/card.py --json [--into DIR] [--minutes 9] [--only G2 G3] [--tiny]"""

import argparse
import json
import os
import select
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from codezero.system.child import Child, how_it_ended
from codezero.system.signals import end_with_parent

Report = dict[str, Any]
FILE = "card.jsonl"
ANCHORS: Report = {
    "G1": {"ratio": [0.95, 1.20], "what": "never under; aim of this repository"},
    "G2": [
        {"what": f"prime-rl, 1xH100, Qwen3-0.6B, 16k tokens, {how}", "tokens_per_second": speed, "mfu": mfu}
        for how, speed, mfu in (("full", 11_900, 0.111), ("LoRA-16", 13_300, 0.109), ("supervised", 25_500, 0.237))
    ],
    "G3": [
        {"what": "aims of this repository, 0.5B", "tokens_per_second": 20_000, "share_of_bandwidth": 0.4},
        *(
            {
                "what": f"{engine}, A800, 0.5B, 256 rows, 100 to 1,024 tokens in and out",
                "tokens_per_second": speed,
                "source": "github.com/cosmoliu2002/nano-vllm-triton/issues/1",
            }
            for engine, speed in (("nano-vllm-triton", 24_100), ("vLLM", 17_700))
        ),
    ],
    "G4": {"kl": 1e-3, "what": "at most; aim of this repository"},
    "G5": {"judging_share_of_iteration": 0.15, "what": "at most; aim of this repository"},
    "G6": {"what": "no crash, the same loss"},
}


@dataclass(frozen=True)
class Part:
    """What is measured without a break."""

    group: str
    seconds: float
    """Its budget; the first one loads torch in it."""
    kind: str
    arguments: tuple[str, ...] = ()


PARTS = {
    "machine": Part("G0", 40, "machine"),
    "sampling 0.5b": Part("G3", 75, "sampling", ("qwen2.5-0.5b",)),
    "learning 0.5b full": Part("G2", 60, "learning", ("qwen2.5-0.5b", "full")),
    "learning 0.5b lora": Part("G2", 40, "learning", ("qwen2.5-0.5b", "lora")),
    "node 0.5b": Part("G1", 50, "node", ("gpu-8g", "qwen2.5-0.5b", "qwen2.5-1.5b")),
    "judging 1.5b": Part("G5", 45, "judging", ("qwen2.5-1.5b",)),
    "mismatch 0.5b": Part("G4", 35, "mismatch", ("qwen2.5-0.5b",)),
    "attention 0.5b": Part("G3", 15, "attention", ("qwen2.5-0.5b",)),
    "learning 1.5b lora": Part("G2", 60, "learning", ("qwen2.5-1.5b", "lora")),
    "updates 1.5b lora": Part("G1", 40, "updates", ("qwen2.5-1.5b", "lora")),
    "halving 0.5b": Part("G6", 30, "halving", ("qwen2.5-0.5b",)),
    "sharing 0.5b": Part("G6", 45, "sharing", ("qwen2.5-0.5b",)),
}
"""In the order of their worth, should time run out."""


def perform(name: str, into: Path, tiny: bool) -> Report:
    """In the worker."""
    from card_parts import exactness, memory, speed
    from card_parts.workload import Bench

    bench, part = Bench(tiny, into), PARTS[name]
    limits = finished(into, tiny).get("machine", {}).get("result", {})
    acts: dict[str, Callable[..., Report]] = {
        "machine": partial(speed.machine, bench),
        "learning": partial(speed.learning, bench, limits=limits),
        "sampling": partial(speed.sampling, bench, limits=limits),
        "attention": partial(speed.attention, bench),
        "judging": partial(speed.judging, bench),
        "node": partial(memory.whole_node, bench),
        "updates": partial(memory.updates, bench),
        "mismatch": partial(exactness.mismatch, bench),
        "halving": partial(exactness.halving, bench),
        "sharing": partial(exactness.sharing, bench),
    }
    return acts[part.kind](*part.arguments)


def finished(into: Path, tiny: bool) -> dict[str, Report]:
    """The parts of this size that have a line, by name. A line cut off by a kill is none."""
    path, lines = into / FILE, list[Report]()
    for text in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return {line["part"]: line for line in lines if line["tiny"] == tiny}


class Worker:
    """A process that performs parts one after the other, so that torch is loaded once; after a failure a new one."""

    def __init__(self, into: Path, tiny: bool) -> None:
        command = [sys.executable, str(Path(__file__)), "--into", str(into), "--serve", *(["--tiny"] if tiny else [])]
        self._command, self._child, self._tiny = command, None, tiny

    def attempt(self, name: str) -> Report:
        """The part's line: its result, or why there is none."""
        began, part = time.monotonic(), PARTS[name]
        if self._child is None:
            self._child = Child(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._child.stdin and self._child.stdout
        self._child.stdin.write(f"{name}\n".encode())
        self._child.stdin.flush()
        ready, _, _ = select.select([self._child.stdout], [], [], part.seconds)
        if not ready:
            self._child.kill()
        answer = self._child.stdout.readline() if ready else b""
        outcome = json.loads(answer) if answer else {"error": f"not done after {part.seconds:.0f} seconds"}
        if ready and not answer:
            outcome = {"error": f"the process {how_it_ended(self._child.wait())}"}
        if "error" in outcome:
            self.close()
        line = {"part": name, "group": part.group, "tiny": self._tiny, **outcome}
        return line | {"seconds": round(time.monotonic() - began, 1), "budget": part.seconds}

    def close(self) -> None:
        if self._child is not None:
            with self._child:  # its pipes are closed too
                self._child.kill()
            self._child = None


def serve(into: Path, tiny: bool) -> None:
    """The worker: a line of standard input is a part, a line of standard output its outcome."""
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        try:
            outcome = {"result": perform(line.strip(), into, tiny)}
        except Exception as error:  # noqa: BLE001 - whatever a part raises is its outcome
            traceback.print_exc()
            outcome = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(outcome), file=answers, flush=True)


def measure(into: Path, tiny: bool, minutes: float, groups: list[str]) -> Iterator[str]:
    """Run what has no line yet; the names of parts for which this command has no time left."""
    ends, done = time.monotonic() + 60 * minutes, finished(into, tiny)
    wanted = [name for name, part in PARTS.items() if part.group in {"G0", *groups}]
    worker = Worker(into, tiny)
    for name in wanted:
        if name in done:
            continue
        budget = PARTS[name].seconds
        if time.monotonic() + (0 if tiny else budget) > ends:
            yield name
            continue
        say(f"{name}, at most {budget:.0f} seconds")
        line = worker.attempt(name)
        say(f"{name}: {line.get('error', 'done')} after {line['seconds']} seconds")
        keep(into / FILE, line)
    worker.close()


def keep(path: Path, line: Report) -> None:
    """A line of its own, also after one that was cut off."""
    with path.open("ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        cut_off = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * cut_off + json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def say(doing: str) -> None:
    print(f"card: {doing}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    groups = sorted(ANCHORS)
    parser.add_argument("--json", action="store_true", help="one line instead of many")
    parser.add_argument("--into", type=Path, default=Path("runs/card"), help="folder of finished parts")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this command; no part begins that may not end")
    parser.add_argument("--only", nargs="+", choices=groups, default=groups, metavar="G", help="G1 to G6")
    parser.add_argument("--tiny", action="store_true", help="everything at a size for a CPU")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    into = options.into.resolve()
    into.mkdir(parents=True, exist_ok=True)
    if options.serve:
        serve(into, options.tiny)
        return 0
    waiting = list(measure(into, options.tiny, options.minutes, options.only))
    done = finished(into, options.tiny)
    report: Report = {
        group: {
            "anchors": ANCHORS.get(group),
            "parts": {name: line for name, line in done.items() if line["group"] == group},
        }
        for group in ("G0", *options.only)
    }
    report |= {"tiny": options.tiny, "waiting": waiting, "seconds": round(sum(x["seconds"] for x in done.values()), 1)}
    print(json.dumps(report, indent=None if options.json else 1))
    return 0 if not any("error" in line for line in done.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
