"""A process in a jail of bubblewrap: no network, no files of this machine but /usr, no privileges, bounded in all.

Every namespace is its own; the root is read-only but for 16 MiB under /tmp; the user is nobody, in the jail and, when
this process is root, outside as well, because the kernel does not hold root to a number of processes. The jail dies
with the process that opened it, and all that lives in it dies with the jail. Calls of the kernel that no such program
needs are refused by a filter (classic BPF over `struct seccomp_data`, see seccomp(2)): with EPERM, or with ENOSYS what
the C library has another way for or another architecture knows. A hole in the calls that are left is one in the jail.
"""

import errno
import json
import os
import platform
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from codezero.errors import SandboxError
from codezero.sandbox import jail_main

DENIED = """
mount 165 40 umount2 166 39 pivot_root 155 41 chroot 161 51 move_mount 429 429 open_tree 428 428 fsopen 430 430
fsconfig 431 431 fsmount 432 432 fspick 433 433 mount_setattr 442 442 name_to_handle_at 303 264
open_by_handle_at 304 265 swapon 167 224 swapoff 168 225 quotactl 179 60 quotactl_fd 443 443 fanotify_init 300 262
ptrace 101 117 process_vm_readv 310 270 process_vm_writev 311 271 process_madvise 440 440 pidfd_getfd 438 438
kcmp 312 272 perf_event_open 298 241 lookup_dcookie 212 18
bpf 321 280 init_module 175 105 finit_module 313 273 delete_module 176 106 kexec_load 246 104
kexec_file_load 320 294 reboot 169 142 acct 163 89 syslog 103 116 vhangup 153 58 nfsservctl 180 42
add_key 248 217 request_key 249 218 keyctl 250 219 userfaultfd 323 282 memfd_secret 447 447
unshare 272 97 setns 308 268 socket 41 198 sethostname 170 161 setdomainname 171 162 personality 135 92
settimeofday 164 170 clock_settime 227 112 clock_adjtime 305 266 adjtimex 159 171
mbind 237 235 migrate_pages 256 238 move_pages 279 239 set_mempolicy 238 237 set_mempolicy_home_node 450 450
shmget 29 194 semget 64 190 msgget 68 186 mq_open 240 180
iopl 172 -1 ioperm 173 -1 modify_ldt 154 -1 uselib 134 -1 ustat 136 -1 sysfs 139 -1
"""
ABSENT = "io_uring_setup 425 425 io_uring_enter 426 426 io_uring_register 427 427 io_setup 206 0 clone3 435 435"
"""Names with their numbers on x86_64 and aarch64; -1: not there. clone3's flags cannot be seen from a filter."""
MACHINES = {"x86_64": (0xC000003E, 1, 56), "aarch64": (0xC00000B7, 2, 220)}  # AUDIT_ARCH, column, clone
NAMESPACES = 0x7E020080  # flags of clone that make new namespaces: time, mount, cgroup, UTS, IPC, user, PID and network
X32 = 0x40000000
LOAD, EQUAL, AT_LEAST, ANY_OF, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # in `struct seccomp_data`; of the argument the lower half


def _code(operation: int, value: int, skip_if: int = 0, skip_unless: int = 0) -> bytes:
    """`struct sock_filter`. skip: how many instructions are left out."""
    return struct.pack("=HBBI", operation, skip_if, skip_unless, value)


def numbers(table: str, machine: str) -> list[int]:
    return [number for number in map(int, table.split()[MACHINES[machine][1] :: 3]) if number >= 0]


def jail_filter(machine: str = platform.machine()) -> bytes:
    """For `bwrap --seccomp`; empty on a machine whose numbers are not known here."""
    if machine not in MACHINES:
        return b""
    architecture, _, clone = MACHINES[machine]
    refuse = {number: _code(RETURN, REFUSE | errno.EPERM) for number in numbers(DENIED, machine)}
    absent = _code(RETURN, REFUSE | errno.ENOSYS)
    refuse |= dict.fromkeys(numbers(ABSENT, machine), absent)
    return b"".join([
        *(_code(LOAD, ARCHITECTURE), _code(EQUAL, architecture, 1), absent),
        *(_code(LOAD, NUMBER), _code(AT_LEAST, X32, 0, 1), absent),
        *(_code(EQUAL, number, 0, 1) + answer for number, answer in refuse.items()),
        *(_code(EQUAL, clone, 0, 3), _code(LOAD, FIRST_ARGUMENT), _code(ANY_OF, NAMESPACES, 0, 1)),
        *(_code(RETURN, REFUSE | errno.EPERM), _code(RETURN, ALLOW)),
    ])  # fmt: skip


_NOBODY = 65534
_GRACE_SECONDS = 2.0
_START_SECONDS = 30.0  # from opening a jail until it answers, which an overloaded machine may never do
_PYTHON = Path("/usr/bin/python3")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

