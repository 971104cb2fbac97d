"""The page server: all routes behind one guard, served on loopback, and in a container where its port is published.

The process that handles the key hides its memory from processes of the same user. It needs the port on both loopback
addresses: a browser uses ::1 or 127.0.0.1 as it likes, and whoever held the other one could ask for our passkey as the
same site. An engine passes a container's published port to the container's own address, where it comes from the
gateway, which is the host; so the page listens there too and answers the gateway alone."""

import asyncio
import contextlib
import ctypes
import logging
import re
import resource
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from codezero.errors import LoginError
from codezero.login.guard import CALLERS, LOGIN, PORT, Access, Routes, guarded_app
from codezero.login.login import Login
from codezero.login.page_process import LOOPBACK, open_sockets
from codezero.login.routes import login_routes
from codezero.system.signals import asking
from codezero.system.web import HEAD_SECONDS

logger = logging.getLogger("codezero.login")


def harden() -> None:
    """No core dumps; on Linux, no ptrace and no /proc/PID/environ or mem either. Not against root."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(4, 0, 0, 0, 0) != 0:  # PR_SET_DUMPABLE
        logger.warning("this process could not be hidden from others of this user")


STATIC = Path(__file__).with_name("static")
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml",
         ".txt": "text/plain"}  # fmt: skip
HASHED = re.compile(r"assets/.+-[A-Za-z0-9_-]{8}\.[a-z0-9]+")  # such a file never changes: its name would
MISSING = "The page is not built yet: run scripts/build_page.sh in the project's folder, then load this page again.\n"


def page_routes(folder: Path = STATIC) -> list[web.RouteDef]:
    """Everything outside /api/ that no other route answers; to be added last."""

    async def page(request: web.Request) -> web.Response:
        """One of the files that lie in the folder now, by its name there: no name leads elsewhere."""
        files = {str(file.relative_to(folder)): file for file in folder.rglob("[!.]*.*") if file.suffix in KINDS}
        name = request.match_info["path"] or "index.html"
        file = files.get(name)
        if file is not None and file.is_file() and not file.is_symlink():
            kind, body = KINDS[file.suffix], file.read_bytes()
            headers = {"Cache-Control": "public, max-age=31536000, immutable"} if HASHED.fullmatch(name) else {}
            return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)
        if name == "index.html":
            return web.Response(status=503, text=MISSING)
        raise web.HTTPNotFound

    return [web.get("/{path:(?!api/).*}", page)]


MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))  # one of them is in every container of Docker or Podman
ROUTES = Path("/proc/net/route")
INTERFACES = Path("/sys/class/net")


class Entry(NamedTuple):
    """Where the published port arrives: IPv4 of this container, and of the host in the container's network."""

    address: str
    gateway: str


def default_route(routes: str) -> tuple[str, str] | None:
    """Interface and gateway of the first way to everywhere, in the form of /proc/net/route: addresses in hexadecimal,
    in the machine's byte order. None: there is none."""
    for line in routes.splitlines()[1:]:
        interface, destination, gateway, flags, _, _, _, mask, *_ = line.split()
        if int(destination, 16) == int(mask, 16) == 0 and int(flags, 16) & 3 == 3:  # RTF_UP and RTF_GATEWAY
            return interface, socket.inet_ntoa(struct.pack("=I", int(gateway, 16)))
    return None


def find_entry() -> Entry:
    """Raises LoginError where no port is published like that.

    An engine gives a container one end of a pair of interfaces whose other end is elsewhere. A machine's own cards are
    not that, and they are what a container with the host's network sees."""
    container = any(mark.exists() for mark in MARKS) and ROUTES.exists()
    route = default_route(ROUTES.read_text()) if container else None
    ends = {(INTERFACES / route[0] / end).read_text() for end in ("iflink", "ifindex")} if route else set[str]()
    if route is None or len(ends) < 2:
        none = "login.publish=true is for a container with a network of its own, and this is none"
        raise LoginError(f"{none}; give login.publish=false: the page is at localhost here")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect((route[1], 9))  # sends nothing; the system chooses the address it would send from
        return Entry(address=towards.getsockname()[0], gateway=route[1])


# errors of our own; what anybody sends that is not HTTP must not fill the log
faults = logging.getLogger("codezero.login.http")
faults.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))


def build_app(login: Login, *others: Routes, origins: Sequence[str] = ()) -> web.Application:
    """The login's routes, then `others`, then the page's files. origins: `login.origins`."""
    return guarded_app(login, (login_routes(login), *others, {Access.OPEN: page_routes()}), origins)


@contextlib.asynccontextmanager
async def serving(app: web.Application, port: int, entry: Entry | None = None) -> AsyncGenerator[int]:
    """While this lasts, `app` is served, at `entry` too; the port, another one only for 0. Raises LoginError."""
    sockets = open_sockets(port, entry.address if entry else "")
    if entry is not None:
        app[CALLERS] = frozenset({*LOOPBACK, entry.gateway})
    app[PORT] = sockets[0].getsockname()[1]
    runner = web.AppRunner(
        app, access_log=None, logger=faults, auto_decompress=False, handle_signals=False, shutdown_timeout=1.0,
        keepalive_timeout=HEAD_SECONDS,
    )  # fmt: skip
    try:
        await runner.setup()
        for listener in sockets:
            await web.SockSite(runner, listener).start()
        app[LOGIN].start()
        yield app[PORT]
    finally:
        await runner.cleanup()
        for listener in sockets:
            listener.close()


async def serve(app: web.Application, port: int, entry: Entry | None = None) -> None:
    """Until a signal. Raises LoginError when the port cannot be had."""
    ended = asyncio.Event()
    for number in asking():
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serving(app, port, entry) as bound:
        logger.info("the page is served at http://localhost:%d", bound)
        await ended.wait()
