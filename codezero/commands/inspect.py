"""Commands that look: `status` of a run, `doctor` of the machine, `config show`, `data list|show|check`.

Nothing is trained, and nothing but references is executed, by `data check` in the sandbox; what lies on the hub is
fetched as a run would fetch it.
"""

import argparse
import contextlib
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands import common
from codezero.commands.common import DONE, FAILED, OF_A_RUN, Commands, answer, composed, say, value
from codezero.errors import ConfigError, SandboxError

if TYPE_CHECKING:
    from codezero.types import Problem

AT_ONCE = 32  # rows whose references are executed together
EXAMPLES = 3  # refusals that are shown of each reason
FROM_PACKAGE = """A problem is a function of a file's top level with a description and two tests: doctests that show a
literal value, or asserts of the package's test_*.py. The source is read and never imported. In the sandbox the function
must pass its tests, and stubs must not. Its row keeps package, version, file and licence. One function of five is the
exam's, by its name and `seed`. What is printed says why the other functions are no problem.

examples:
  pip install --target /tmp/toolz toolz
  codezero data from-package /tmp/toolz
  codezero run 'data.sources=[problems/toolz/train.jsonl]' 'evals.sources=[problems/toolz/exam.jsonl]'
  codezero eval mbpp --file problems/toolz/exam.jsonl evals.temperature=0
"""
PUBLIC = ("id", "source", "style", "entry_point", "level", "question", "tests")  # of a problem, for a solver to know


def add(commands: Commands) -> None:
    page = "one page about a run: step, truth, peers, submissions"
    commands.add("status", status, page, settings=OF_A_RUN)
    names = value(
        str, "[FOLDER | RUN RUN ...] KEY=VALUE", "where to look (default run.directory), or runs to compare", nargs="*"
    )
    newest = value(int, "N", "how many, the newest first (default 20)", default=20)
    several = "list runs with what each has learned; compare some: runs A B"
    commands.add("runs", runs, several, {"overrides": names, "--limit": newest}, settings="")
    machine = "check whether a node can run here, and how to mend what is wrong"
    node = "the settings of the node that is to run, for example model=qwen or network=peer"
    commands.add("doctor", doctor, machine, settings=node)
    config = commands.group("config", "look at the settings")
    config.add("show", config_show, "print every setting, its value and where that comes from, as YAML")
    data = commands.group("data", "the problem sets: MBPP, CodeContests, files of your own")
    data.add("list", data_list, "name the sources, and how much is drawn from each", json="print JSON")
    source = {"source": value(str, "SOURCE", "a name that `list` knows, a JSONL or Parquet file, a folder")}
    count = value(int, "N", "how many, 1 to 1000 (default 3)", default=3)
    first = "print the first problems that a run would draw from a source"
    data.add("show", data_show, first, {**source, "--count": count}, json="print JSON")
    usable = "count the problems that are usable, and why others are not; EXECUTES their references in a sandbox"
    data.add("check", data_check, usable, source, json="print JSON")
    own = "make problems of a package's functions and doctests; EXECUTES the functions in a sandbox"
    takes = {
        "package": value(str, "NAME|DIR", "an installed package, or a folder with source"),
        "--into": value(Path, "FOLDER", "where train.jsonl and exam.jsonl are written (default problems/NAME)"),
    }
    data.add("from-package", data_from_package, own, takes, json="print JSON", epilog=FROM_PACKAGE)


def status(options: argparse.Namespace) -> int:
    from codezero.inspection.status import newest_run, print_status, read_run

    config = common.composed_for_reading(options)
    run = read_run(newest_run(Path(config.run.directory), config.run.name))
    return answer(options, run.to_json(), lambda: print_status(run))


