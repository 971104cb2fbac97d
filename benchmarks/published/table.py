"""The report as the table of docs/results.md."""

from collections.abc import Callable, Iterator
from typing import Any

Report = dict[str, Any]


def lines(sets: dict[str, Report]) -> Iterator[str]:
    """The table of docs/results.md, and the lists below it."""
    yield f"| | {' | '.join(sets)} |"
    yield "|---" * (len(sets) + 1) + "|"
    for title, cell in CELLS.items():
        yield f"| {title} | {' | '.join(cell(report) for report in sets.values())} |"
    for name, report in sets.items():
        for title, reasons in listed(report):
            yield f"\n{name}, {title}:\n"
            yield from (f"* {reason}" for reason in reasons)


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / max(1, whole):.1%})"


def refusals(report: Report) -> str:
    by_reason = {reason: len(names) for reason, names in report["hygiene"]["refused"].items()}
    return ", ".join(f"{count} {reason}" for reason, count in by_reason.items()) or "none"


CELLS: dict[str, Callable[[Report], str]] = {
    "rows read": lambda r: share(r["rows"]["problems"], r["rows"]["in_file"]),
    "tasks of `codezero eval`": lambda r: str(r["rows"]["eval_tasks"]),
    "usable after the filters": lambda r: share(r["hygiene"]["usable"], r["problems"]),
    "refused by the filters": refusals,
    "references the static pass calls certain failures": lambda r: str(len(r["static"]["certain_failures"])),
    "references it quarantines": lambda r: str(len(r["static"]["quarantined"])),
    "tests decided by Monty": lambda r: share(r["decided"]["by_monty"], r["decided"]["tests"]),
    "tests decided by bubblewrap": lambda r: share(r["decided"]["by_bubblewrap"], r["decided"]["tests"]),
    "tests decided by either": lambda r: share(r["decided"]["by_either"], r["decided"]["tests"]),
    "problems decided by Monty": lambda r: share(r["decided"]["problems_by_monty"], r["problems"]),
    "problems decided by either": lambda r: share(r["decided"]["problems_decided"], r["problems"]),
    "references that fail a test": lambda r: str(len(r["decided"]["failed"])),
    "canonical references compared": lambda r: share(r["canonical"]["problems_compared"], r["problems"]),
    "of them differ": lambda r: str(len(r["canonical"]["differ"])),
    "of them differ by a masked text": lambda r: str(len(r["canonical"]["masked"])),
    "mutants": lambda r: str(r["mutants"]["made"]),
    "mutants that fail": lambda r: share(r["mutants"]["fail"], r["mutants"]["made"]),
    "mutants that pass all tests": lambda r: str(r["mutants"]["pass"]),
    "mutants undecided": lambda r: str(r["mutants"]["undecided"]),
    "problems with a mutant that fails": lambda r: share(r["mutants"]["problems_with_one_that_fails"], r["problems"]),
}


def listed(report: Report) -> Iterator[tuple[str, list[str]]]:
    """What the table only counts."""
    yield from ((f"refused as {reason}", names) for reason, names in report["hygiene"]["refused"].items())
    static, decided, canonical = report["static"], report["decided"], report["canonical"]
    neither = [f"{reason}: {', '.join(names)}" for reason, names in decided["neither"].items()]
    lacks = [f"{count} tests: {reason}" for reason, count in decided["monty_lacks"].items()]
    titled = {
        "rows that were refused": report["rows"]["refused"],
        "certain failures": static["certain_failures"],
        "quarantined": static["quarantined"],
        "static pass unavailable": static["unavailable"],
        "decided by neither": neither,
        "references that fail": decided["failed"],
        "the tiers disagree": decided["disagree"],
        "what Monty alone does not decide": lacks,
        "canonical references that differ": canonical["differ"],
        "canonical references that differ by a masked text": canonical["masked"],
        "canonical references not compared": canonical["not_compared"],
        "problems without a mutant that fails": report["mutants"]["problems_without"],
    }
    yield from ((title, found) for title, found in titled.items() if found)
