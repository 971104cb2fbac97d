"""What a check and a finding are; checks of the machine: Python, disk, clock, and in a child process the device."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec


class CheckState(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """The check could not be done: nothing is claimed."""


class Finding(msgspec.Struct, frozen=True):
    """One line of the diagnosis."""

    state: CheckState
    text: str = msgspec.field(name="said")
    mend: str = ""
    """What to do about it; empty where nothing needs doing."""
    check: str = ""
    """Which check found it; `diagnose` fills it in."""

    def named(self, check: str) -> "Finding":
        return msgspec.structs.replace(self, check=check)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    run: Callable[[], Finding | list[Finding]]
    """Several findings have names of their own."""
    seconds: float = 10.0
    """Deadline."""
    finds: tuple[str, ...] = ()
    """The names of the findings, where they are several."""


ok, warn, fail, unknown = (partial(Finding, state) for state in CheckState)

GIB = 2**30
LEAST_DISK, GOOD_DISK = 0.25 * GIB, 2 * GIB
"""Checkpoints and logs of the embedded models need less than the first; real models want more than the second."""
WRITTEN = 1 << 16
HARDWARE = ("torch", "device", "memory")
HARDWARE_SECONDS = 22.0
MAX_OUTPUT = 1 << 16
SKEW_WARN, SKEW_FAIL = 5.0, 60.0
"""Seconds. Records of peers live for some minutes, and with chain.kind=clock rounds go by the clock."""
UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""
TIMEX_BYTES = 512
"""More than struct timex has anywhere."""


def python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if (3, 11) <= sys.version_info[:2] < (3, 13):
        return ok(f"{version} on {sys.platform}")
    return fail(f"{version}", "codezero needs Python 3.11 or 3.12")


def disk(folder: Path) -> Finding:
    """Is there room where runs are kept, and may this user write there?"""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(os.urandom(WRITTEN))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return fail(f"{there} cannot be written ({error.strerror})", "free it, or set run.directory to another folder")
    return judge_disk(there, free)


def judge_disk(folder: Path, free: int) -> Finding:
    """free: bytes."""
    space = f"{free / GIB:.1f} GiB free in {folder}"
    mend = "make room, or set run.directory to another disk"
    if free < LEAST_DISK:
        return fail(space, mend)
    return ok(space) if free >= GOOD_DISK else warn(f"{space}, enough for the embedded models only", mend)


def clock(block_time: float | None, round_seconds: float) -> Finding:
    """block_time: of the chain's newest block, where the chain is not this machine's own; None: unknown."""
    return judge_clock(_kernel_synchronised(), time.time(), block_time, round_seconds)


def judge_clock(synchronised: bool | None, now: float, block_time: float | None, round_seconds: float) -> Finding:
    """What is certain without a time server. Seconds since 1970.

    A block that is of the future proves that this clock is late; an old one may only mean that there was no newer.
    """
    mend = "let the system keep its time (`timedatectl set-ntp true`, or chrony)"
    if block_time is not None and block_time - now > SKEW_WARN:
        late = fail if block_time - now > SKEW_FAIL else warn
        return late(f"this clock is at least {block_time - now:.0f} s behind the chain's", mend)
    if block_time is not None and now - block_time > max(10 * round_seconds, 600.0):
        return unknown(f"the chain's newest block is {now - block_time:.0f} s old: this clock is ahead, or it stands")
    agrees = "" if block_time is None else f"; the chain's newest block is {max(0.0, now - block_time):.0f} s old"
    if synchronised:
        return ok(f"the system says that it is kept by a time server{agrees}")
    if block_time is not None:
        return ok(f"not behind the chain's{agrees}")
    why = "the system cannot be asked" if synchronised is None else "the system says that no time server keeps it"
    return unknown(f"{why}, and there is no chain of others to compare with", mend)


def _kernel_synchronised() -> bool | None:
    """What adjtimex(2) reports, without setting anything. None: there is no such call here."""
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != UNSYNCHRONISED


def hardware(overrides: Sequence[str]) -> list[Finding]:
    """torch, a kernel on the device, memory against the models: in a process that may crash or hang with its driver."""
    command = [sys.executable, "-m", "codezero.ops.doctor_hardware", *overrides]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=HARDWARE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        return read_hardware(late.stdout or b"", f"no answer within {HARDWARE_SECONDS:g} s")
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return read_hardware(done.stdout, f"its process ended with {done.returncode}: {lines[-1] if lines else 'silence'}")


def read_hardware(output: bytes, why: str) -> list[Finding]:
    """A line of JSON for each finding; those that are missing are unknown, for the reason `why`."""
    findings: dict[str, Finding] = {}
    for raw in output[:MAX_OUTPUT].splitlines():
        try:
            finding = msgspec.json.decode(raw, type=Finding)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        findings[finding.check] = finding
    return [findings.get(name) or unknown(why).named(name) for name in HARDWARE]
