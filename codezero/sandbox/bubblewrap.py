"""Generated code, executed by a full CPython in a jail of bubblewrap; alone, or where Monty cannot tell.

What a program prints is compared outside its jail, which never gets what should come out. The tests of a function run
in one process with it, and what passes runs again under a control that it cannot see (`control.py`)."""

import json
import logging
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from importlib import metadata
from itertools import islice
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from codezero.errors import ConfigError, SandboxError
from codezero.sandbox import jail
from codezero.sandbox.base import LACKS, MAX_OUTPUT_BYTES, Execution, Job, Outcome, Sandbox, Tier, failed, unknown
from codezero.sandbox.control import HELD, MISSED, TAG, ControlledRun, SiteCounts, control_of
from codezero.sandbox.jail import Ended, Jail
from codezero.sandbox.jail_main import SOLUTION
from codezero.sandbox.monty import MontySandbox

_logger = logging.getLogger(__name__)


class _Report(msgspec.Struct):
    """The report of `jail_main`."""

    raised: tuple[str, str] | None = None  # type and message of the exception that ended the run
    missing: str | None = None  # the file or module whose lack raised it
    unclear: str = ""  # why the tests cannot be decided
    held: list[int] = []
    missed: list[int] = []


MAX_PACKAGES = 64  # with those that they need


def find_packages(names: Sequence[str]) -> tuple[Path, ...]:
    """The files and folders that the packages put beside each other where they are installed. names: as in `pip
    install`. Raises ConfigError for one that is not installed here."""
    waiting, known, paths = list(names), set[str](), dict[str, Path]()
    while waiting:
        name = waiting.pop()
        if canonicalize_name(name) in known:
            continue
        try:
            package = metadata.distribution(name)
        except (metadata.PackageNotFoundError, ValueError) as error:
            wanted = "" if name in names else f" (which one of {', '.join(names)} needs)"
            remedy = f"install it beside codezero: {sys.executable} -m pip install {name}"
            raise ConfigError(f"audit.packages: {name!r}{wanted} is not installed; {remedy}") from error
        known.add(canonicalize_name(name))
        if len(known) > MAX_PACKAGES:
            raise ConfigError(f"audit.packages: {', '.join(names)} need more than {MAX_PACKAGES} packages")
        for file in package.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not top.endswith((".dist-info", ".pth", ".egg-info")):
                paths[top] = Path(str(package.locate_file(top)))
        needed = map(Requirement, package.requires or ())
        waiting += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return tuple(paths[top] for top in sorted(paths))


class BubblewrapSandbox(Tier):
    """A fresh jail for each program, and in it a fresh process for each case of a program that reads stdin; a function
    whose tests pass gets another jail, and a process for each time that they run under control. seconds: processor time
    of a test; it is also ended after twice that, and two seconds, by the clock. total_seconds: the same, of all tests
    of a program. memory_mib: address space of each of a jail's processes; there can be nine. packages: names of
    installed packages that programs may import."""

    def __init__(
        self,
        *,
        seconds: float = 4.0,
        total_seconds: float = 100.0,
        memory_mib: int = 512,
        workers: int = 1,
        packages: Sequence[str] = (),
    ) -> None:
        """Raises SandboxError, with the reason and the remedy, when there can be no jail on this machine, and
        ConfigError for a package that cannot be lent."""
        if reason := jail.why_not():
            raise SandboxError(reason)
        self.workers, self._jail = workers, Jail(seconds, total_seconds, memory_mib, find_packages(packages))

    def close(self) -> None: ...

    def run_cases(self, code: str, inputs: Sequence[str], most: int, *, main: bool) -> Generator[Execution | str]:
        with closing(self._jail.run(code, inputs, most=most, name="__main__" if main else SOLUTION)) as jail:
            for ended in jail:
                fault = _ending(ended, most) or _stopped(_read(ended) or _Report())
                yield fault or ended.printed.decode("utf-8", "replace")

    def read_assertions(self, tests: tuple[str, ...]) -> None:
        control_of(tests)

    def run_assertions(self, code: str, tests: tuple[str, ...]) -> Execution:
        control = control_of(tests)
        with closing(self._counts(code, control.runs())) as counts:
            return control.decide(counts)

    def _counts(self, code: str, runs: Iterator[ControlledRun]) -> Generator[tuple[ControlledRun, SiteCounts]]:
        jail, part = self._jail, list(islice(runs, 1))
        while part:
            # a jail of its own, so that nothing tells a run what an earlier one has shown
            texts = [json.dumps({"helpers": run.helpers, "tests": run.tests}) for run in part]
            tests, most = len(part[0].tests), MAX_OUTPUT_BYTES  # by way of /dev/stdout
            with closing(
                jail.run(code, texts, most=most, name=SOLUTION, tests=tests, counts={"held": HELD, "missed": MISSED})
            ) as ended:
                yield from zip(part, map(_counted, ended), strict=False)
            part = list(islice(runs, 2))
            # what ended in time just so is not failed by the control
            jail = self._jail._replace(seconds=2 * self._jail.seconds, total_seconds=2 * self._jail.total_seconds)


