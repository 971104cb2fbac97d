"""Commands that look: `status` of a run, `doctor` of the machine, `config show`, `data list|show|check`, and `market`:
bets, prices and records of a run's prediction market.

Nothing is trained, and nothing but references is executed, by `data check` in the sandbox; what lies on the hub is
fetched as a run would fetch it."""

import argparse
import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.commands import common
from codezero.commands.common import DONE, FAILED, OF_A_RUN, Commands, answer, composed, say, value
from codezero.errors import ConfigError, SandboxError

if TYPE_CHECKING:
    from codezero.inspection.market import GameLine, GamePage, MarketPeer, MarketView
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
ONE = 10_000  # basis points of a whole
MARKET = """Nodes bet play points on which attempts are right: no money; nothing is executed unless market.execute=true.
  codezero market                    balance, bets and prices, or why there are none; `market page` is the same
  codezero market games --limit 20   the newest games
  codezero market show 3fa9          all about the game whose id begins with 3fa9
  codezero market peers              the record of each peer
docs/market.md explains the words.
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
    group = commands.group(
        "market", "play-money bets of nodes on which attempts are right", epilog=MARKET, alone="page"
    )
    game = {"game": value(str, "GAME", "the first digits of its id")}
    limit = {"--limit": value(int, "N", "how many, 1 to 1000 (default 50)", default=50)}
    group.add("page", market_page, "one page: bets, open games, worth, peers, or why there are none", settings=OF_A_RUN)
    group.add("games", games, "the newest games", limit, settings=OF_A_RUN)
    group.add("show", show, "one game: evidence, reports, price", game, settings=OF_A_RUN)
    group.add("peers", peers, "what each peer was worth, and who has a vote", settings=OF_A_RUN)


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
    total = problems + (left_out := left_out + refused).total()
    lines = [f"{origin.package} {origin.version}, licence {origin.licence}: {total} functions, {problems} problems"]
    lines += [f"{number:>8}  in {into / name}.jsonl" for name, number in counts.items() if problems]
    lines += [f"{number:>8}  {reason}" for reason, number in left_out.most_common()]
    lines += [f"{unread} files could not be read"] if unread else []
    result = {"origin": origin, "functions": total, **counts, "left_out": left_out, "unread": unread, "into": str(into)}
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


def _run(options: argparse.Namespace) -> Path:
    from codezero.inspection.status import newest_run

    config = composed(options)
    return newest_run(Path(config.run.directory), config.run.name)


def market_page(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_market

    view = read_market(_run(options))
    return answer(options, view, lambda: _print_page(view))


def games(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_games

    if not 1 <= options.limit <= 1000:
        raise ConfigError(f"--limit={options.limit} is out of bounds; it must be 1 to 1000")
    page = read_games(_run(options), None, options.limit)
    return answer(options, page, lambda: _print_games("games", page.games))


def show(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_game

    if (page := read_game(_run(options), options.game)) is None:
        listed = "no game's id begins so, or several do; `codezero market games` lists them"
        raise ConfigError(f"GAME={options.game!r}: {listed}")
    return answer(options, page, lambda: _print_game(page))


def peers(options: argparse.Namespace) -> int:
    from codezero.inspection.market import read_market

    records = read_market(_run(options)).peers
    return answer(options, records, lambda: _print_peers(records))


def _print_page(view: "MarketView") -> None:
    points = "" if view.balance is None else f" · {view.balance:.3f} play points · round {view.round}"
    print(f"no bets: {view.why}{points}" if view.why else f"in the market{points}")
    for title, lines in (("your bets", view.bets), ("open", view.open), ("last settled", view.settled)):
        _print_games(title, lines)
    brier = ", ".join(f"{name} {score:.3f}" for name, score in view.worth.brier.items())
    for text in filter(None, (view.worth.verdict, brier and f"Brier score, 0 is best: {brier}")):
        print(text)
    _print_peers(view.peers)


def _print_games(title: str, lines: "Sequence[GameLine]") -> None:
    rows: list[list[str]] = []
    for line in lines:
        state = f"{line.phase}, {line.rounds_left} to go" if line.state == "open" else line.state
        state += f": {line.void}" if line.void else {None: "", True: ": right", False: ": wrong"}[line.right]
        price = f"{line.price.steps[-1]:.2f}" if line.price else ""
        own = " ".join(f"{q / ONE:.2f}" for q in line.own if q is not None)
        win = "" if line.win is None else f"{line.win:+.3f}"
        rows.append([line.id[:8], state, line.question, price, own, win])
    _print_table(title, ["game", "state", "question", "right, by the price", "own reports", "win"], rows)


def _print_peers(records: "Sequence[MarketPeer]") -> None:
    rows = [[of.name, f"{of.games:.0f}", f"{of.gain:+.2f}", of.no_vote or "yes", f"{of.balance:.3f}"] for of in records]
    _print_table("peers", ["peer", "games", "gain", "vote", "points"], rows)


def _print_game(page: "GamePage") -> None:
    from codezero.monitor.text import clean

    _print_games(page.line.id, [page.line])
    print(clean("\n".join([page.question, page.code, *page.tests]), 20_000, lines=True))
    rows = [["price", *map("{:.3f}".format, page.line.price.steps)]] if page.line.price else []
    for peer, reports in page.reports.items():
        rows.append([page.names[peer], *("" if q is None else f"{q / ONE:.3f}" for q in reports)])
    _print_table("price and reports", ["of", *(f"step {step}" for step in range(1, 5))], rows)


def _print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from codezero.monitor.text import clean

    table = Table(*heads, title=title, title_justify="left", box=None, padding=(0, 1))
    for row in rows:
        table.add_row(*(Text(clean(cell, 60)) for cell in row))
    if rows:
        Console(file=sys.stdout).print(table)
