"""Commands that measure: `eval` (an exam, or a published set), `ask` (one task), `bench`."""

import argparse
import os
import re
import sys
from pathlib import Path

from codezero.commands.common import OVERRIDES, Arguments, Commands, answer, composed, flag, say, value
from codezero.errors import ConfigError, translated

EPILOG = """SET is one of: synthetic (held-out problems, no file), humaneval, mbpp (its test split), livecodebench,
codeforces (DeepCoder's). The published ones are read from files of this machine, as their authors wrote them: JSONL,
JSONL.gz or Parquet. Without SET: the exam that a run takes, with how far its judge can be believed, writing nothing.

Attempts are EXECUTED in the sandbox of audit.sandbox, or read by the judge with --judged; each figure says which. An
eval that was stopped goes on where it was, when it is started again in the same way; more --samples are added to those
that are there. evals.temperature=0 is greedy decoding.

examples:
  codezero eval synthetic evals.problems=100
  codezero eval humaneval --file HumanEval.jsonl.gz --samples 10 --k 1,10 --checkpoint mine solver.max_new_tokens=512
  codezero eval humaneval --file HumanEval.jsonl.gz --limit 20 evals.temperature=0
  codezero eval mbpp --file mbpp.jsonl --compare nano mine
"""
ASK = """Attempts are judged, and with tests EXECUTED in the sandbox of audit.sandbox; equal ones are shown once.

examples:
  codezero ask                                          a held-out problem, before and after
  codezero ask --level 4 --checkpoint mine
  codezero ask "Write a function add(a, b) that returns their sum." --tests "assert add(1, 2) == 3"
"""
SETTING = re.compile(r"[+~]*[\w.@/]+=")  # how KEY=VALUE begins; a task does not
PRELUDE_NAMES = ("none", "typing", "livecodebench", "codeforces")
PRELUDE = f"imports that stand before every answer: {', '.join(PRELUDE_NAMES)} (default: the set's)"
POLICY = "whose newest checkpoint attempts them; also a checkpoint's folder or a model"
# options that need the name of a set
OF_A_SET: Arguments = {
    "--file": value(Path, "FILE", "of SET, or a folder; may be repeated", action="append", default=[]),
    "--samples": value(int, "N", "attempts at each problem (default evals.samples; 1 with evals.temperature=0)"),
    "--limit": value(int, "N", "at most so many of its problems; the figures say which"),
    "--start": value(int, "N", "the number of the first problem (default 1)"),
    "--skip-bad": flag("leave out rows that cannot be used, and count them"),
    "--k": value(str, "K,K", "of pass@k, at most N each (default 1 and N)"),
    "--checkpoint": value(str, "RUN", POLICY),
    "--compare": {"nargs": 2, "metavar": ("A", "B"), "help": "two of these, and how far B is ahead of A"},
    "--prelude": value(str, "NAME", PRELUDE),
    "--judged": flag("let the judge read the attempts, and execute nothing"),
    "--into": value(Path, "DIR", "where its state is kept (default: evals/ of the run)"),
}


def add(commands: Commands) -> None:
    exam = "attempt the problems of a set: average@k and pass@k"
    takes = {"overrides": value(str, "[SET] KEY=VALUE", OVERRIDES, nargs="*"), **OF_A_SET}
    commands.add("eval", evaluate_policy, exam, takes, settings="", epilog=EPILOG)
    takes = {
        "overrides": value(str, "[TASK] KEY=VALUE", f"the task in words; {OVERRIDES}", nargs="*"),
        "--tests": value(str, "ASSERT", "an assertion; may be repeated", action="append", default=[]),
        "--problem": value(int, "N", "the N-th held-out problem; without TASK and N one is drawn"),
        "--level": value(int, "L", "draw one of this level, 1 to 5"),
        "--samples": value(int, "N", "attempts of each model (default 8; 1 with evals.temperature=0)"),
        "--checkpoint": value(str, "RUN", f"{POLICY} (default: the newest run's)"),
    }
    task = "try what a run has learned: attempts at a task, before and after"
    commands.add("ask", ask_solver, task, takes, settings="", epilog=ASK)
    name = value(str, "NAME", "which one; `list` describes them, `all --report` compares the figures of README.md")
    rest = value(str, "...", "its own arguments, --json and --help too", nargs=argparse.REMAINDER)
    files = "run a benchmark of the source checkout"
    commands.add("bench", bench, files, {"name": name, "rest": rest}, settings="", json="")


