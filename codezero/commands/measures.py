"""Commands that measure: `evaluate`, `data …`, `bench`; `eval` is in exams.py."""

import argparse
import json
import sys
from pathlib import Path

from codezero.commands import eval as exams
from codezero.commands.common import DONE, FAILED, Command, say, take_json, take_settings
from codezero.errors import ConfigError


def add(command: Command) -> None:
    exams.add(command)

    judge = command("evaluate", evaluate, "judge attempts that are already written, with reasons")
    judge.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="JSON lines: question, tests, completions[, entry_point, level]; - is stdin",
    )
    take_settings(judge)
    judge.add_argument(
        "--audit",
        action="store_true",
        help="also EXECUTE every attempt in a sandbox, beside the verdict, and say where they differ",
    )
    take_json(judge, "print a JSON line of verdicts for each line")

    sets = command("data", data, "the problem sets: MBPP, CodeContests, files of your own")
    data_commands = sets.add_subparsers(metavar="DATA_COMMAND", required=True, dest="data")
    listed = data_commands.add_parser("list", help="name the sources, and how much is drawn from each")
    shown = data_commands.add_parser("show", help="print the first problems that a run would draw from a source")
    shown.add_argument("--count", type=int, default=3, metavar="N", help="how many, 1 to 1000 (default 3)")
    checked = data_commands.add_parser("check", help="count the problems that are usable, and why others are not")
    for made in (shown, checked):
        made.add_argument(
            "source", metavar="SOURCE", help="a name that `list` knows, a JSONL or Parquet file, a folder"
        )
    for made in (listed, shown, checked):
        take_settings(made)
        take_json(made, "print JSON")

    benchmark = command("bench", bench, "measure, side by side; NAME is a file of a checkout's benchmarks/: `judge`")
    benchmark.add_argument("name", metavar="NAME", help="which one; `list` names them all")
    benchmark.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="its own arguments, --json and --help too"
    )


def evaluate(options: argparse.Namespace) -> int:
    from codezero.settings import compose

    config = compose(options.overrides)
    from codezero.commands.evaluate import evaluate
    from codezero.monitor.verdict_card import Contradictions, print_marked

    marked = evaluate(config, options.file, audit=options.audit, say=say)
    if not options.json:
        print_marked(marked)
        return DONE
    total = Contradictions()
    for one, known in marked:
        total += one.contradictions()
        print(json.dumps(one.to_json(known)), flush=True)
    for line in total.lines():
        print(f"codezero: {line}", file=sys.stderr)
    return DONE


def data(options: argparse.Namespace) -> int:
    from codezero.commands.data import run

    return run(options)


def bench(options: argparse.Namespace) -> int:
    """Run the file as `python FILE` does, its folder first on the path."""
    from codezero.settings import beside_package

    folder = beside_package("benchmarks")
    if not folder.is_dir():
        raise ConfigError("benchmarks come with the source checkout, not with the installed package; run this from one")
    found = {path.stem: path for path in sorted(folder.glob("*.py"))}
    if options.name == "list":
        print("\n".join(found))
        return DONE
    if options.name not in found:
        raise ConfigError(f"there is no benchmark {options.name}; choose one of: {', '.join(found)}")
    import runpy

    sys.argv = [str(found[options.name]), *options.rest]
    sys.path.insert(0, str(folder))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED if end.code else DONE
    return DONE