def runs(options: argparse.Namespace) -> int:
    names = [word for word in options.overrides if "=" not in word]
    options.overrides = [word for word in options.overrides if "=" in word]
    base = Path(common.composed_for_reading(options).run.directory)
    if options.limit < 1:
        raise ConfigError(f"--limit={options.limit} is out of bounds; it must be 1 or more")
    from codezero.inspection.status import compare_runs, comparison_lines, list_lines, list_runs

    if len(names) > 1:
        comparison = compare_runs(base, names)
        return answer(options, comparison, "\n".join(comparison_lines(comparison)))
    base = base if not names else base / names[0] if (base / names[0]).is_dir() else Path(names[0])
    listed, more = list_runs(base, options.limit)
    return answer(options, {"runs": listed, "more": more}, "\n".join(list_lines(listed, more)))


def doctor(options: argparse.Namespace) -> int:
    """Exit code 0 when nothing failed, whatever else could be better or is unknown."""
    from codezero.ops.doctor import Finding, diagnose, healthy, line
    from codezero.ops.doctor_network import checks

    findings, config = list[Finding](), composed(options)
    for finding in diagnose(checks(config, options.overrides)):
        findings.append(finding)
        if not options.json:
            print(line(finding), flush=True)
    if options.json:
        answer(options, {"ok": healthy(findings), "findings": findings}, "")
    return DONE if healthy(findings) else FAILED


def config_show(options: argparse.Namespace) -> int:
    from codezero.settings import as_json, as_yaml, trace

    settings = trace(options.overrides)
    print(as_json(settings) + "\n" if options.json else as_yaml(settings), end="")
    return DONE


def data_list(options: argparse.Namespace) -> int:
    """The sources that have a name and those of the config, with the share of problems drawn from each."""
    from codezero.config.learning import DATA_SETS, source_weights

    weights = source_weights(composed(options).data.sources)
    total = sum(weights.values())
    rows = [
        {"name": name, "share": weights.get(name, 0.0) / total, "where": _where(name)}
        for name in dict.fromkeys([*DATA_SETS, *weights])
    ]
    return answer(options, rows, "\n".join("{name:<16} {share:>5.0%}  {where}".format(**row) for row in rows))


def data_show(options: argparse.Namespace) -> int:
    """The first problems that a run with this seed would see, of any length. FAILED without. Raises ProblemError."""
    from codezero.config.learning import DataConfig
    from codezero.environments.code import CodeEnvironment
    from codezero.problems.filters import Screen
    from codezero.problems.sources import DataSource, open_rows
    from codezero.problems.stream import SYNTHETIC, MixedStream

    config, name, count = composed(options), options.source, options.count
    if name == SYNTHETIC:
        stream = MixedStream(CodeEnvironment(), DataConfig(), seed=config.seed, peer_id="", batch=count)
        problems = stream.next_batch([])
    else:
        rows, origin, wait = open_rows(name), f"{config.seed} ", config.data.wait_seconds
        rows.shards()  # a file that is not there is a mistake, where a run has other sources
        data = DataSource(name, rows, origin, Screen(CodeEnvironment()), Counter(), wait)
        problems = [problem for problem in (data.draw() for _ in range(count)) if problem is not None]
    for problem in problems:
        answer(options, {field: getattr(problem, field) for field in PUBLIC}, _card(problem))
    return DONE if problems else FAILED


