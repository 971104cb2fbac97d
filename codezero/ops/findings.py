"""Findings, and all checks at once, each with a deadline: none can hold up or bring down another."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from multiprocessing.pool import ThreadPool

import msgspec
from msgspec.structs import replace

from codezero.errors import CodeZeroError
from codezero.monitor.text import clean

MAX_TEXT = 600  # characters of a line's two parts each


class CheckState(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"  # the check could not be done: nothing is claimed


class Finding(msgspec.Struct, frozen=True):
    state: CheckState
    text: str = msgspec.field(name="said")
    mend: str = ""  # what to do about it; empty where nothing needs doing
    check: str = ""


ok, warn, fail, unknown = (partial(Finding, state) for state in CheckState)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    run: Callable[[], Finding | list[Finding]]  # several findings have names of their own
    seconds: float = 15.0


def diagnose(checks: Sequence[Check]) -> Iterator[Finding]:
    """The findings, in the order of `checks`; all of them within the longest deadline."""
    began, pool = time.monotonic(), ThreadPool(len(checks))  # of daemons: what hangs in a name look-up is left behind
    running = [(check, pool.apply_async(check.run)) for check in checks]
    pool.close()
    for check, outcome in running:
        try:
            findings = outcome.get(max(0.0, began + check.seconds - time.monotonic()))
        except multiprocessing.TimeoutError:
            findings = unknown(f"no answer within {check.seconds:g} s")
        except CodeZeroError as error:  # what a node would end with too
            findings = fail(str(error).partition("\n")[0])
        except Exception as error:  # noqa: BLE001 - a check that is broken says nothing about the machine
            findings = unknown(f"the check itself failed: {error!r}")
        yield from findings if isinstance(findings, list) else [replace(findings, check=check.name)]


def line(finding: Finding) -> str:
    """For people. Foreign text is cleaned."""
    state = "could not tell" if finding.state is CheckState.UNKNOWN else finding.state
    text = "; ".join(clean(part, MAX_TEXT) for part in (finding.text, finding.mend) if part)
    return f"{state:14}  {finding.check:10}  {text}"


def healthy(findings: Sequence[Finding]) -> bool:
    """Did no check fail? Warnings and what is unknown are no failures."""
    return not any(finding.state is CheckState.FAIL for finding in findings)
