"""Does every figure of README.md and docs/ still hold? The benchmarks of the claims, run again or read from `results/`.

`results/claims.toml` lists the claims: the words of a page, the file in `results/` with the raw data, the place of
the figure in it, the value and its tolerance or bound, and the command that measures it. --report compares the stored
files, and a missing one is a failure. --check runs the commands, the shortest first, and writes files of the same form
to --into, which may be carried to `results/`. A file holds the benchmark's own JSON, the commit, the command, the
seeds, the seconds and the machine: processor, cores, memory, versions, no names. The list also has the sections whose
figures were measured at an earlier commit without such a file.

Prints a line for each claim: holds, fails, or not run, with the commit of the data; and one for each section without
data. Exit code 1 if one fails.

    codezero bench all --report
    codezero bench all --check --minutes 30 --into runs/check --data FOLDER
"""

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parent
STORED = BENCHMARKS.parent / "results"
PATH = re.compile(r"(?<![\w.:/])/(?:[\w.+@-]+/)+[\w.+@-]*")
"""Of a machine; arms such as 4/12 are none."""
HOLDS, FAILS, NOT_RUN, NO_DATA = "holds", "fails", "not run", "no data"
Report = dict[str, Any]


@dataclass(frozen=True)
class Measurement:
    """What gives one file of `results/`."""

    command: str
    """Benchmark and arguments, {into} its own folder, {data} the published sets."""
    minutes: float = 0
    """As it usually takes on one core."""
    seeds: tuple[int, ...] = ()

    def arguments(self, into: Path, data: Path | None) -> list[str]:
        name, *rest = shlex.split(self.command)
        words = [word.format(into=into.resolve(), data=data and data.resolve()) for word in rest]
        return [sys.executable, str(BENCHMARKS / f"{name}.py"), "--json", *words]


@dataclass(frozen=True)
class Claim:
    """One figure, or several of one kind, as a page states them."""

    text: str
    result: str
    path: tuple[str, ...]
    """Keys of the benchmark's JSON and places of its lists; in each * stands for any text."""
    value: tuple[float, ...] = ()
    tolerance: float = 0
    least: float = float("-inf")
    most: float = float("inf")
    """Bounds of every figure, beside or instead of the value."""
    times: float = 1
    """The page's unit by the benchmark's: 100 for per cent of a share."""
    total: bool = False
    """The sum is claimed."""
    page: str = "README.md"

    def figures(self, measured: Any) -> list[float]:
        """In the page's unit. Raises LookupError, TypeError, ValueError where the JSON has none."""
        found = [self.times * float(each) for each in reached(measured, self.path)]
        if not found:
            raise LookupError("no figure")
        return [sum(found)] if self.total else found

    def holds(self, figures: Sequence[float]) -> bool:
        if not all(self.least - 1e-9 <= figure <= self.most + 1e-9 for figure in figures):
            return False
        pairs = zip(figures, self.value, strict=False)
        near = all(abs(figure - value) <= self.tolerance + 1e-9 for figure, value in pairs)
        return not self.value or (len(figures) == len(self.value) and near)


def reached(node: Any, path: Sequence[str]) -> Iterator[Any]:
    """What lies there, below every key that fits. Raises LookupError, TypeError, ValueError."""
    if not path:
        yield node
    elif "*" in path[0]:
        keys: Iterable[Any] = node if hasattr(node, "keys") else range(len(node))
        for key in keys:
            if fnmatchcase(str(key), path[0]):
                yield from reached(node[key], path[1:])
    else:
        yield from reached(node[int(path[0]) if isinstance(node, list) else path[0]], path[1:])


def read_claims(path: Path) -> tuple[dict[str, Measurement], list[Claim], dict[str, str]]:
    """Measurements by name, claims, and commands by section without data. Raises TypeError for a key that is none."""
    read = tomllib.loads(path.read_text())
    made = {name: Measurement(**row | {"seeds": tuple(row.get("seeds", ()))}) for name, row in read["results"].items()}
    rows = [row | {key: tuple(row.get(key, ())) for key in ("path", "value")} for row in read["claims"]]
    return made, [Claim(**row) for row in rows], read.get("without_data", {})


# ------------------------------------------------------------------ measuring


