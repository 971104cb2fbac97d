"""What runs inside the jail, where nothing can be trusted: it executes a program and reports what came of it.

codezero itself takes constants from here and calls nothing: a bare Python 3.8 or newer runs this file in the jail. The
program shares this process and can forge any report. That is harmless: the arguments of calls come in here, never what
they should return, so a forged answer has to be right to count.
"""

from __future__ import annotations

import builtins
import json
import os
import resource
import sys
import types
from collections.abc import Callable
from typing import Any

STARTED = b"started\n"
"""First on the report: from here on, what goes wrong is the program's doing."""
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


def error_of(error: BaseException) -> list[str]:
    """[name of the type, message], cut."""
    try:
        message = str(error)[:MAX_MESSAGE].encode("utf-8", "replace").decode()
    except BaseException:  # noqa: BLE001 - the program's own __str__ may do anything
        message = ""
    return [type(error).__name__[:MAX_MESSAGE], message]


def run(code: bytes, steps: list[dict[str, Any]] | None, namespace: dict[str, Any]) -> dict[str, Any]:
    """The code, then in order what each step says: set-up lines to execute, calls to evaluate.

    steps: None for a whole program between stdin and stdout. Raises SystemExit as such a program does.
    """
    values: list[Any] = []
    try:
        exec(compile(code, "main.py", "exec"), namespace)
        if steps is None:
            sys.stdout.flush()
        for step in steps or ():
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
    channel, nowhere = os.dup(2), os.open("/dev/null", os.O_WRONLY)
    os.dup2(nowhere, 2)
    if steps is not None:
        os.dup2(nowhere, 1)
    limit(plan["limits"])
    os.write(channel, STARTED)
    report = run(code, steps, program.__dict__)
    if steps is not None or "raised" in report:
        send(channel, report)


if __name__ == "__main__":
    main()
