"""The inside of the jail, where nothing can be trusted: it executes a program and reports what came of it.

codezero itself takes constants from here and calls nothing: a bare Python 3.8 or newer runs this file in the jail. For
each text that comes in on the channel a fresh process runs the program with that text as its stdin, or, for a function,
with the tests in it; what it leaves running or in files is gone before the next text is asked for. The program shares
that process and can forge any report. What should be printed is compared outside; tests have a control (`control.py`).
"""

from __future__ import annotations

import builtins
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import time
import types
from typing import Any

STARTED = b"started\n"  # first on the channel: from here on, what goes wrong is the program's doing
ANSWER = struct.Struct("<III")  # exit status (128 + n: signal n), bytes of report and stdout, which follow
MAX_REPORT_BYTES = 64 * 1024
MAX_MESSAGE = 200
STREAMS, PACKAGES = "/streams", "/packages"  # folders of the jail: of stdin and stdout, and of importable packages
FRAMES = 3  # of this process below the program's; they are not the program's depth
SOLUTION = "solution"  # module of a function; a program that reads stdin is `__main__`


def limit(limits: dict[str, int]) -> None:
    """Bounds of this process and all it starts, for good, by the names of their constants."""
    for name, most in limits.items():
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        # a second signal, that cannot be ignored, comes a second after the first
        spare = 1 if kind == resource.RLIMIT_CPU and most != hard else 0
        resource.setrlimit(kind, (most, most + spare))


def allow(seconds: float) -> None:
    """So much more processor time for what comes now, to a tenth; and twice that, and a second, by the clock."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = math.ceil(time.process_time() + seconds - 0.1)  # whole seconds: a fresh process gets no more than it should
    resource.setrlimit(resource.RLIMIT_CPU, (min(soft, hard - 1), hard))
    signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 1)


def run(code: bytes, namespace: dict[str, Any]) -> dict[str, Any]:
    """A whole program between stdin and stdout. Raises SystemExit as such a program does."""
    try:
        exec(compile(code, "main.py", "exec", dont_inherit=True), namespace)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it raises is reported
        return raised(error)
    return {}


def examine(code: bytes, namespace: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Run the tests, which stand on stdin, behind the code and in its namespace. The plan names lists of the report."""
    run = json.load(sys.stdin)
    os.truncate(f"{STREAMS}/stdin", 0)
    os.dup2(2, 1)  # what functions print is nobody's
    helpers: dict[str, Any] = {}
    report: dict[str, Any] = {}
    try:
        tests = [compile(test, f"test {n}", "exec", dont_inherit=True) for n, test in enumerate(run["tests"], 1)]
    except SyntaxError as error:
        return {"unclear": f"the jail's Python cannot read the tests: {error}"}
    try:
        exec(run["helpers"], helpers)
        exec(compile(code, "main.py", "exec", dont_inherit=True), namespace)
        namespace.update({name: each for name, each in helpers.items() if not name.startswith("__")})
        for test in tests:
            allow(plan["seconds"])
            exec(test, namespace)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is reported
        report = raised(error)
    return {**report, **{name: helpers.get(key, []) for name, key in plan["counts"].items()}}


def raised(error: BaseException) -> dict[str, Any]:
    """The report of an error. missing: the file or module that is not there, or "?" for what the system refused."""
    missing = getattr(error, "filename", None) or (error.name if isinstance(error, ModuleNotFoundError) else None)
    missing = missing or ("?" if getattr(error, "errno", None) else None)
    try:
        message = str(error)[:MAX_MESSAGE].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - the program's own __str__ may do anything
        message = ""
    missing = missing[:MAX_MESSAGE] if isinstance(missing, str) else None
    return {"raised": [type(error).__name__[:MAX_MESSAGE], message], "missing": missing}


def send(channel: int, report: dict[str, Any]) -> None:
    """Write the report and end, whatever threads or handlers the program leaves behind."""
    text = json.dumps(report).encode()
    while text:
        text = text[os.write(channel, text) :]
    os._exit(0)


