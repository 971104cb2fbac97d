"""Config -> the page on localhost: the login, and what the runs' files say, behind one server.

Runs in a process of its own. It reads what nodes write and signs what they ask for."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.chain.build import is_ephemeral, open_wallet, usual_recursion_limit
from codezero.chain.devchain_process import ChainEndpoint
from codezero.chain.wallet import ephemeral_key, forget_ephemeral
from codezero.config import NodeConfig
from codezero.inspection.leaderboard import board_page, read_board
from codezero.inspection.status import RunFiles, parts
from codezero.login.guard import Access
from codezero.login.login import Login
from codezero.login.page_process import PageReady
from codezero.login.server import build_app, find_entry, harden, serve
from codezero.login.vault import Folder
from codezero.monitor.api import DataApi
from codezero.monitor.reader import RunReader
from codezero.system.files import Lock
from codezero.system.signals import Stop, end_with_parent

if TYPE_CHECKING:
    from aiohttp import web


def serve_page(config: NodeConfig, run: Path | None, report: Callable[[PageReady], None]) -> None:
    """Until a signal. `run`: show this folder alone. report: is given what came of it, and each new claim code. Another
    process that serves this folder's page already is waited for. Raises LoginError."""
    end_with_parent()
    harden()
    usual_recursion_limit()
    url, directory, stop = f"http://localhost:{config.login.port}", Path(config.login.directory), Stop()
    Folder(directory)
    with contextlib.closing(Lock(directory / "page.lock")) as lock:
        if not lock.take():
            report(PageReady(url=url, standby=True))
            with stop.on_signals():
                while not stop.wait(1.0) and not lock.take():
                    pass
        if not stop:
            asyncio.run(_serve(config, run, lambda code: report(PageReady(url=url, code=code))))


async def _serve(config: NodeConfig, run: Path | None, announce: Callable[[str], None]) -> None:
    """announce: takes each new claim code, or an empty one once a page with an owner is served."""

    def chain_id() -> int | None:
        endpoint = ChainEndpoint.of(Path(config.chain.directory)) if config.chain.kind == "embedded" else None
        return config.chain.chain_id or (endpoint.chain_id if endpoint else None)

    wallet = Path(config.chain.wallet)
    login = Login(
        Path(config.login.directory),
        announce=announce,
        adopt=partial(ephemeral_key, wallet),
        adopted=partial(forget_ephemeral, wallet),
        chain_id=chain_id,
        days=config.login.days,
    )
    if config.chain.kind == "embedded" and login.vault.owner() is None and is_ephemeral(config.chain):
        open_wallet(config.chain)  # a node trains before it needs an account; whoever claims it is to take one over
    app = build_page(config, run, login)
    await serve(app, config.login.port, find_entry() if config.login.publish else None)


def build_page(config: NodeConfig, run: Path | None, login: Login) -> "web.Application":
    base = Path(config.run.directory)
    data = DataApi(
        RunReader(
            run or base,
            lambda folder: RunFiles(folder).view,
            lambda: board_page(read_board(config.chain, base, lambda _: None)),
            parts(Path(config.run.logs)),
        )
    )
    routes = {Access.READABLE: data.data, Access.PROBE: data.probes}
    app = build_app(login, routes, origins=config.login.origins)
    app.on_shutdown.append(data.streams.close)
    return app
