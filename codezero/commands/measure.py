"""Commands that measure: `eval` (an exam, or a published set), `evaluate`, `bench`."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, FAILED, OVERRIDES, Command, say, take_json, take_settings
from codezero.errors import ConfigError

if TYPE_CHECKING:
    from codezero.config import NodeConfig

EPILOG = """SET is one of: synthetic (held-out problems, no file), humaneval, mbpp (its test split), livecodebench,
codeforces (DeepCoder's). The published ones are read from files of this machine, as their authors wrote them: JSONL,
JSONL.gz or Parquet. Without SET: the exam that a run takes, with how far its judge can be believed, writing nothing.

Attempts are EXECUTED in the sandbox of audit.sandbox, or read by the judge with --judged; each figure says which. An
eval that was stopped goes on where it was, when it is started again in the same way.

examples:
  codezero eval synthetic evals.problems=100
  codezero eval humaneval --file HumanEval.jsonl.gz --samples 10 --k 1,10 --checkpoint mine solver.max_new_tokens=512
  codezero eval mbpp --file mbpp.jsonl --compare nano mine
"""


def add(command: Command) -> None:
    _add_eval(command)

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

    benchmark = command("bench", bench, "measure, side by side; NAME is a file of a checkout's benchmarks/: `judge`")
    benchmark.add_argument("name", metavar="NAME", help="which one; `list` names them all")
    benchmark.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="its own arguments, --json and --help too"
    )


def _add_eval(command: Command) -> None:
    exam = command("eval", sit_exam, "attempt the problems of a set: average@k and pass@k, with intervals")
    exam.formatter_class, exam.epilog = argparse.RawDescriptionHelpFormatter, EPILOG
    exam.add_argument("overrides", nargs="*", metavar="[SET] KEY=VALUE", help=OVERRIDES)
    exam.add_argument(
        "--file", type=Path, action="append", default=[], metavar="FILE", help="of SET, or a folder; may be repeated"
    )
    exam.add_argument("--samples", type=int, metavar="N", help="attempts at each problem (default evals.samples)")
    exam.add_argument("--k", metavar="K,K", help="of pass@k, at most N each (default 1 and N)")
    exam.add_argument(
        "--checkpoint",
        metavar="RUN",
        help="whose newest checkpoint attempts them; also a checkpoint's folder or a model",
    )
    exam.add_argument("--compare", nargs=2, metavar=("A", "B"), help="two of these, and how far B is ahead of A")
    exam.add_argument("--judged", action="store_true", help="let the judge read the attempts, and execute nothing")
    exam.add_argument("--into", type=Path, metavar="DIR", help="where its state is kept (default: evals/ of the run)")
    take_json(exam)


def sit_exam(options: argparse.Namespace) -> int:
    from codezero.settings import compose

    words = options.overrides
    name = words.pop(0) if words and "=" not in words[0] else None
    given = [
        option
        for option in ("file", "samples", "k", "checkpoint", "compare", "judged", "into")
        if getattr(options, option)
    ]
    if name is None and given:
        raise ConfigError(f"--{given[0]} needs the name of a set: codezero eval SET --{given[0]} …")
    if options.compare and options.checkpoint:
        raise ConfigError("--compare names both policies; drop --checkpoint")
    config = compose(words)
    if name is None:
        return _sit_once(config, options.json)
    from codezero.wiring.evals import EvalRequest, as_json, lines, measure

    request = EvalRequest(
        set=name,
        files=tuple(options.file),
        samples=config.evals.samples if options.samples is None else options.samples,
        ks=None if options.k is None else _whole_numbers(options.k),
        policies=tuple(options.compare or (options.checkpoint or "",)),
        judged=options.judged,
        into=options.into,
    )
    report = measure(config, request, say)
    print(as_json(report) if options.json else "\n".join(lines(report)))
    return DONE


def _whole_numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise ConfigError(f"--k={text} is no list of whole numbers, as 1,8 is") from error


def _sit_once(config: "NodeConfig", as_json: bool) -> int:
    from codezero.wiring.evals import examine

    measured = examine(config, say)
    if as_json:
        print(json.dumps(measured))
    else:
        for name, value in measured.items():
            print(f"{name:28} {value:.4g}" if isinstance(value, float) else f"{name:28} {value}")
    return DONE


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
    for item, known in marked:
        total += item.contradictions()
        print(json.dumps(item.to_json(known)), flush=True)
    for line in total.lines():
        print(f"codezero: {line}", file=sys.stderr)
    return DONE


def bench(options: argparse.Namespace) -> int:
    """Run the file as `python FILE` does, its folder first on the path."""
    from codezero.settings import beside_package

    folder = beside_package("benchmarks")
    if not folder.is_dir():
        raise ConfigError("benchmarks come with the source checkout, not with the installed package; run this from one")
    benchmarks = {path.stem: path for path in sorted(folder.glob("*.py"))}
    if options.name == "list":
        print("\n".join(benchmarks))
        return DONE
    if options.name not in benchmarks:
        raise ConfigError(f"there is no benchmark {options.name}; choose one of: {', '.join(benchmarks)}")
    import runpy

    sys.argv = [str(benchmarks[options.name]), *options.rest]
    sys.path.insert(0, str(folder))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED if end.code else DONE
    return DONE
