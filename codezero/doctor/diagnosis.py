"""All checks at once, each with a deadline of its own: none can hold up or bring down another."""

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict

from codezero.doctor.finding import Check, Finding, State, fail, unknown
from codezero.errors import CodeZeroError
from codezero.monitor.text import clean

Outcome = Finding | list[Finding]
MAX_TEXT = 600
"""Characters of a line's two parts each."""
WORDS = {State.UNKNOWN: "could not tell"}


def diagnose(checks: Sequence[Check]) -> Iterator[Finding]:
    """The findings, in the order of `checks`; all of them within the longest deadline."""
    began = time.monotonic()
    running = [(check, _begin(check)) for check in checks]
    for check, outcome in running:
        yield from _result(check, outcome, max(0.0, began + check.seconds - time.monotonic()))


def _begin(check: Check) -> "Future[Outcome]":
    outcome: Future[Outcome] = Future()
    # A daemon: what hangs in a name look-up is left behind.
    threading.Thread(target=_run, args=(check, outcome), name=f"check-{check.name}", daemon=True).start()
    return outcome


def _run(check: Check, outcome: "Future[Outcome]") -> None:
    """The one place where a check may fail in any way."""
    try:
        outcome.set_result(check.look())
    except CodeZeroError as error:  # what a node would end with too
        outcome.set_result(fail(_first_line(error)))
    except Exception as error:  # noqa: BLE001 - a check that is broken says nothing about the machine
        outcome.set_result(unknown(f"the check itself failed: {type(error).__name__}: {_first_line(error)}"))


def _result(check: Check, outcome: "Future[Outcome]", seconds: float) -> list[Finding]:
    try:
        found = outcome.result(seconds)
    except TimeoutError:
        found = unknown(f"no answer within {check.seconds:g} s")
    if isinstance(found, list):
        return found
    return [found.named(name) for name in check.finds or (check.name,)]


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0]


def line(finding: Finding) -> str:
    """For people. Foreign text is cleaned."""
    said = clean(finding.said, MAX_TEXT)
    if finding.mend:
        said += f"; {clean(finding.mend, MAX_TEXT)}"
    return f"{WORDS.get(finding.state, str(finding.state)):14}  {finding.check:10}  {said}"


def as_object(findings: Sequence[Finding]) -> dict[str, object]:
    """For programs: whether nothing failed, and each finding with its check, state, said and mend."""
    return {"ok": healthy(findings), "findings": [asdict(finding) for finding in findings]}


def healthy(findings: Sequence[Finding]) -> bool:
    """Did no check fail? Warnings, and what could not be told, are no failures."""
    return not any(finding.state is State.FAIL for finding in findings)


def show(finding: Finding) -> None:
    print(line(finding), file=sys.stdout, flush=True)
