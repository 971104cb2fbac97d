"""The page on localhost as a node sees it: a process of its own that ends with the node, and that nothing waits for.

One process serves the page of a folder of runs; those of other nodes stand by and take over when it ends."""

import contextlib
import errno
import logging
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.config import NodeConfig
from codezero.errors import LoginError
from codezero.system.child import Child, python
from codezero.system.files import set_aside

logger = logging.getLogger(__name__)

LOG = "login.log"


class PageReady(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the process: that it serves, stands by, or cannot serve; and again when there is another code."""

    url: Annotated[str, Meta(max_length=200)]
    # what the first claim of the node needs; empty: the node has an owner, or another process knows it
    code: Annotated[str, Meta(max_length=20)] = ""
    standby: bool = False  # another process serves the page now
    problem: Annotated[str, Meta(max_length=1000)] = ""  # why nothing is served; empty: it is


def invitation(ready: PageReady) -> str:
    return f"watch it at {ready.url}" + (f" · to own this node there, type the code {ready.code}" if ready.code else "")


def announce(page: "PageProcess | None") -> None:
    """Tell a person where the page is, and what its owner needs there; a warning when it is not served."""
    if page is None:
        return
    ready = page.ready()
    if ready.problem:
        logger.warning("there is no page: %s", ready.problem)
    else:
        print(f"codezero: {invitation(ready)}", flush=True)


def wanted(config: NodeConfig) -> bool:
    return config.login.page == "on" or (config.login.page == "auto" and config.monitor.view != "off")


def start_page(config: NodeConfig, overrides: Sequence[str], stack: contextlib.ExitStack) -> "PageProcess | None":
    return stack.enter_context(PageProcess(config, overrides)) if wanted(config) else None


class PageProcess(contextlib.AbstractContextManager["PageProcess"]):
    """Starts at once; `ready` says later what came of it. Leaving the context ends the process."""

    def __init__(self, config: NodeConfig, overrides: Sequence[str]) -> None:
        """`overrides` are what `config` was composed of: what they take from the environment shows in no argv."""
        self._log = Path(config.run.logs) / LOG
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with set_aside(self._log).open("ab") as log:
            command = python("-m", "codezero", "dashboard", "--json", *overrides)
            self._process = Child(command, stdout=subprocess.PIPE, stderr=log)
        self._newest = b""
        self._answered = threading.Event()
        self._reader = threading.Thread(target=self._read, name="page-ready", daemon=True)
        self._reader.start()

    def __exit__(self, *_: object) -> None:
        self._process.close(5.0)
        self._reader.join()

    def ready(self, seconds: float = 20.0) -> PageReady:
        """The process's newest line; a problem when there is none by then, or it cannot be read."""
        self._answered.wait(seconds)
        try:
            return msgspec.json.decode(self._newest, type=PageReady)
        except msgspec.DecodeError:
            return PageReady(url="", problem=f"the page does not start; see {self._log}")

    def _read(self) -> None:
        """The first line is for `ready`; of later ones a new code is shown, and never logged."""
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            while line := stream.readline(4096):
                self._newest = line
                with contextlib.suppress(msgspec.DecodeError):
                    if self._answered.is_set() and (ready := msgspec.json.decode(line, type=PageReady)).code:
                        print(f"codezero: {invitation(ready)}", flush=True)
                self._answered.set()
        self._answered.set()


LOOPBACK = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)  # an address that is not here: nobody else can hold it either


def open_sockets(port: int, also: str = "") -> list[socket.socket]:
    """Bound, one for each address; port 0 takes a free one. also: another IPv4 address of this machine, empty for none.
    Raises LoginError that names the address in the way."""
    with contextlib.ExitStack() as stack:
        bound: list[socket.socket] = []
        for host, family in [*LOOPBACK.items(), *([(also, socket.AF_INET)] if also else [])]:
            try:
                listener = socket.create_server((host, bound[0].getsockname()[1] if bound else port), family=family)
            except OSError as error:
                if error.errno not in ABSENT:
                    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                    taken = f"{shown} is taken by another process; end it, or set login.port to another number"
                    wrong = f"{shown} cannot be listened at: {error.strerror}; set login.port to another number"
                    raise LoginError(taken if error.errno == errno.EADDRINUSE else wrong) from error
                logger.info("this machine has no address %s; the page is served at the other one", host)
            else:
                bound.append(stack.enter_context(listener))
        if not bound:
            raise LoginError("this machine has neither 127.0.0.1 nor ::1; the page cannot be served")
        stack.pop_all()
        return bound