def _counted(ended: Ended) -> SiteCounts:
    report = _read(ended)
    if report is None:
        return SiteCounts(fault=_ending(ended, MAX_OUTPUT_BYTES) or failed("ends before its tests do"))
    return SiteCounts(report.held, report.missed, _stopped(report))


def _read(ended: Ended) -> _Report | None:
    """The report, or None when there is none that makes sense."""
    try:
        return msgspec.json.decode(ended.report, type=_Report)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _stopped(report: _Report) -> Execution | None:
    """Say why a run that left a report did not come to its end."""
    if report.unclear:
        return unknown(report.unclear)
    if report.raised is None:
        return None
    name, message = report.raised
    if name == "AssertionError" and message.startswith(TAG):
        return failed(f"test {message.removeprefix(TAG).strip()} fails")
    if lack := _lack(name, message, report.missing):
        return unknown(lack)
    if name == "SystemExit":
        return failed("ends before its tests do")
    return failed("memory limit" if name == "MemoryError" else f"{name}: {message}")


_MACHINE = ("/proc", "/sys", "/dev", "/etc", "/home", "/root", "/usr", "/var", "/run", "/mnt", "/opt")


def _lack(name: str, message: str, missing: str | None) -> str:
    """Name what another machine may have and the jail has not; empty when this is the code's own error."""
    if name == "ModuleNotFoundError" and missing is not None:
        root = missing.partition(".")[0]
        nested = root != missing and root in sys.stdlib_module_names
        known = root in sys.stdlib_module_names
        return "" if nested else f"the jail's Python lacks {root}" if known else f"{LACKS}{root} (audit.packages)"
    opened = name in {"FileNotFoundError", "PermissionError", "NotADirectoryError"}
    if missing and ((opened and missing.startswith(_MACHINE)) or name in {"PermissionError", "BlockingIOError"}):
        return f"the jail lacks something: {name}: {message}"
    return f"the jail lacks something: {name}: {message}" if "can't start new thread" in message else ""


def _ending(ended: Ended, most: int) -> Execution | None:
    """Say why a run without a report ended; None: as a program should."""
    if not ended.begun:
        return unknown("the jail does not begin in time")
    if len(ended.printed) > most:
        return failed(f"prints more than {most} bytes")
    if ended.status in (None, 128 + signal.SIGXCPU, 128 + signal.SIGALRM):
        return failed("time limit")
    if ended.status == 128 + signal.SIGKILL:
        return failed("killed: time or memory limit")
    return failed(f"exits with {ended.status}") if ended.status else None


class TieredSandbox(Sandbox):
    """Asks the first; where that cannot tell or fails provisionally, the second. A provisional failure stands where
    the second cannot tell. Both end with `close`."""

    def __init__(self, first: Sandbox, second: Sandbox) -> None:
        self._first, self._second, self.workers = first, second, second.workers

    def run(self, job: Job) -> Execution:
        """Raises SandboxError when a sandbox that is asked cannot be used."""
        first = self._first.run(job)
        if first.outcome is not Outcome.UNKNOWN and not first.provisional:
            return first
        second = self._second.run(job)
        return first if second.outcome is Outcome.UNKNOWN and first.provisional else second

    def refusal(self, job: Job) -> str:
        return self._first.refusal(job) and self._second.refusal(job)

    def close(self) -> None:
        self._second.close()
        self._first.close()


def open_sandbox(
    which: str, *, seconds: float = 4.0, total_seconds: float = 100.0, workers: int = 1, packages: Sequence[str] = ()
) -> Sandbox:
    """The sandbox named `auto`, `monty` or `bubblewrap`; the limits and packages are of jails. auto: Monty, and
    bubblewrap behind it where this machine allows it. Raises SandboxError, with the reason and the remedy, when
    bubblewrap is asked for by name and cannot be had."""
    monty = MontySandbox(workers=workers)
    if which == "monty":
        return monty
    try:
        second = BubblewrapSandbox(seconds=seconds, total_seconds=total_seconds, workers=workers, packages=packages)
    except SandboxError as reason:
        if which == "bubblewrap":
            raise
        _logger.info("what Monty cannot tell stays unknown; no second sandbox: %s", reason)
        return monty
    return second if which == "bubblewrap" else TieredSandbox(monty, second)
