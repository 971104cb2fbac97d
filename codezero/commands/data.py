"""`codezero data list|show|check`: which problems there are, and which of them are usable.

Nothing is trained and nothing is executed; what lies on the hub is fetched as a run would fetch it.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from codezero.commands.common import DONE, FAILED, Command, take_json, take_settings

if TYPE_CHECKING:
    from codezero.problems.filters import FilterRefusal
    from codezero.types import Problem

EXAMPLES = 3
"""Refusals that are shown of each reason."""


def add(command: Command) -> None:
    data = command("data", list_sources, "the problem sets: MBPP, CodeContests, files of your own")
    commands = data.add_subparsers(metavar="DATA_COMMAND", required=True)
    listed = commands.add_parser("list", help="name the sources, and how much is drawn from each")
    shown = commands.add_parser("show", help="print the first problems that a run would draw from a source")
    shown.add_argument("--count", type=int, default=3, metavar="N", help="how many, 1 to 1000 (default 3)")
    checked = commands.add_parser("check", help="count the problems that are usable, and why others are not")
    for parser in (shown, checked):
        parser.add_argument(
            "source", metavar="SOURCE", help="a name that `list` knows, a JSONL or Parquet file, a folder"
        )
    for parser, handler in ((listed, list_sources), (shown, show), (checked, check)):
        parser.set_defaults(handler=handler)
        take_settings(parser)
        take_json(parser, "print JSON")


def list_sources(options: argparse.Namespace) -> int:
    """The sources that have a name and those of the config, with the share of problems drawn from each."""
    from codezero.config_learning import source_weights
    from codezero.problems.hub import SETS
    from codezero.problems.stream import SYNTHETIC
    from codezero.settings import compose

    weights = source_weights(compose(options.overrides).data.sources)
    names = list(dict.fromkeys([SYNTHETIC, *SETS, *weights]))
    shares = {name: weights.get(name, 0.0) / sum(weights.values()) for name in names}
    if options.json:
        print(json.dumps([{"name": name, "share": shares[name], "where": _where(name)} for name in names]))
        return DONE
    for name in names:
        print(f"{name:<16} {shares[name]:>5.0%}  {_where(name)}")
    return DONE


def show(options: argparse.Namespace) -> int:
    """The first problems of a source that a run with this seed would see, of whatever length. FAILED without any.

    Raises ProblemError for an unknown source.
    """
    from codezero.problems.hub import open_rows
    from codezero.problems.sources import DataSource
    from codezero.problems.stream import SYNTHETIC, MixedStream
    from codezero.settings import compose

    config, name, count = compose(options.overrides), options.source, options.count
    if name == SYNTHETIC:
        problems = MixedStream(seed=config.seed, peer_id="", batch=count, proposer_share=0.0).next_batch([])
    else:
        data = DataSource(
            name,
            open_rows(name),
            origin=f"{config.seed} ",
            fits=lambda _: True,
            counts=Counter(),
            wait_seconds=config.data.wait_seconds,
        )
        problems = [problem for problem in (data.draw() for _ in range(count)) if problem is not None]
    for problem in problems:
        print(json.dumps(_to_json(problem)) if options.json else _card(problem))
    return DONE if problems else FAILED


def check(options: argparse.Namespace) -> int:
    """Every row of a source through the filters. FAILED when none is usable. Raises ProblemError."""
    from codezero.problems.dedup import Novelty
    from codezero.problems.filters import FilterRefusal, usable
    from codezero.settings import compose

    compose(options.overrides)
    rows, refused, examples, novelty = 0, Counter[str](), dict[str, list[str]](), Novelty()
    for rows, entry in enumerate(_entries(options.source), 1):
        refusal = entry if isinstance(entry, FilterRefusal) else usable(entry, novelty, lambda _: True)
        if refusal is not None:
            refused[refusal.reason] += 1
            if len(shown := examples.setdefault(refusal.reason, [])) < EXAMPLES:
                shown.append(f"row {rows}: {refusal.detail}")
    count = rows - refused.total()
    if options.json:
        print(json.dumps({"rows": rows, "usable": count, "refused": refused, "examples": examples}))
        return DONE if count else FAILED
    print(f"{count} of {rows} usable")
    for reason, number in refused.most_common():
        print(f"{number:>8}  {reason}")
        for example in examples[reason]:
            print(f"          {ascii(example)[1:-1]}")
    return DONE if count else FAILED


def _entries(name: str) -> Iterator["Problem | FilterRefusal"]:
    from codezero.problems.hub import open_rows
    from codezero.problems.sources import read_entry

    rows = open_rows(name)
    for shard in rows.shards():
        yield from map(read_entry, rows.rows(shard, 0))


def _where(name: str) -> str:
    from codezero.problems.hub import SETS
    from codezero.problems.stream import SYNTHETIC

    if name == SYNTHETIC:
        return "embedded: five levels, endless"
    known = SETS.get(name.partition("@")[0])
    if known is None:
        return "on this machine"
    revision = name.partition("@")[2] or known.revision
    return f"{known.repository} {known.files}, commit {revision[:12]}"


def _to_json(problem: "Problem") -> dict[str, object]:
    """The id and what a solver may know."""
    return {
        "id": problem.id,
        "source": problem.source,
        "style": problem.style,
        "entry_point": problem.entry_point,
        "level": problem.level,
        "question": problem.question,
        "tests": problem.tests,
    }


def _card(problem: "Problem") -> str:
    tests = [" ".join(test.split()) for test in islice(problem.tests, EXAMPLES)]
    text = "\n".join([f"--- {problem.id[:16]} {problem.source} {problem.style}", problem.question, *tests])
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
