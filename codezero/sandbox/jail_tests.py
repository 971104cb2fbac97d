"""What runs in the two jails of a function: its tests in one, what they ask of the answer in the other.

The tests run as CPython runs them, with mirrors where they name what the answer defines (`jail_link.py`). The answer's
jail never gets what should come of a call, so an answer that seizes its process still has to be right.
"""

from __future__ import annotations

import builtins
import os
import socket
import sys
from typing import Any

from codezero.sandbox.jail_link import TESTS, Link, LinkEnded, Undecided
from codezero.sandbox.jail_main import SOLUTION, allow, namespace_of, prepare, raised, send, serve

FRAMES = 5
"""Of this process below the answer's; they are not the answer's depth."""


class Names(dict[str, Any]):
    """Globals of the tests. A name that they do not bind is the answer's; of builtins, those among `claimed`."""

    def __init__(self, link: Link, claimed: list[str]) -> None:
        super().__init__(__name__=TESTS, __builtins__=builtins)
        self._link, self._claimed = link, claimed

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) and name not in self._claimed:
            raise KeyError(name)
        return self._link.ask("name", name)


def examine(link: Link, tests: list[str], claimed: list[str]) -> dict[str, Any]:
    """What comes of the tests: failed, the number of the one that does not hold; raised, [type, message] of an error
    and whether it is the answer's; unclear, why they cannot be decided; ended, the answer's process is gone."""
    number = 0
    try:
        link.ask("load")
        names = Names(link, claimed)
        for number, test in enumerate(tests, 1):
            exec(compile(test, f"test {number}", "exec", dont_inherit=True), names)
    except LinkEnded:
        return {"ended": True}
    except Undecided:
        pass
    except AssertionError as error:
        if error is not link.foreign and not link.unclear:
            return {"failed": number}
        return {"unclear": link.unclear} if link.unclear else raised(error, foreign=True)
    except BaseException as error:  # noqa: BLE001 - whatever it raises is reported
        if not link.unclear:
            return raised(error, foreign=error is link.foreign or isinstance(error, NameError))
    return {"unclear": link.unclear} if link.unclear else {"ended": True} if link.ended else {}


def answer(link: Link, code: bytes, seconds: float) -> None:
    """Do what the tests ask, each in `seconds`, until they end."""
    namespace = namespace_of(SOLUTION)

    def load() -> None:
        exec(compile(code, "main.py", "exec", dont_inherit=True), namespace)

    def name(asked: str) -> Any:
        if asked not in namespace:
            raise NameError(f"name {asked!r} is not defined")
        return namespace[asked]

    link.operations.update(load=load, name=name)
    sys.setrecursionlimit(sys.getrecursionlimit() + FRAMES)
    try:
        while True:
            message = link.receive()
            allow(seconds)
            link.serve(message)
    except (LinkEnded, Undecided):
        return


def main() -> None:
    """Be the side of the link that the plan names: the tests, which are reported on, or the answer, which is not."""
    plan, code = prepare()
    end = socket.socket(fileno=plan["link"])
    channel = serve(plan, plan["link"])
    os.dup2(2, 1)  # what functions print is nobody's
    if "tests" in plan:
        send(channel, examine(Link(end, wary=True), plan["tests"], plan["claimed"]))
    answer(Link(end, wary=False), code, plan["seconds"])
    os._exit(0)  # whatever threads the answer leaves behind