def evaluate_policy(options: argparse.Namespace) -> int:
    typed = options.overrides
    name = typed.pop(0) if typed and "=" not in typed[0] else None
    given = next((option for option in OF_A_SET if getattr(options, option[2:].replace("-", "_"))), None)
    if name is None and given:
        raise ConfigError(f"{given} needs the name of a set: codezero eval SET {given} …")
    if options.compare and options.checkpoint:
        raise ConfigError("--compare names both policies; drop --checkpoint")
    config = composed(options)
    from codezero.evals.run import MAX_SAMPLES, attempts_of
    from codezero.evals.sets import PUBLISHED
    from codezero.ops.measure import EvalRequest, examine, measure
    from codezero.system.signals import unwinding

    if name in PUBLISHED and any(word.startswith("evals.problems=") for word in typed):
        raise ConfigError(f"evals.problems is of the exam, and not of {name}; give --limit N")
    if options.samples is None and any(word.startswith("evals.samples=") for word in typed):
        options.samples = config.evals.samples
    if options.prelude not in (None, *PRELUDE_NAMES) or (options.prelude and name not in PUBLISHED):
        raise ConfigError(f"--prelude={options.prelude}: for a published set, one of {', '.join(PRELUDE_NAMES)}")
    attempts_of(config.evals, options.samples, MAX_SAMPLES)
    if name is None:
        exam = examine(config, say)
        shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in exam.items()}
        return answer(options, exam, "\n".join(f"{key:28} {value}" for key, value in shown.items()))
    with translated(ConfigError, f"--k={options.k} is no list of whole numbers, as 1,8 is", ValueError, reason=False):
        ks = [int(part) for part in options.k.split(",")] if options.k else []
    taken = {key: getattr(options, key) for key in ("samples", "limit", "skip_bad", "prelude", "judged", "into")}
    policies = tuple(options.compare or (options.checkpoint or "",))
    start, ks = 1 if options.start is None else options.start, tuple(dict.fromkeys(ks))
    request = EvalRequest(set=name, files=tuple(options.file), ks=ks, start=start, policies=policies, **taken)
    with unwinding():
        report = measure(config, request, say)
    return answer(options, report.as_object(), "\n".join(report.lines()))


def ask_solver(options: argparse.Namespace) -> int:
    texts = [word for word in options.overrides if not SETTING.match(word)]
    options.overrides = [word for word in options.overrides if SETTING.match(word)]
    if len(texts) > 1:
        raise ConfigError(f"one task at a time: put it in quotes, codezero ask '{' '.join(texts)}'")
    config = composed(options)
    from codezero.commands.evaluate import AskRequest, ask
    from codezero.monitor.cards import print_answers

    text, tests = "".join(texts).strip(), tuple(options.tests)
    request = AskRequest(text, tests, options.problem, options.level, options.samples, options.checkpoint or "")
    result = ask(config, request, say)
    return answer(options, result.to_json(), lambda: print_answers(result))


def bench(options: argparse.Namespace) -> int:
    """Become `python FILE`."""
    import ast  # --help does without both
    import tomllib

    from codezero.system.files import beside_package

    folder = beside_package("benchmarks")
    if not folder.is_dir():
        raise ConfigError("benchmarks come with the source checkout, not with the installed package; run this from one")
    with (folder.parent / "results" / "claims.toml").open("rb") as file:
        minutes: dict[str, float] = tomllib.load(file)["minutes"]
    benchmarks = {name: folder / f"{name}.py" for name in sorted(minutes)}
    if options.name == "list":
        about = {name: ast.get_docstring(ast.parse(path.read_text())) or "" for name, path in benchmarks.items()}
        first = {name: text.partition("\n")[0] for name, text in about.items()}
        listed = [{"name": name, "minutes": minutes[name], "measures": line} for name, line in first.items()]
        options.json = options.rest == ["--json"]
        if options.rest and not options.json:
            raise ConfigError(f"`bench list` takes --json and nothing else, not {' '.join(options.rest)}")
        row = "{name:12} {minutes:>5g} min  {measures}".format
        return answer(options, listed, "\n".join(row(**each) for each in listed))
    if options.name not in benchmarks:
        raise ConfigError(f"there is no benchmark {options.name}; choose one of: {', '.join(benchmarks)}")
    os.environ.pop("PYTHONSAFEPATH", None)  # a benchmark imports what lies beside it
    os.execv(sys.executable, [sys.executable, str(benchmarks[options.name]), *options.rest])