_REMEDIES = {  # by what stands in the message of bubblewrap
    "nknown option": "bubblewrap 0.8 or newer is needed",
    "uid map": "AppArmor forbids user namespaces: give bwrap a profile that has `userns`",
    "namespace": "user namespaces are forbidden; in Docker run with --security-opt seccomp=unconfined",
    "not permitted": "user namespaces are forbidden; in Docker run with --security-opt seccomp=unconfined",
    "source path": "Python's folder is closed to nobody: install python3 under /usr",
    "execvp": "there is no Python that the jail can run: install python3 under /usr",
}
_PROBE = """
import os, socket, time
assert not os.path.exists("/etc/passwd") and not os.path.exists("/proc/1"), "files of the machine can be seen"
assert os.getuid() == 65534, "the user is not nobody"
try:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
except OSError:
    pass
else:
    raise AssertionError("the network can be reached")
try:
    for _ in range(20):
        if os.fork() == 0:
            time.sleep(60)
except OSError:
    print("walls hold")
else:
    raise AssertionError("the number of processes is not bounded")
"""


class Ended(NamedTuple):
    printed: bytes = b""  # of stdout; one byte more than it may print, where it prints more
    report: bytes = b""  # what `jail_main` and whoever else had its channel wrote
    status: int | None = None  # exit status, 128 + n after signal n; None: killed because it took or wrote too much
    begun: bool = True  # False: the jail did not begin in time, which is not the program's fault


class Jail(NamedTuple):
    """Limits of a program: processor seconds of a test and of all, by the clock twice as long and two seconds,
    and memory of each process. packages: files and folders that it may import beside the standard library."""

    seconds: float
    total_seconds: float
    memory_mib: int
    packages: tuple[Path, ...] = ()

    def run(self, code: str, texts: Sequence[str], *, most: int, name: str = "__main__", tests: int = 0,
            counts: dict[str, str] | None = None) -> Generator[Ended]:  # fmt: skip
        """Run `code` as the module `name`, once for each of the texts, a process each, with the text on its stdin. A
        text goes into the jail when it is asked for, so no process can see a later one. most: bytes that it may print.
        tests: how many a text has that runs behind the code; counts: the lists that its report has, and their names
        there. Raises SandboxError when the jail does not come about."""
        seconds = min(self.total_seconds, self.seconds * (tests + 1))
        total = seconds * len(texts) if tests else self.total_seconds
        plan = {"name": name, "output": most + 1, "counts": counts or {}, "total": total}
        with ExitStack() as stack:
            opened = self._open(stack, code, plan)
            if not _begins(*opened):
                yield Ended(begun=False)
                return
            deadline = time.monotonic() + 2 * total + _GRACE_SECONDS
            for text in texts:
                ends = min(deadline, time.monotonic() + 2 * seconds + _GRACE_SECONDS)
                data = text.encode("utf-8", "surrogatepass")
                opened[1].settimeout(max(0.001, ends - time.monotonic()))
                with suppress(OSError):  # that the jail is at its end shows when its answer is read
                    opened[1].sendall(len(data).to_bytes(4, "little") + data)
                yield _read_answer(*opened, most, ends)

    def _open(
        self, stack: ExitStack, code: str, plan: dict[str, Any]
    ) -> "tuple[subprocess.Popen[bytes], socket.socket]":
        """Start a jail; it, and the channel to it."""
        # processes and threads together: bubblewrap's own and its first child among them, and a pool of four
        limits = {"RLIMIT_NPROC": 12, "RLIMIT_NOFILE": 64, "RLIMIT_FSIZE": 2**20, "RLIMIT_CORE": 0}
        limits["RLIMIT_AS"] = self.memory_mib * 2**20
        contents = {
            "codezero/sandbox/jail_main.py": Path(jail_main.__file__).read_bytes(),
            "plan.json": json.dumps(plan | {"seconds": self.seconds, "limits": limits}).encode(),
            "main.py": code.encode("utf-8", "surrogatepass"),
        }
        files = {name: _file(data, stack) for name, data in contents.items()}
        channel, inner = (stack.enter_context(end) for end in socket.socketpair())
        process, first = _start(files, self.packages, _file(jail_filter(), stack), inner)
        stack.callback(_end, process, first)
        inner.close()
        return process, channel


def _begins(process: subprocess.Popen[bytes], channel: socket.socket) -> bool:
    """False: not in time. Raises SandboxError when it cannot."""
    assert process.stderr
    try:
        return bool(_receive(channel, len(jail_main.STARTED), time.monotonic() + _START_SECONDS))
    except TimeoutError:
        return False
    except OSError:
        process.kill()
    message = " ".join(process.stderr.read(300).decode(errors="replace").split())
    remedy = next((f"; {remedy}" for sign, remedy in _REMEDIES.items() if sign in message), "")
    raise SandboxError(f"no jail: {message or f'bwrap ends with {process.wait()}'}{remedy}")


