"""HumanEval and MBPP as their authors published them, through everything that reads them here.

Argument: a folder with `HumanEval.jsonl.gz` and `mbpp.jsonl`. For every problem, with its reference solution:

* reader: the row becomes a task (`evals/sets.py`; of MBPP the test split, 500 rows) and, where it is a row of MBPP, a
  problem to learn from (`problems/rows.py`). Hygiene: the filters of `problems/filters.py`, refusals by reason.
* static pass: the reference in a Python fence. A certain failure, a quarantine or "unavailable" is a mistake of ours.
* decided: each test by Monty alone and by bubblewrap alone. A failure that Monty leaves to a second tier does not
  count as decided by Monty. `failed` lists references that the second tier finds wrong, `disagree` where both are sure.
* canonical: the canonical reference against each test that both it and the original can be decided on. A long text is
  masked on purpose, so that a canonical program is for reading; those that differ and have a mask are `masked`.
* mutants: up to four of each reference, run with all tests: how many fail, how many pass nevertheless.

Prints JSON, or the table of docs/results.md. Usage: python benchmarks/real_files.py FOLDER [--json] [--every N]
"""

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from published.rows import READERS, Item
from published.table import lines
from published.tiers import Finding, Tiers, open_tiers, run_all

from codezero.code.canonical import MASK
from codezero.code.mutations import mutate_code
from codezero.code.parsing import fence
from codezero.code.report import StaticReport, StaticRequest
from codezero.code.worker import StaticGuard
from codezero.environments.code import CodeEnvironment
from codezero.errors import ProblemError
from codezero.evals.sets import PUBLISHED
from codezero.problems.filters import Screen
from codezero.sandbox.base import Outcome

FILES = {"humaneval": "HumanEval.jsonl.gz", "mbpp": "mbpp.jsonl"}
MUTANTS = 4
"""Of one reference."""
PROGRESS_SECONDS = 20.0
Report = dict[str, Any]
_T = TypeVar("_T")


def hygiene(items: Sequence[Item]) -> Report:
    refused: defaultdict[str, list[str]] = defaultdict(list)
    screen = Screen(CodeEnvironment())
    for item in items:
        refusal = screen.refuse(item.problem)
        if refusal is not None:
            refused[refusal.reason].append(f"{item.name}: {refusal.detail}")
    count = len(items) - sum(map(len, refused.values()))
    return {"usable": count, "refused": dict(refused)}


def static(items: Sequence[Item], reports: Sequence[StaticReport]) -> Report:
    pairs = list(zip(items, reports, strict=True))
    return {
        "certain_failures": [
            f"{item.name}: {report.refusal or 'not callable as its tests call it'}"
            for item, report in pairs
            if report.certain_failure and not report.unavailable
        ],
        "quarantined": [f"{item.name}: {', '.join(report.quarantine)}" for item, report in pairs if report.quarantine],
        "unavailable": [f"{item.name}: {report.unavailable}" for item, report in pairs if report.unavailable],
    }


def decided(items: Sequence[Item], findings: Sequence[list[Finding]]) -> Report:
    """Of tests, and of problems: one is decided when each of its tests is."""
    pairs = [(item.name, finding) for item, each in zip(items, findings, strict=True) for finding in each]
    neither: defaultdict[str, set[str]] = defaultdict(set)
    for name, finding in pairs:
        if not finding.decided:
            neither[finding.undecided].add(name)
    lacks = Counter(finding.monty.reason for _, finding in pairs if not finding.by_monty)
    failed = {f"{name}: {finding.final.reason}" for name, finding in pairs if finding.decided and not finding.holds}
    return {
        "tests": len(pairs),
        "by_monty": sum(finding.by_monty for _, finding in pairs),
        "by_bubblewrap": sum(finding.by_bubblewrap for _, finding in pairs),
        "by_either": sum(finding.decided for _, finding in pairs),
        "problems_by_monty": sum(all(finding.by_monty for finding in each) for each in findings),
        "problems_decided": sum(all(finding.decided for finding in each) for each in findings),
        "failed": sorted(failed),
        "disagree": sorted({name for name, finding in pairs if finding.disagree}),
        "neither": {reason: sorted(names) for reason, names in neither.items()},
        "monty_lacks": dict(lacks.most_common()),
    }


