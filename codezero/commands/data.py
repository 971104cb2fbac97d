"""`codezero data list|show|check`: which problems there are, and which of them are usable.

Nothing is trained and nothing is executed; what lies on the hub is fetched as a run would fetch it.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from codezero.config import NodeConfig
from codezero.config_learning import source_weights
from codezero.errors import ProblemError
from codezero.problems.dedup import Novelty
from codezero.problems.filters import Refusal, malformed
from codezero.problems.hub import SETS, open_rows
from codezero.problems.rows import read_row
from codezero.problems.shelf import Shelf, usable
from codezero.problems.stream import SYNTHETIC, MixedStream
from codezero.settings import compose
from codezero.types import Problem

DONE, FAILED = 0, 1
EXAMPLES = 3
"""Refusals that are shown of each reason."""


@dataclass
class Checked:
    """What hygiene said of a data set. Written in place while rows are read."""

    rows: int = 0
    usable: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def add(self, number: int, refusal: Refusal | None) -> None:
        self.rows += 1
        if refusal is None:
            self.usable += 1
            return
        self.refused[refusal.reason] += 1
        shown = self.examples.setdefault(refusal.reason, [])
        if len(shown) < EXAMPLES:
            shown.append(f"row {number}: {refusal.detail}")


def run(options: argparse.Namespace) -> int:
    """What was asked for; returns the exit code."""
    config = compose(options.overrides)
    if options.data == "list":
        list_sources(config, as_json=options.json)
        return DONE
    if options.data == "show":
        return DONE if show(config, options.source, options.count, as_json=options.json) else FAILED
    return DONE if check(options.source, as_json=options.json) else FAILED


def list_sources(config: NodeConfig, *, as_json: bool) -> None:
    """The sources that have a name and those of the config, with the share of problems drawn from each."""
    weights = source_weights(config.data.sources)
    total = sum(weights.values())
    names = list(dict.fromkeys([SYNTHETIC, *SETS, *weights]))
    shares = {name: weights.get(name, 0.0) / total for name in names}
    if as_json:
        print(json.dumps([{"name": name, "share": shares[name], "where": _where(name)} for name in names]))
        return
    for name in names:
        print(f"{name:<16} {shares[name]:>5.0%}  {_where(name)}")


def show(config: NodeConfig, name: str, count: int, *, as_json: bool) -> bool:
    """The first problems of a source that a run with this seed would see, of whatever length. True when there are any.

    Raises ProblemError for an unknown source.
    """
    if name == SYNTHETIC:
        found = MixedStream(seed=config.seed, peer_id="", batch=count, proposer_share=0.0).next_batch([])
    else:
        shelf = Shelf(
            name,
            open_rows(name),
            origin=f"{config.seed} ",
            fits=lambda _: True,
            counts=Counter(),
            wait_seconds=config.data.wait_seconds,
        )
        found = [problem for problem in (shelf.draw() for _ in range(count)) if problem is not None]
    for problem in found:
        print(json.dumps(_told(problem)) if as_json else _card(problem))
    return bool(found)


def check(name: str, *, as_json: bool) -> bool:
    """Every row of a source through hygiene. True when at least one is usable. Raises ProblemError."""
    checked, novelty = Checked(), Novelty()
    for number, entry in enumerate(_entries(name), 1):
        checked.add(number, entry if isinstance(entry, Refusal) else usable(entry, novelty, lambda _: True))
    if as_json:
        told = {"rows": checked.rows, "usable": checked.usable, "refused": checked.refused}
        print(json.dumps({**told, "examples": checked.examples}))
    else:
        print(f"{checked.usable} of {checked.rows} usable")
        for reason, refused in checked.refused.most_common():
            print(f"{refused:>8}  {reason}")
            for example in checked.examples[reason]:
                print(f"          {ascii(example)[1:-1]}")
    return checked.usable > 0


def _entries(name: str) -> Iterator[Problem | Refusal]:
    rows = open_rows(name)
    for shard in rows.shards():
        for row in rows.rows(shard, 0):
            try:
                yield read_row(row).problem
            except ProblemError as error:
                yield malformed(error)


def _where(name: str) -> str:
    if name == SYNTHETIC:
        return "embedded: five levels, endless"
    known = SETS.get(name.partition("@")[0])
    if known is None:
        return "on this machine"
    revision = name.partition("@")[2] or known.revision
    return f"{known.repository} {known.configuration}, {known.split} split, commit {revision[:12]}"


def _told(problem: Problem) -> dict[str, object]:
    """As it is printed: the id and what a solver may know."""
    return {
        "id": problem.id,
        "source": problem.source,
        "style": problem.style,
        "entry_point": problem.entry_point,
        "level": problem.level,
        "question": problem.question,
        "tests": problem.tests,
    }


def _card(problem: Problem) -> str:
    tests = [" ".join(test.split()) for test in islice(problem.tests, EXAMPLES)]
    text = "\n".join([f"--- {problem.id[:16]} {problem.source} {problem.style}", problem.question, *tests])
    return "".join(character if character.isprintable() or character == "\n" else "?" for character in text)
