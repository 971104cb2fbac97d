"""The page server: all routes behind one guard, served on loopback, and in a container where its port is published."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import AsyncGenerator

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from codezero.login.access import ACCESS, CALLERS, LOGIN, PORT, Access, Routes, add_routes
from codezero.login.bodies import MAX_BODY
from codezero.login.guard import add_headers, guard
from codezero.login.listen import LOOPBACK, open_sockets
from codezero.login.login import Login
from codezero.login.pages import page_routes
from codezero.login.published import Entry
from codezero.login.routes import login_routes
from codezero.login.signing import signing_routes

logger = logging.getLogger("codezero.login")

faults = logging.getLogger("codezero.login.http")
faults.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Faults of our own; what strangers send that is not HTTP must not fill the log."""


def build_app(login: Login, *others: Routes) -> web.Application:
    """The login's routes, then `others`, then the page's files."""
    app = web.Application(middlewares=[guard], client_max_size=MAX_BODY)
    app[LOGIN], app[ACCESS] = login, {}
    app.on_response_prepare.append(add_headers)
    add_routes(app, {Access.OPEN: login_routes(login), Access.BEARER: signing_routes()})
    for routes in others:
        add_routes(app, routes)
    add_routes(app, {Access.OPEN: page_routes()})
    return app


@contextlib.asynccontextmanager
async def serving(app: web.Application, port: int, entry: Entry | None = None) -> AsyncGenerator[int]:
    """While this lasts, `app` is served, at `entry` too; the port, another one only for 0. Raises LoginError."""
    sockets = open_sockets(port, entry.address if entry else "")
    if entry is not None:
        app[CALLERS] = frozenset({*LOOPBACK, entry.gateway})
    app[PORT] = sockets[0].getsockname()[1]
    runner = web.AppRunner(
        app, access_log=None, logger=faults, auto_decompress=False, handle_signals=False, shutdown_timeout=1.0
    )
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
    """Until SIGINT or SIGTERM. Raises LoginError when the port cannot be had."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with serving(app, port, entry) as bound:
        logger.info("the page is served at http://localhost:%d", bound)
        await ended.wait()