def canonical(
    items: Sequence[Item], forms: Sequence[str | None], tiers: Tiers, original: list[list[Finding]]
) -> Report:
    """Test by test, where both programs can be decided."""
    report: dict[str, list[str]] = {"differ": [], "masked": [], "not_compared": []}
    problems = tests = 0
    for item, form, before in watched("canonical", list(zip(items, forms, original, strict=True))):
        after = tiers.examine(item.task, form) if form is not None else []
        both = [(old, new) for old, new in zip(before, after, strict=False) if old.decided and new.decided]
        problems, tests = problems + bool(both), tests + len(both)
        if not both:
            report["not_compared"].append(item.name)
        other = next((new for old, new in both if old.holds != new.holds), None)
        if other is not None and form is not None:
            masks = MASK in form and MASK not in item.reference
            report["masked" if masks else "differ"].append(f"{item.name}: {other.final.reason or 'passes'}")
    return {"problems_compared": problems, "tests_compared": tests, **report}


def mutants(items: Sequence[Item], tiers: Tiers) -> Report:
    """Each run with all tests of its problem, until one fails."""
    outcomes, found, without = Counter[Outcome](), 0, []
    for item in watched("mutants", items):
        made = mutate_code(item.reference, Random(f"mutants {item.name}"), MUTANTS, entry=item.task.entry_point)
        ended = [run_all(tiers.quick, item.task, mutant) for mutant in made]
        outcomes.update(ended)
        found += Outcome.FAIL in ended
        if Outcome.FAIL not in ended:
            without.append(item.name)
    return {
        "made": outcomes.total(),
        "fail": outcomes[Outcome.FAIL],
        "pass": outcomes[Outcome.PASS],
        "undecided": outcomes[Outcome.UNKNOWN],
        "problems_with_one_that_fails": found,
        "problems_without": without,
    }


def watched(what: str, items: Sequence[_T]) -> Iterator[_T]:
    """`items`, with a line on standard error every 20 seconds."""
    shown_at = time.monotonic()
    for number, item in enumerate(items):
        if time.monotonic() - shown_at > PROGRESS_SECONDS:
            shown_at = time.monotonic()
            print(f"real_files: {what}: {number} of {len(items)}", file=sys.stderr, flush=True)
        yield item


def measure(name: str, path: Path, every: int, guard: StaticGuard, tiers: Tiers) -> Report:
    """One file."""
    began = time.monotonic()
    items, read = READERS[name](path)
    items = items[::every]
    requests = [
        StaticRequest(fence(item.reference), item.task.tests, item.task.entry_point, item.problem.question)
        for item in items
    ]
    reports = guard.check_many(requests)
    original = [tiers.examine(item.task, item.reference) for item in watched("references", items)]
    report: Report = {"file": PUBLISHED[name].published, "rows": read, "problems": len(items)}
    report |= {"hygiene": hygiene(items), "static": static(items, reports), "decided": decided(items, original)}
    report["canonical"] = canonical(items, [each.canonical for each in reports], tiers, original)
    return report | {"mutants": mutants(items, tiers), "seconds": round(time.monotonic() - began, 1)}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # pyright: ignore[reportOptionalMemberAccess]
    parser.add_argument("folder", type=Path, help="with HumanEval.jsonl.gz and mbpp.jsonl")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of the table")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each Nth problem")
    parser.add_argument("--sets", nargs="+", choices=list(FILES), default=list(FILES))
    options = parser.parse_args(argv)
    paths = {name: options.folder / FILES[name] for name in options.sets}
    if missing := [str(path) for path in paths.values() if not path.is_file()]:
        print(f"real_files: not there: {', '.join(missing)}", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        guard = stack.enter_context(StaticGuard())
        tiers, without = open_tiers(stack)
        try:
            sets = {name: measure(name, path, options.every, guard, tiers) for name, path in paths.items()}
        except ProblemError as error:
            print(f"real_files: {error}", file=sys.stderr)
            return 2
    if options.json:
        print(json.dumps({"sets": sets, "no_bubblewrap": without or None, "every": options.every}))
        return 0
    print("\n".join(lines(sets)))
    if without:
        print(f"\nNo bubblewrap here: {without}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