def serve(plan: dict[str, Any]) -> int:
    """Answer each text on stdin with what a new process makes of it. Return there, with a descriptor for its report.
    Its stdin is a file and its stdout a pipe, which /dev/stdin and /dev/stdout name."""
    channel = os.dup(0)
    source, answers = os.fdopen(channel, "rb"), os.fdopen(channel, "wb", closefd=False)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    answers.write(STARTED)
    answers.flush()
    while size := source.read(4):
        with open(f"{STREAMS}/stdin", "wb") as file:
            file.write(source.read(int.from_bytes(size, "little")))
        os.mkfifo(f"{STREAMS}/stdout")
        printed, report = os.open(f"{STREAMS}/stdout", os.O_RDWR | os.O_NONBLOCK), os.memfd_create("report")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        left = plan["total"] - used.ru_utime - used.ru_stime
        signal.signal(signal.SIGCHLD, _wakes)
        signal.set_wakeup_fd(wake)
        child = os.fork()
        if child == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            streams = {"stdin": os.O_RDONLY, "stdout": os.O_WRONLY}
            opened = [os.open(f"{STREAMS}/{name}", flags) for name, flags in streams.items()]
            for number, stream in enumerate((*opened, os.open(os.devnull, os.O_WRONLY))):
                os.dup2(stream, number)
                os.close(stream)
            for descriptor in (printed, woken, wake):
                os.close(descriptor)
            source.close()
            sys.stdout = os.fdopen(1, "w", closefd=False)  # one that knows that it is a pipe
            if left <= 0:
                os._exit(128 + signal.SIGXCPU)
            limit({**plan["limits"], "RLIMIT_CPU": math.ceil(left)})
            allow(plan["seconds"])
            return report
        status, text = attend(child, printed, woken, plan["output"])
        status = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        written = os.pread(report, MAX_REPORT_BYTES, 0)
        sweep()
        answers.write(ANSWER.pack(status, len(written), len(text)) + written + text)
        answers.flush()
        for descriptor in (printed, report):
            os.close(descriptor)
    os._exit(0)


def _wakes(*_: object) -> None:
    """Nothing: a signal with a handler is told to the wake-up descriptor."""


def attend(child: int, pipe: int, woken: int, most: int) -> tuple[int, bytes]:
    """The child's wait status, and what it prints until it ends, or until that is too much, which ends it."""
    text, status = bytearray(), None
    while status is None:
        ready = select.select([pipe, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 64)
            ended, waited = os.waitpid(child, os.WNOHANG)
            status = waited if ended else None
        while len(text) < most:
            try:
                text += os.read(pipe, most - len(text))
            except BlockingIOError:
                break
        if len(text) >= most and status is None:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
    return status, bytes(text)


def sweep() -> None:
    """End all processes that a program left, and remove its files; an error ends the jail."""
    try:
        while True:
            os.kill(-1, signal.SIGKILL)  # all but this one and the jail's first, which reaps them
            time.sleep(0.001)
    except ProcessLookupError:
        for folder in ("/tmp", "/dev/shm", STREAMS):
            clear(folder)


def clear(folder: str) -> None:
    """Remove what is in it. Raises OSError and RecursionError."""
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                clear(entry.path)
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)


def prepare() -> tuple[dict[str, Any], bytes]:
    """The plan and the code, out of the working directory; and a process like one that runs nothing but the code."""
    with open("plan.json", "rb") as file:
        plan = json.load(file)
    with open("main.py", "rb") as file:
        code = file.read()
    builtins.exit = builtins.quit = sys.exit  # pyright: ignore[reportAttributeAccessIssue] - `site` is not loaded
    sys.path[:] = [*filter(None, sys.path), *([PACKAGES] if os.path.isdir(PACKAGES) else [])]
    sys.argv[:] = ["main.py"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "codezero"]:
        del sys.modules[name]
    os.chdir("/tmp")
    return plan, code


def main() -> None:
    """Run a program, or the tests of a function, once for each text that comes on the channel."""
    plan, code = prepare()
    channel = serve(plan)
    with open("main.py", "wb") as file:
        file.write(code)  # a program may read itself
    sys.setrecursionlimit(sys.getrecursionlimit() + FRAMES)
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.modules[plan["name"]] = module = types.ModuleType(plan["name"])
    module.__file__ = "main.py"
    report = examine(code, module.__dict__, plan) if plan["counts"] else run(code, module.__dict__)
    if report:
        send(channel, report)
