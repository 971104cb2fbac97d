"""Findings, all checks at once, each with its deadline, and those of the machine: none can hold up another.

Device and memory are checked in a child, which may crash or hang with its driver."""

import contextlib
import ctypes
import io
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path

import msgspec
from msgspec.structs import replace

from codezero.config import NodeConfig, SwarmConfig
from codezero.errors import CodeZeroError, ModelError
from codezero.monitor.text import clean, readable_name
from codezero.system.child import how_it_ended, python

GIB = 2**30
MAX_TEXT = 600  # characters of a line's two parts each
# checkpoints and logs of the embedded models need less than the first; real models want more than the second
LEAST_DISK, GOOD_DISK = 0.25 * GIB, 2 * GIB
HARDWARE = ("torch", "device", "memory")
HARDWARE_SECONDS = 22.0
# seconds. Records of peers live for some minutes, and with chain.kind=clock rounds go by the clock.
SKEW_WARN, SKEW_FAIL = 5.0, 60.0


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


def disk(folder: str) -> Finding:
    """Is there room where runs are kept, and may this user write there?"""
    there = next(path for path in (Path(folder).absolute(), *Path(folder).absolute().parents) if path.is_dir())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return fail(f"{there} cannot be written ({error.strerror})", "free it, or set run.directory to another folder")
    free = shutil.disk_usage(there).free
    space, mend = f"{free / GIB:.1f} GiB free in {there}", "make room, or set run.directory to another disk"
    if free < LEAST_DISK:
        return fail(space, mend)
    return ok(space) if free >= GOOD_DISK else warn(f"{space}, enough for the embedded models only", mend)


def clock(block_time: float | None, round_seconds: float) -> Finding:
    """block_time: of the newest block of a chain that others keep; None: unknown."""
    adjtimex = getattr(ctypes.CDLL(None), "adjtimex", None)  # which reports, and here sets nothing
    state = -1 if adjtimex is None else adjtimex(ctypes.create_string_buffer(512))  # more than its struct has
    time_error = 5  # of adjtimex(2)
    return judge_clock(0 <= state != time_error, time.time(), block_time, round_seconds)


def judge_clock(synchronised: bool, now: float, block_time: float | None, round_seconds: float) -> Finding:
    """Say what is certain without a time server. Seconds since 1970. A block that is of the future proves that this
    clock is late; an old one may only mean that there was no newer."""
    mend = "let the system keep its time (`timedatectl set-ntp true`, or chrony)"
    behind = 0.0 if block_time is None else block_time - now
    if behind > SKEW_WARN:
        late = fail if behind > SKEW_FAIL else warn
        return late(f"this clock is at least {behind:.0f} s behind the chain's", mend)
    if -behind > max(10 * round_seconds, 600.0):
        return unknown(f"the chain's newest block is {-behind:.0f} s old: this clock is ahead, or the chain stands")
    if synchronised:
        return ok("the system says that it is kept by a time server")
    if block_time is not None:
        return ok("not behind the chain's")
    return unknown("neither a time server nor a chain of others can be compared with", mend)


def identity(config: SwarmConfig) -> Finding:
    from codezero.swarm.identity import Identity

    path = Path(config.identity)
    if not path.exists():
        return ok(f"{path} is made at the first start")
    own = Identity.load(path).peer_id
    return ok(f"{readable_name(own)}, {own}, {path}")


def login(config: NodeConfig) -> Finding:
    """Who signs for the points, and can the node do so now?"""
    from codezero.login.vault import Folder, Vault

    if config.chain.kind == "clock":
        return ok("not needed: no points are counted (chain.kind=clock)")
    directory = Path(config.login.directory)
    vault = Vault(Folder(directory), config.login.days, time.time) if directory.is_dir() else None
    if vault is None or (owner := vault.owner()) is None:
        return ok(f"nobody owns this node on the page; points go to the account of {config.chain.wallet}")
    if vault.signer() is None:
        return warn(f"logged out: points for {owner.account} wait", "codezero login")
    return ok(f"logged in as {owner.account}")


def plugins(config: NodeConfig) -> Finding:
    """Name the code of the user's own. Raises ConfigError where it is not there."""
    from codezero.settings import RIGHTS, own_code

    names = ", ".join(own_code(config))
    return ok(f"{names}: {RIGHTS}" if names else "none is named: nothing but this package's own code runs")


def hardware(config: NodeConfig, overrides: Sequence[str]) -> list[Finding]:
    """torch, a kernel on the device, memory against the models: in a process that may crash or hang with its driver."""
    command, composed = python("-m", __name__, *overrides), msgspec.json.encode(config)
    try:
        done = subprocess.run(command, input=composed, capture_output=True, timeout=HARDWARE_SECONDS, check=False)
    except subprocess.TimeoutExpired as late:
        return read_hardware(late.stdout or b"", f"no answer within {HARDWARE_SECONDS:g} s")
    return read_hardware(done.stdout, f"its process {how_it_ended(done.returncode, io.BytesIO(done.stderr))}")


def read_hardware(output: bytes, why: str) -> list[Finding]:
    """A line of JSON for each finding; those that are missing are unknown, for the reason `why`."""
    findings: dict[str, Finding] = {}
    for raw in output.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            finding = msgspec.json.decode(raw, type=Finding)
            findings[finding.check] = finding
    return [findings.get(name) or unknown(why, check=name) for name in HARDWARE]


def main(overrides: Sequence[str]) -> None:
    """The child: does torch load, does the device compute forward and backward, do the models fit? Until one fails.
    Standard input: the config that `overrides` were composed to, which takes Hydra a third of a second."""
    check, config = "torch", msgspec.json.decode(sys.stdin.buffer.read(), type=NodeConfig)
    try:
        import torch

        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"
        _print(check, ok(f"{torch.__version__}, built for {built}"))
        from codezero.fitting import settled
        from codezero.models.device import choose_device, choose_precision, prove_device
        from codezero.models.hardware import weigh

        check = "device"
        where = choose_device(config.model.device, "solver")
        dtype = choose_precision(config.model.precision, where)
        prove_device(where, dtype)
        computes, slower = f"{where.type} computes in {str(dtype).removeprefix('torch.')}", ""
        if where.type == "cuda":
            from codezero.solver.loss import prove_head, without_triton

            slower = without_triton()
            prove_head(where, dtype)
        _print(check, warn(f"{computes}; {slower}", "install gcc and Python's headers") if slower else ok(computes))
        check = "memory"
        with tempfile.TemporaryDirectory() as nowhere:  # what `auto` chooses is not kept
            need, has, _ = weigh(settled(config, overrides, Path(nowhere)))
        memory = f"{has.free / GIB:.1f} of {has.total / GIB:.1f} GiB free on {where.type}"
        _print(check, judge_memory(memory, need and need.total, str(need), has.free))
    except (ImportError, OSError) as error:
        _print(check, fail(f"torch cannot be loaded: {str(error).splitlines()[0]}", "install again: remove .venv/"))
    except ModelError as error:
        _print(check, fail(str(error)))


def judge_memory(memory: str, need: float | None, estimate: str, free: int) -> Finding:
    """need, free: bytes; None: of embedded models, which need less than a GiB."""
    if need is None:
        fits = f"{memory}; the embedded models need less than one"
        return ok(fits) if free >= GIB else fail(memory, "end what uses it")
    if need > free:
        return fail(f"{memory}, and this node needs about {estimate}", "choose a smaller profile= or model.solver=")
    return ok(f"{memory}; this node needs about {estimate}")


def _print(check: str, finding: Finding) -> None:
    print(msgspec.json.encode(replace(finding, check=check)).decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
