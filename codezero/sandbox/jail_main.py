"""What runs inside the jail, where nothing can be trusted: it executes a program and reports what came of it.

codezero itself takes constants from here and calls nothing: a bare Python 3.8 or newer runs this file in the jail. For
each text that comes in on the channel a fresh process runs the program with that text as its stdin; what it leaves
running or in /tmp is gone before the next text is asked for. The program shares that process and can forge any report.
That is harmless: what goes in comes in here, never what should come of it, so a forged answer has to be right to count.
"""

from __future__ import annotations

import builtins
import json
import math
import os
import resource
import signal
import struct
import sys
import time
import types
from collections.abc import Callable
from typing import Any

STARTED = b"started\n"
"""First on the channel: from here on, what goes wrong is the program's doing."""
ANSWER = struct.Struct("<III")
"""Before each answer: exit status, or 128 + n after signal n; bytes of the report and of stdout, which follow."""
MAX_REPORT_BYTES = 1024 * 1024
MAX_VALUES = 100_000
MAX_DEPTH = 60
MAX_MESSAGE = 200

_KINDS: tuple[Any, ...] = (int, str, float, list, tuple, dict, set, frozenset, bytes, complex, range)
_SPELLED: dict[str, Callable[[Any], list[str]]] = {
    "int": lambda value: [hex(value)],
    "float": lambda value: [value.hex()],
    "complex": lambda value: [value.real.hex(), value.imag.hex()],
    "bytes": lambda value: [value.hex()],
    "range": lambda value: [hex(part) for part in (value.start, value.stop, value.step)],
}


class NotPlain(Exception):
    """A value that is no plain data; the message says what it is."""


def encode(value: Any, budget: list[int] | None = None, depth: int = 0) -> Any:
    """`value` as JSON-ready data. Subclasses that keep the equality of a plain type count as that type.

    None, bools and strings stand for themselves; the rest are `[kind, ...]`: int and float in hexadecimal, bytes too.
    budget: how many more values may come. Raises NotPlain.
    """
    budget = budget if budget is not None else [MAX_VALUES]
    budget[0] -= 1
    if budget[0] < 0 or depth > MAX_DEPTH:
        raise NotPlain("too large or nested too deeply")
    if value is None or value is True or value is False:
        return value
    library = sys.modules.get("collections")
    likes = [getattr(getattr(library, name, None), "__eq__", None) for name in ("Counter", "OrderedDict")]
    equal = type(value).__eq__
    fitting = (kind for kind in _KINDS if equal is kind.__eq__ or (kind is dict and equal in likes))
    kind: Any = next((kind for kind in fitting if isinstance(value, kind)), None)
    if kind is None:
        raise NotPlain(type(value).__name__[:MAX_MESSAGE])
    if kind is str:
        try:
            return value.encode().decode()
        except UnicodeEncodeError as error:
            raise NotPlain("a lone surrogate") from error
    if kind.__name__ in _SPELLED:
        return [kind.__name__, *_SPELLED[kind.__name__](value)]
    if kind.__name__ == "dict":
        return ["dict", *([encode(part, budget, depth + 1) for part in pair] for pair in kind.items(value))]
    return [kind.__name__, *(encode(part, budget, depth + 1) for part in kind.__iter__(value))]


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


def error_of(error: BaseException) -> list[str]:
    """[name of the type, message], cut."""
    try:
        message = str(error)[:MAX_MESSAGE].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - the program's own __str__ may do anything
        message = ""
    return [type(error).__name__[:MAX_MESSAGE], message]


def run(code: bytes, steps: list[dict[str, Any]] | None, namespace: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The code, then in order what each step says: set-up lines to execute, calls to evaluate.

    steps: None for a whole program between stdin and stdout. Raises SystemExit as such a program does. seconds: for
    each step.
    """
    values: list[Any] = []
    try:
        exec(compile(code, "main.py", "exec"), namespace)
        if steps is None:
            sys.stdout.flush()
        for step in steps or ():
            allow(seconds)
            exec(compile(step["setup"], "tests.py", "exec"), namespace)
            for call in step["calls"]:
                values.append(encode(eval(compile(call, "tests.py", "eval"), namespace)))
    except NotPlain as error:
        return {"values": values, "odd": str(error)}
    except BaseException as error:  # whatever it raises is reported
        if steps is None and isinstance(error, SystemExit):
            raise
        return {"values": values, "raised": error_of(error)}
    return {"values": values}


def send(channel: int, report: dict[str, Any]) -> None:
    """Write the report and end, whatever threads or handlers the program leaves behind."""
    text = json.dumps(report, ensure_ascii=False).encode("utf-8", "replace")
    if len(text) > MAX_REPORT_BYTES:
        text = json.dumps({"values": [], "odd": "too large"}).encode()
    while text:
        text = text[os.write(channel, text) :]
    os._exit(0)


def serve(plan: dict[str, Any]) -> int:
    """Answer each text on stdin with what a new process makes of it. Return there, with a descriptor for its report."""
    channel = os.dup(0)
    source, answers = os.fdopen(channel, "rb"), os.fdopen(channel, "wb", closefd=False)
    answers.write(STARTED)
    answers.flush()
    while size := source.read(4):
        given, printed, report = (os.memfd_create(name) for name in ("stdin", "stdout", "report"))
        with open(given, "wb", closefd=False) as file:
            file.write(source.read(int.from_bytes(size, "little")))
            file.seek(0)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        left = plan["total"] - used.ru_utime - used.ru_stime
        child = os.fork()
        if child == 0:
            for held, number in ((given, 0), (printed, 1), (os.open(os.devnull, os.O_WRONLY), 2)):
                os.dup2(held, number)
                os.close(held)
            source.close()
            if left <= 0:
                os._exit(128 + signal.SIGXCPU)
            limit({**plan["limits"], "RLIMIT_CPU": math.ceil(left)})
            allow(plan["seconds"])
            return report
        status = os.waitpid(child, 0)[1]
        sweep()
        status = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        answer = os.pread(report, MAX_REPORT_BYTES, 0), os.pread(printed, plan["output"], 0)
        answers.write(ANSWER.pack(status, *map(len, answer)) + b"".join(answer))
        answers.flush()
        for held in (given, printed, report):
            os.close(held)
    os._exit(0)


def sweep() -> None:
    """End all processes that a program left, and remove its files; an error ends the jail."""
    try:
        while True:
            os.kill(-1, signal.SIGKILL)  # all but this one and the jail's first, which reaps them
            time.sleep(0.001)
    except ProcessLookupError:
        clear("/tmp")


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


def main() -> None:
    """Read plan and program from the working directory, and run the one as the other says."""
    with open("plan.json", "rb") as file:
        plan = json.load(file)
    with open("main.py", "rb") as file:
        code = file.read()
    steps = plan["steps"]
    builtins.exit = builtins.quit = sys.exit  # pyright: ignore[reportAttributeAccessIssue] - `site` is not loaded
    del sys.path[0]
    sys.argv[:] = ["main.py"]
    sys.modules["__main__"] = program = types.ModuleType("__main__")
    os.chdir("/tmp")
    channel = serve(plan)
    if steps is not None:
        os.dup2(2, 1)
    report = run(code, steps, program.__dict__, plan["seconds"])
    if steps is not None or "raised" in report:
        send(channel, report)


if __name__ == "__main__":
    main()
