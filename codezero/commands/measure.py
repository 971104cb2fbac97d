"""Commands that measure: `eval` (an exam, or a published set), `ask` (one task), `judge`, `bench`; `export` takes home.

`judge FILE`: verdicts on attempts; `judge rate`: judges compared; `judge serve`: the judge for other programs;
`judge verify`: did it read them?"""

import argparse
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

from codezero.commands import common
from codezero.commands.common import OVERRIDES, Arguments, Commands, answer, composed, flag, say, value
from codezero.errors import ConfigError, translated

EPILOG = """SET is one of: synthetic (held-out problems, no file), humaneval, mbpp (its test split), livecodebench,
humanevalplus, mbppplus. The published ones are read from files of this machine, as their authors wrote them: JSONL,
JSONL.gz or Parquet.
Without SET: the exam that a run takes, with how far its judge can be believed, writing nothing.

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
TOKEN = "CODEZERO_JUDGE_TOKEN"  # environment variable with what callers from other machines have to bear
SERVE = f"""Routes: /request-question, /submit-answer and /current_clue for rl-swarm's JudgeClient; /v1/verdicts for
batches, with a signed receipt; /v1/card says who the judge is and how far it can be believed.
Nothing that is sent is executed.
  codezero judge serve
  curl -s localhost:8090/v1/verdicts -H 'Content-Type: application/json' -d @items.json > receipt.json
  codezero judge verify items.json receipt.json
Other machines need {TOKEN}: export it here, and send it as `Authorization: Bearer`.
"""
VERIFY = """Checks the signature, then reads some programs again with evaluator.model, as the signer should have. It
proves that these weights read the program so, not that the program is right. Exit code 1: it does not hold.
"""
TRAIN = """A probe is a direction in the hidden states of evaluator.model along which right and wrong attempts of
model.solver at one problem differ. Attempts are sampled, EXECUTED in the sandbox of audit.sandbox, and kept in
--attempts, from where the same command goes on. What is printed is the AUROC within groups, in folds: on problems that
the direction was not fitted on. With --others it is fitted on several sets, and each set has a figure of a direction
that was fitted on the others alone, as a run on problems of another kind has it.
  codezero judge train --problems mbpp.jsonl --rows 601-974 --attempts attempts.jsonl --out probe.json \\
      model.solver=Qwen/Qwen2.5-Coder-0.5B-Instruct evaluator.model=Qwen/Qwen2.5-Coder-1.5B-Instruct
  codezero run evaluator.probe=probe.json ...
"""
RATE = """JUDGE is one of: a directory or hub id of a reward model (a sequence classifier with one logit), or of a
language model, which is asked evaluator.questions; nano; NAME@http://HOST:PORT of a server, or ollama:NAME@…;
FILE.py:ATTRIBUTE of your own. All are asked about the same programs. A line of FILE holds question, tests, completions
and passed: true, false or null for each. `judge train` keeps such files. Without FILE the solver attempts embedded
problems that nothing trains on, and its attempts are EXECUTED in the sandbox of audit.sandbox.

AUROC within groups: does a right attempt score above a wrong one at the same problem? Only that teaches. Probabilities
are calibrated on the attempts at other problems.
  codezero judge rate nano
  codezero judge rate Skywork/Skywork-Reward-V2-Qwen3-0.6B Qwen/Qwen2.5-Coder-1.5B-Instruct --attempts attempts.jsonl
"""
ATTEMPTS = """  codezero judge FILE --audit          the same as `judge attempts FILE --audit`
  codezero judge attempts --help       what FILE holds
"""
WARM = """GRPO learns from attempts of which some pass; where none does, a few supervised steps come first. The exam is
the run's own, executed, the same before and after; no solution of a problem like one of it is learned.
  codezero warm mbpp --steps 50 --into warm model.solver=DIR model.train=lora
  codezero warm mbpp --own 8 --into warm model.solver=DIR      what passes of 8 own attempts at each
  codezero run model.solver=warm