def data_check(options: argparse.Namespace) -> int:
    """Every row of a source through the filters, and its reference through its tests where a sandbox can be had. FAILED
    when no row is usable. Raises ProblemError and SandboxError."""
    from codezero.environments.code import CodeEnvironment
    from codezero.problems.filters import FilterRefusal, Screen
    from codezero.problems.sources import open_rows, read_entry
    from codezero.sandbox.base import Job, Outcome
    from codezero.sandbox.build import build_sandbox
    from codezero.system.signals import Share
    from codezero.types import Style

    config, source, screen = composed(options), open_rows(options.source), Screen(CodeEnvironment())
    entries = enumerate((read_entry(row) for shard in source.shards() for row in source.rows(shard, 0)), 1)
    rows, refused, examples, executed = 0, Counter[str](), dict[str, list[str]](), Counter[str]()
    with contextlib.ExitStack() as stack:
        sandbox = without = None
        try:
            sandbox = build_sandbox(config, stack)
        except SandboxError as error:
            without = f"none, {error}"
        while batch := list(islice(entries, AT_ONCE)):
            say(Share("rows checked, and their references executed", rows))
            rows = batch[-1][0]
            screened = [entry if isinstance(entry, FilterRefusal) else screen.refuse(entry) for _, entry in batch]
            jobs = {
                row: Job(entry.reference, entry.tests, entry.style is Style.STDIO)
                for (row, entry), refusal in zip(batch, screened, strict=True)
                if refusal is None and not isinstance(entry, FilterRefusal) and entry.reference
            }
            runs = sandbox.run_distinct(jobs.values()) if sandbox else {}
            for (row, _), refusal in zip(batch, screened, strict=True):
                if run := runs.get(jobs[row]) if row in jobs else None:
                    executed[run.outcome.value] += 1
                    failed = run.outcome is Outcome.FAIL
                    refusal = FilterRefusal("reference", f"fails its own tests: {run.reason}") if failed else None
                if refusal is not None:
                    refused[refusal.reason] += 1
                    if len(shown := examples.setdefault(refusal.reason, [])) < EXAMPLES:
                        shown.append(f"row {row}: {refusal.detail}")
    count = rows - refused.total()
    outcomes = without or f"{executed['pass']} pass, {executed['fail']} fail, {executed['unknown']} undecided"
    lines = [f"{count} of {rows} usable; references executed: {outcomes}"]
    for reason, number in refused.most_common():
        lines.append(f"{number:>8}  {reason}")
        lines += [f"          {ascii(example)[1:-1]}" for example in examples[reason]]
    result = {"rows": rows, "usable": count, "refused": refused, "examples": examples, "references": executed}
    answer(options, result, "\n".join(lines))
    return DONE if count else FAILED


def data_from_package(options: argparse.Namespace) -> int:
    """FAILED when no function became a problem; then nothing is written. Raises ConfigError and SandboxError."""
    config = composed(options)
    from codezero.environments.code import CodeEnvironment
    from codezero.problems.filters import Screen
    from codezero.problems.functions import find_sources, prove, read_package, write_rows
    from codezero.sandbox.build import build_sandbox
    from codezero.system.signals import Share

    say(Share(f"looking for the files of {options.package}"))
    sources = find_sources(options.package)
    functions, left_out, unread = read_package(sources, say)
    with contextlib.ExitStack() as stack:
        sandbox, screen = build_sandbox(config, stack), Screen(CodeEnvironment())
        rows, refused = prove(functions, sandbox, screen, config.seed, say)
    into = options.into or Path("problems", Path(options.package).resolve().name)
    counts, origin = {name: len(entries) for name, entries in rows.items()}, sources[0].origin
    if problems := sum(counts.values()):
        write_rows(rows, into)
    found = problems + (left_out := left_out + refused).total()
    lines = [f"{origin.package} {origin.version}, licence {origin.licence}: {found} functions, {problems} problems"]
    lines += [f"{number:>8}  in {into / name}.jsonl" for name, number in counts.items() if problems]
    lines += [f"{number:>8}  {reason}" for reason, number in left_out.most_common()]
    lines += [f"{unread} files could not be read"] if unread else []
    result = {"origin": origin, "functions": found, **counts, "left_out": left_out, "unread": unread, "into": str(into)}
    answer(options, result, "\n".join(lines))
    return DONE if problems else FAILED


def _where(name: str) -> str:
    from codezero.problems.rows import SETS
    from codezero.problems.stream import SYNTHETIC

    if name == SYNTHETIC:
        return "embedded: five levels, endless"
    known, revision = SETS.get(name.partition("@")[0]), name.partition("@")[2]
    if known is None:
        return "on this machine"
    return f"{known.repository} {known.files}, commit {(revision or known.revision)[:12]}"


def _card(problem: "Problem") -> str:
    tests = [" ".join(test.split()) for test in islice(problem.tests, EXAMPLES)]
    text = "\n".join([f"--- {problem.id[:16]} {problem.source} {problem.style}", problem.question, *tests])
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
