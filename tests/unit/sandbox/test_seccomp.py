"""The filter in a real jail: what no coding problem needs is refused, and what they need is not.

Numbers of the other architecture and the x32 calls are checked by running the filter itself."""

import errno
import platform
import struct
from collections.abc import Iterator

import pytest

from codezero.sandbox import jail
from codezero.sandbox.base import Job, Outcome
from codezero.sandbox.bubblewrap import BubblewrapSandbox
from codezero.sandbox.jail import ABSENT, ALLOW, DENIED, MACHINES, REFUSE, jail_filter, numbers

HERE = platform.machine()
ALL = [(name, errno.EPERM) for name in DENIED.split()[::3]] + [(name, errno.ENOSYS) for name in ABSENT.split()[::3]]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[BubblewrapSandbox]:
    if reason := jail.why_not() or ("" if HERE in MACHINES else f"no filter for {HERE}"):
        pytest.skip(reason)
    with BubblewrapSandbox(seconds=4, memory_mib=160) as sandbox:
        yield sandbox


def number_of(name: str) -> int:
    words = (DENIED + ABSENT).split()
    return int(words[words.index(name) + MACHINES[HERE][1]])


def test_what_no_program_needs_is_refused_in_the_jail(sandbox: BubblewrapSandbox) -> None:
    """All arguments are -1, with which most of them would end in another error."""
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef f(numbers):\n    errors = []\n"
        "    for number in numbers:\n        ctypes.set_errno(0)\n"
        "        libc.syscall(number, *[ctypes.c_long(-1)] * 6)\n        errors.append(ctypes.get_errno())\n"
        "    return errors"
    )
    there = [(name, error) for name, error in ALL if number_of(name) >= 0]
    asked, wanted = [number_of(name) for name, _ in there], [error for _, error in there]
    assert sandbox.run(Job(code, (f"assert f({asked}) == {wanted}",))).reason == ""


@pytest.mark.parametrize(
    "call",
    ["socket.socket(socket.AF_UNIX)", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "libc.unshare(0) and 1 / 0"],
)
def test_calls_by_their_names_are_refused(sandbox: BubblewrapSandbox, call: str) -> None:
    code = f"import ctypes, socket\nlibc = ctypes.CDLL(None)\ndef f(x):\n    try:\n        {call}\n"
    code += "    except (PermissionError, ZeroDivisionError):\n        return True\n    return False"
    assert sandbox.run(Job(code, ("assert f(1)",))).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "body",
    [
        "return asyncio.run(asyncio.sleep(0, x))",
        "return ThreadPoolExecutor(1).submit(abs, x).result()",
        "return int(subprocess.run(['/usr/bin/python3', '-c', 'print(2)'], capture_output=True).stdout)",
        "r, w = os.pipe()\n    if os.fork() == 0:\n        os.write(w, b'2')\n        os._exit(0)\n"
        "    return int(os.read(r, 1))",
    ],
)
def test_what_programs_use_still_works(sandbox: BubblewrapSandbox, body: str) -> None:
    imports = "import asyncio, os, subprocess\nfrom concurrent.futures import ThreadPoolExecutor\n"
    done = sandbox.run(Job(f"{imports}def f(x):\n    {body}", ("assert f(2) == 2",)))
    assert done.outcome is Outcome.PASS, done


def answer(program: bytes, number: int, architecture: int, argument: int = 0) -> int:
    """What the filter returns: the five operations of BPF that it uses."""
    data = struct.pack("=IIQQ", number, architecture, 0, argument)
    at, held = 0, 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        if operation == 0x06:
            return value
        if operation == 0x20:
            (held,) = struct.unpack_from("=I", data, value)
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[operation]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", sorted(MACHINES))
def test_the_filter_of_each_architecture(machine: str) -> None:
    program, (architecture, _, clone) = jail_filter(machine), MACHINES[machine]
    for table, error in ((DENIED, errno.EPERM), (ABSENT, errno.ENOSYS)):
        for number in numbers(table, machine):
            assert answer(program, number, architecture) == REFUSE | error
    denied = set(numbers(DENIED + ABSENT, machine))
    assert all(answer(program, number, architecture) == ALLOW for number in range(451) if number not in denied)
    other = next(code for name, (code, _, _) in MACHINES.items() if name != machine)
    assert answer(program, 1, other) == answer(program, 0x40000001, architecture) == REFUSE | errno.ENOSYS
    assert answer(program, clone, architecture, 17) == ALLOW  # a process, as fork makes one
    for bit in (7, 17, 25, 26, 27, 28, 29, 30):  # CLONE_NEW*, of <linux/sched.h>
        assert answer(program, clone, architecture, 1 << bit | 17) == REFUSE | errno.EPERM


def test_an_unknown_machine_has_no_filter() -> None:
    assert jail_filter("riscv64") == b""