def _read_answer(process: subprocess.Popen[bytes], channel: socket.socket, most: int, deadline: float) -> Ended:
    """Receive the answer to a text. Whatever answers may lie, but neither too long nor for too long."""
    try:
        status, report, printed = jail_main.ANSWER.unpack(_receive(channel, jail_main.ANSWER.size, deadline))
        if report > jail_main.MAX_REPORT_BYTES or printed > most + 1:
            return Ended()
        report = _receive(channel, report, deadline)
        return Ended(_receive(channel, printed, deadline), report, status)
    except TimeoutError:
        return Ended()
    except OSError:  # the jail comes to its end, unless something in it only closed the channel
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(_GRACE_SECONDS)
            return Ended(status=128 - status if status < 0 else status)
        return Ended()


def _receive(channel: socket.socket, size: int, deadline: float) -> bytes:
    """So many bytes. Raises TimeoutError, and another OSError when the other end closes."""
    data = bytearray()
    while len(data) < size:
        channel.settimeout(max(0.001, deadline - time.monotonic()))
        piece = channel.recv(size - len(data))
        if not piece:
            raise ConnectionError
        data += piece
    return bytes(data)


def _end(process: subprocess.Popen[bytes], first: int | None) -> None:
    """End the jail. first: the descriptor of its first process; all others die with it."""
    assert process.stderr
    if first is not None:
        # from outside: what is in the jail may have unmade its dying with us, by way of ptrace
        with suppress(ProcessLookupError):  # it ended by itself
            signal.pidfd_send_signal(first, signal.SIGKILL)
        os.close(first)
    process.kill()
    process.wait()
    process.stderr.close()


def _file(data: bytes, stack: ExitStack) -> int:
    file = stack.enter_context(os.fdopen(os.memfd_create("jail"), "w+b"))
    file.write(data)
    file.seek(0)
    return file.fileno()


def _start(
    files: dict[str, int], packages: Iterable[Path], calls: int, end: socket.socket
) -> tuple[subprocess.Popen[bytes], int | None]:
    """bubblewrap, and a descriptor of the first process in its jail, or None when there came to be no jail."""
    # a process of root is exempt from the limit on processes
    user = _NOBODY if os.geteuid() == 0 else None
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as info:
        try:
            process = subprocess.Popen(
                _command(files, packages, writing, calls),
                stdin=end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[writing, calls, *files.values()],
                cwd="/",
                env={},
                start_new_session=True,  # Ctrl-C is for the node, whose verdict it must not change
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SandboxError(f"bubblewrap cannot be started: {error}") from error
        finally:
            os.close(writing)
        number = re.search(rb'"child-pid": (\d+)', info.read(4096))
    try:
        return process, os.pidfd_open(int(number[1])) if number else None
    except ProcessLookupError:
        return process, None


def _command(files: dict[str, int], packages: Iterable[Path], info: int, calls: int) -> list[str]:
    base = Path(sys.base_prefix).resolve()
    python = _PYTHON if _PYTHON.exists() else base / "bin" / "python3"
    environment = {"PATH": "/usr/bin", "HOME": "/tmp", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return [
        *(shutil.which("bwrap") or "bwrap", "--unshare-all", "--unshare-user", "--disable-userns"),
        *("--info-fd", str(info), "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--hostname", "jail"),
        *("--uid", str(_NOBODY), "--gid", str(_NOBODY), "--clearenv"),
        *(part for name, value in environment.items() for part in ("--setenv", name, value)),
        *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"),
        *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
        *(() if python.is_relative_to("/usr") else ("--ro-bind", str(base), str(base))),
        *("--tmpfs", "/dev", "--symlink", f"{jail_main.STREAMS}/stdin", "/dev/stdin"),
        *("--symlink", f"{jail_main.STREAMS}/stdout", "/dev/stdout", "--symlink", "null", "/dev/stderr"),
        *(part for path in _DEVICES for part in ("--dev-bind", path, path)),
        *("--size", str(16 * 2**20), "--tmpfs", "/dev/shm", "--size", str(16 * 2**20), "--tmpfs", "/tmp"),
        *("--size", str(8 * 2**20), "--tmpfs", jail_main.STREAMS),
        *(part for path in packages for part in ("--ro-bind", str(path), f"{jail_main.PACKAGES}/{path.name}")),
        *(part for name, number in files.items() for part in ("--ro-bind-data", str(number), f"/jail/{name}")),
        *(("--seccomp", str(calls)) if jail_filter() else ()),
        *("--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/jail"),
        *("--", str(python), "-S", "-s", "-B", "-c", "from codezero.sandbox.jail_main import main; main()"),
    ]


def why_not() -> str:
    """Say in one line why there can be no jail on this machine, and what to do about it; empty when there can."""
    if sys.platform != "linux":
        return "bubblewrap needs Linux"
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (Debian, Ubuntu: apt install bubblewrap)"
    try:
        (ended,) = Jail(seconds=5, total_seconds=5, memory_mib=256).run(_PROBE, [""], most=99)
    except SandboxError as error:
        return str(error)
    if ended.printed.strip() != b"walls hold":
        return f"a wall of the jail does not hold: {ended.report.decode(errors='replace')[:200]}"
    return ""