def machine() -> Report:
    """What figures depend on, and nothing that names this machine or its owner."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": models[0].strip() if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory, 1),
        "python": platform.python_version(),
        "torch": version("torch"),
    }


def commit() -> str | None:
    """Of the checkout, "+changes" where files of it were edited; None without git."""
    try:
        git = ["git", "-C", str(BENCHMARKS.parent)]
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        return (
            head
            if subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False).returncode == 0
            else f"{head}+changes"
        )
    except (OSError, subprocess.CalledProcessError):
        return None


def measure(name: str, what: Measurement, into: Path, data: Path | None) -> str:
    """Run the benchmark and write its file; why there is none, or nothing."""
    folder = into / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    began, at = time.monotonic(), commit()
    command = what.arguments(folder, data)
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=False)
    seconds = round(time.monotonic() - began, 1)
    try:
        result = json.loads(PATH.sub("PATH", done.stdout))
    except ValueError:
        return f"the benchmark printed no JSON, exit code {done.returncode}"
    if done.returncode:
        return f"the benchmark ended with exit code {done.returncode}"
    header = {"command": f"codezero bench {what.command}", "commit": at, "seeds": what.seeds}
    written = header | {"seconds": seconds, "machine": machine(), "result": result}
    (into / f"{name}.json").write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    return ""


def measured(wanted: dict[str, Measurement], options: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Of each result that has no new file: NOT_RUN or FAILS, and why."""
    without: dict[str, tuple[str, str]] = {}
    ends = time.monotonic() + 60 * options.minutes
    for name, what in sorted(wanted.items(), key=lambda item: item[1].minutes):
        if "{data}" in what.command and options.data is None:
            without[name] = NOT_RUN, "needs --data FOLDER, with the files of the published sets"
        elif time.monotonic() + 60 * what.minutes > ends:
            without[name] = NOT_RUN, f"takes {what.minutes:g} minutes"
        else:
            say(f"{name}, usually {what.minutes:g} minutes: codezero bench {what.command}")
            if why := measure(name, what, options.into, options.data):
                without[name] = FAILS, why
            say(f"{name}: {why or 'measured'}")
    return without


# ------------------------------------------------------------------ comparing


def compared(claim: Claim, folder: Path) -> tuple[str, str]:
    """HOLDS or FAILS, and what was found."""
    path = folder / f"{claim.result}.json"
    try:
        read = json.loads(path.read_text())
        figures, at = claim.figures(read["result"]), str(read["commit"])[:8]
    except FileNotFoundError:
        return FAILS, f"there is no {path.name}"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return FAILS, f"{path.name} has no figure at {'.'.join(claim.path)}: {error}"
    found = ", ".join(f"{figure:.5g}" for figure in figures)
    return (HOLDS if claim.holds(figures) else FAILS), f"{found} (commit {at})"


def judge(claims: Sequence[Claim], folder: Path, without: dict[str, tuple[str, str]]) -> list[Report]:
    rows = [(claim, *(without.get(claim.result) or compared(claim, folder))) for claim in claims]
    return [
        {"claim": f"{claim.page}: {claim.text}", "result": claim.result, "state": state, "found": found}
        for claim, state, found in rows
    ]


def say(text: str) -> None:
    print(f"all: {text}", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    made, claims, no_data = read_claims(STORED / "claims.toml")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--check", action="store_true", help="measure again")
    way.add_argument("--report", action="store_true", help="measure nothing; compare the files that are there")
    parser.add_argument(
        "--only", nargs="+", choices=list(made), default=list(made), metavar="NAME", help=", ".join(made)
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing that usually ends later")
    parser.add_argument("--into", type=Path, help="folder of the files (--check: runs/check, --report: results)")
    parser.add_argument("--data", type=Path, help="folder with HumanEval.jsonl.gz and mbpp.jsonl")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(argv)
    options.into = options.into or (Path("runs/check") if options.check else STORED)
    without = measured({name: made[name] for name in options.only}, options) if options.check else {}
    rows = judge([claim for claim in claims if claim.result in options.only], options.into, without)
    if len(options.only) == len(made):
        rows += [
            {"claim": section, "result": "", "state": NO_DATA, "found": f"earlier commit: codezero bench {command}"}
            for section, command in no_data.items()
        ]
    if options.json:
        print(json.dumps({"claims": rows}, ensure_ascii=False))
    else:
        print("\n".join(f"{row['state']:8} {row['result']:22} {row['claim']}: {row['found']}" for row in rows))
    return 1 if any(row["state"] == FAILS for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