"""
FORMS = ("merged", "adapter", "gguf", "ollama")
EXPORT = """Each export has a card beside it: base and digests, the exam from start to end, how to measure it again.
--verify N answers N held-out problems greedily with the export and with the checkpoint, EXECUTES both in the sandbox of
audit.sandbox, and ends with 1 where the export is not what was measured. Of a GGUF llama.cpp's server answers.
A GGUF needs `uv sync --no-dev --extra gguf`.

examples:
  codezero export mine --merged mine-merged             loads with from_pretrained
  codezero export mine --adapter mine-adapter           loads with peft; of a run with model.train=lora
  codezero export mine --gguf mine.gguf --quantize q8_0 --verify 20
  codezero export mine --ollama mine-ollama             then `ollama create mine -f mine-ollama/Modelfile`
"""
OF_AN_EXPORT: Arguments = {
    "policy": value(
        str, "RUN", "whose best checkpoint is exported, or its newest; also a checkpoint's folder or a model"
    ),
    "--merged": value(Path, "DIR", "a whole model, an adapter multiplied out in the precision of its base"),
    "--adapter": value(Path, "DIR", "the adapter alone, with the digest of its base"),
    "--gguf": value(Path, "FILE", "one file for llama.cpp; Qwen2, Qwen3 and Llama"),
    "--ollama": value(Path, "DIR", "that file and a Modelfile; models whose chat template is ChatML"),
    "--quantize": value(str, "HOW", "of a GGUF: f16 (default), q8_0 or q4_k_m"),
    "--verify": value(int, "N", "hold greedy answers to N held-out problems against the checkpoint's", default=0),
}
SETTING = re.compile(r"[+~]*[\w.@/]+=")  # how KEY=VALUE begins; a task does not
PRELUDE_NAMES = ("none", "typing", "livecodebench")
PRELUDE = f"imports that stand before every answer: {', '.join(PRELUDE_NAMES)} (default: the set's)"
POLICY = "whose best checkpoint, or newest, attempts them; also a checkpoint's folder or a model"
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
    takes = {
        "data": value(str, "DATA", "rows with solutions: a file, a folder, hub:USER/NAME or a set's name"),
        "--own": value(int, "N", "EXECUTE N own attempts at each; learn those that pass", default=0),
        "--steps": value(int, "N", "of 32 solutions each (default 100)", default=100),
        "--into": value(Path, "DIR", "a new folder for the policy; begin with it by model.solver=DIR", required=True),
    }
    about = "supervised steps, for a model that solves nothing yet"
    commands.add("warm", warm_solver, about, takes, epilog=WARM)
    _add_judge(commands)
    about = "take home what a run has learned: merged, adapter, GGUF, Ollama"
    commands.add("export", export_policy, about, OF_AN_EXPORT, epilog=EXPORT)
    name = value(str, "NAME", "which one; `list` describes them, `all --report` compares the figures of README.md")
    rest = value(str, "...", "its own arguments, --json and --help too", nargs=argparse.REMAINDER)
    files = "run a benchmark of the source checkout"
    commands.add("bench", bench, files, {"name": name, "rest": rest}, settings="", json="")


def _add_judge(commands: Commands) -> None:
    about = "judge attempts that are already written; the judge as a service"
    group = commands.group("judge", about, ATTEMPTS, alone="attempts")
    file = value(Path, "FILE", "JSON lines: question, tests, completions[, entry_point, level]; - is stdin")
    audit = flag("also EXECUTE every attempt in a sandbox, beside the verdict, and say where they differ")
    skip = flag("leave out lines that cannot be used, and count them")
    arguments = {"file": file, "--audit": audit, "--skip-bad": skip}
    lines = "print a JSON line of verdicts for each line"
    group.add("attempts", attempts, "judge the attempts in FILE, with reasons", arguments, json=lines)
    commands.add("evaluate", attempts, "the old name of `judge FILE`", arguments, json=lines)
    takes = {
        "--host": value(str, "HOST", "where to listen (default 127.0.0.1)", default="127.0.0.1"),
        "--port": value(int, "PORT", "0 takes any (default 8090)", default=8090),
        "--open": flag(f"let whoever reaches the port use the routes of JudgeClient without {TOKEN}"),
        "--no-receipts": flag("sign none, which spares the judge's float64 copy"),
    }
    group.add("serve", serve, "serve verdicts over HTTP", takes, json="print where it is as JSON", epilog=SERVE)
    takes = {
        "--problems": value(str, "FILE", "rows of problems with tests, none of them of your exam", required=True),
        "--rows": value(str, "A-B", "of FILE, by MBPP's task_id, as 601-974", default=""),
        "--samples": value(int, "N", "attempts at each problem (default 8)", default=8),
        "--attempts": value(Path, "FILE", "where attempts are kept: read where it has them"),
        "--others": value(Path, "FILE", "kept attempts at another set; may be repeated", action="append", default=[]),
        "--out": value(Path, "FILE", "where the probe is written", required=True),
    }
    about = "fit a probe of the judge on executed attempts of the solver"
    group.add("train", train, about, takes, json="print its figures as JSON", epilog=TRAIN)
    takes = {
        "overrides": value(str, "JUDGE... KEY=VALUE", f"judges; {OVERRIDES}", nargs="*"),
        "--attempts": value(Path, "FILE", "executed attempts, as JSON lines (default: those of the solver, made now)"),
    }
    about = "compare judges of any kind on the same executed attempts"
    group.add("rate", rate, about, takes, settings="", epilog=RATE)
    takes = {
        "items": value(Path, "ITEMS", "what was sent to /v1/verdicts"),
        "receipt": value(Path, "RECEIPT", "what it answered"),
        "--item": value(int, "N", "read this one again, and no other"),
    }
    group.add("verify", verify, "read again what a judge has signed", takes, epilog=VERIFY)


def evaluate_policy(options: argparse.Namespace) -> int:
    typed = options.overrides
    name = typed.pop(0) if typed and "=" not in typed[0] else None
    given = next((option for option in OF_A_SET if getattr(options, option[2:].replace("-", "_"))), None)
    if name is None and given:
        raise ConfigError(f"{given} needs the name of a set: codezero eval SET {given} …")
    if options.compare and options.checkpoint:
        raise ConfigError("--compare names both policies; drop --checkpoint")
    config = composed(options)
    from codezero.evals.sets import PUBLISHED
    from codezero.ops.measure import EvalRequest, examine, measure
    from codezero.system.signals import unwinding

    if name in PUBLISHED and any(word.startswith("evals.problems=") for word in typed):
        raise ConfigError(f"evals.problems is of the exam, and not of {name}; give --limit N")
    if options.samples is None and any(word.startswith("evals.samples=") for word in typed):
        options.samples = config.evals.samples
    if options.prelude not in (None, *PRELUDE_NAMES) or (options.prelude and name not in PUBLISHED):
        raise ConfigError(f"--prelude={options.prelude}: for a published set, one of {', '.join(PRELUDE_NAMES)}")
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


def warm_solver(options: argparse.Namespace) -> int:
    for name, number, least, most in (("steps", options.steps, 1, 1_000_000), ("own", options.own, 0, 1024)):
        if not least <= number <= most:
            raise ConfigError(f"--{name}={number} is out of bounds; it must be {least} to {most}")
    config = composed(options)
    from codezero.ops.warm import warm

    done = warm(config, options.data, options.own, options.steps, options.into, say)
    exams = [f"{exam.label} {exam.interval}" if exam else "not measured" for exam in (done.before, done.after)]
    first, last = done.likelihood[0], done.likelihood[-1]
    lines = [
        f"{done.solutions} solutions, {done.steps} steps: {first:.2f} to {last:.2f} nats a token",
        f"before: {exams[0]}",
        f"after:  {exams[1]}",
        f"next: codezero run model.solver={done.model}",
    ]
    return answer(options, done, "\n".join(lines))


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


def attempts(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.commands.evaluate import judge_groups, read_groups
    from codezero.monitor.cards import print_judged
    from codezero.system.files import BadRows
    from codezero.system.signals import Share

    say(Share(f"reading and checking {options.file}"))
    groups = read_groups(options.file, bad := BadRows())
    bad.refuse(options.skip_bad)
    judged = judge_groups(config, groups, audit=options.audit, say=say)
    print_judged(judged, skipped=bad.count, as_json=options.json)
    return common.DONE


def serve(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    config = composed(options)
    from codezero.market.judge_service import JudgeService
    from codezero.ops.judge import build_parts
    from codezero.rollout.client import serving
    from codezero.swarm.identity import Identity

    token = os.environ.get(TOKEN, "")
    host = f"[{options.host}]" if ":" in options.host else options.host
    with ExitStack() as stack:
        identity = Identity.load_or_create(Path(config.swarm.identity))
        parts = build_parts(config, identity, not options.no_receipts, say, stack)
        app = JudgeService(parts, token=token, is_open=options.open).app()
        port = stack.enter_context(serving(app, f"{host}:{options.port}", "--host", token, TOKEN))
        where, peer = f"http://{host}:{port}", identity.peer_id
        answer(options, {"url": where, "peer_id": peer}, f"codezero: judging at {where}, as {peer}")
        return common.until_signal()


def train(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.ops.judge import Wanted, train_probe

    tokens, kept = config.solver.max_new_tokens, options.attempts
    request = Wanted(options.problems, options.rows, options.samples, tokens, config.seed, kept)
    with ExitStack() as stack:
        probe = train_probe(config, request, options.others, stack, say)
    with translated(ConfigError, f"--out={options.out} cannot be written", OSError):
        probe.write(options.out)
    area, low, high = probe.within
    figures = {"within_groups": probe.within, "groups": probe.groups, "pairs": probe.pairs, "layer": probe.layer}
    figures |= {"elsewhere": probe.elsewhere}
    seen = f"{probe.pairs} pairs of {probe.groups} problems"
    line = f"{options.out}: AUROC within groups {area:.2f} [{low:.2f}, {high:.2f}] on problems not fitted on, {seen}"
    for name, (area, low, high) in probe.elsewhere.items():
        line += f"; {area:.2f} [{low:.2f}, {high:.2f}] on {name} when fitted on the others"
    answer(options, figures, f"{line}; use it with evaluator.probe={options.out}")
    return common.DONE


def rate(options: argparse.Namespace) -> int:
    words = list(dict.fromkeys(word for word in options.overrides if not SETTING.match(word)))
    options.overrides = [word for word in options.overrides if SETTING.match(word)]
    if not words:
        raise ConfigError("name the judges: codezero judge rate nano DIR …")
    config = composed(options)
    from codezero.ops.rate import rate, settings_of
    from codezero.settings import compose

    judges = {word: compose([*options.overrides, *settings_of(word)]) for word in words}
    table = rate(config, judges, options.attempts, say)
    return answer(options, table, "\n".join(table.lines()))


def verify(options: argparse.Namespace) -> int:
    config = composed(options)
    from codezero.ops.judge import verify

    result = verify(config, options.items, options.receipt, options.item, say)
    answer(options, result, "\n".join(result.lines()))
    return common.FAILED if result.refuted else common.DONE


def export_policy(options: argparse.Namespace) -> int:
    given = [form for form in FORMS if getattr(options, form) is not None]
    if len(given) != 1:
        raise ConfigError(f"give one of --{', --'.join(FORMS)}" + (f", not {len(given)}" if given else ""))
    (form,) = given
    if options.quantize is not None and form not in ("gguf", "ollama"):
        raise ConfigError(f"--quantize is of a GGUF; drop it, or give --gguf instead of --{form}")
    if not 0 <= options.verify <= 1000:
        raise ConfigError(f"--verify={options.verify} is out of bounds; it must be 1 to 1000")
    config = composed(options)
    from codezero.commands.evaluate import newest_policy
    from codezero.ops.export import ExportRequest, export
    from codezero.system.signals import unwinding

    config, name = newest_policy(config, options.policy)
    request = ExportRequest(name, form, getattr(options, form), options.quantize or "f16", options.verify)
    with unwinding():
        result = export(config, request, say)
    answer(options, result, "\n".join(result.lines()))
    return common.DONE if result.verified is None or result.verified.holds else common.FAILED
