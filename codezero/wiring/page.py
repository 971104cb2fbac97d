"""Config -> the page on localhost: the login, what the runs' files say, and the way to the contract behind one server.

Runs in a process of its own. It reads what nodes write and signs what they ask for.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codezero.chain.devchain_process import ChainEndpoint, Lock
from codezero.chain.errors import REGISTERED, ContractError, ForeignOwnerError
from codezero.chain.wallet import EphemeralAccount, KeystoreWallet
from codezero.config import ChainConfig, NodeConfig
from codezero.errors import HttpRefusal, WalletError
from codezero.inspection import market_view
from codezero.inspection.run_files import RunFiles
from codezero.login.guard import Access
from codezero.login.login import Login
from codezero.login.node_api import NodeApi, Transact, legacy_id
from codezero.login.page_process import PageReady
from codezero.login.server import build_app, find_entry, harden, serve
from codezero.login.store import Folder
from codezero.monitor.api import DataApi
from codezero.monitor.reader import RunReader
from codezero.system.signals import Stop, end_with_parent
from codezero.wiring.chain import connect, is_ephemeral, open_wallet, usual_recursion_limit
from codezero.wiring.leaderboard import board_page, read_board

if TYPE_CHECKING:
    from aiohttp import web

    from codezero.chain.contract import ContractCoordinator

SERVING = "page.lock"
LOOK_SECONDS = 1.0
"""Between two looks whether the process that serves the page has ended."""


def serve_page(config: NodeConfig, run: Path | None, tell: Callable[[PageReady], None]) -> None:
    """Until SIGINT or SIGTERM. `run`: show this folder alone. `tell` hears what came of it, and each new claim code.

    Another process that serves this folder's page already is waited for. Raises LoginError.
    """
    end_with_parent()
    harden()
    usual_recursion_limit()
    url, directory, stop = f"http://localhost:{config.login.port}", Path(config.login.directory), Stop()
    Folder(directory)
    with ExitStack() as stack:
        lock = Lock(directory / SERVING)
        stack.callback(lock.close)
        if not lock.take():
            tell(PageReady(url=url, standby=True))
            with stop.on_signals():
                while not stop.wait(LOOK_SECONDS) and not lock.take():
                    pass
        if not stop:
            asyncio.run(_serve(config, run, stack, lambda code: tell(PageReady(url=url, code=code))))


async def _serve(config: NodeConfig, run: Path | None, stack: ExitStack, announce: Callable[[str], None]) -> None:
    """announce: takes each new claim code, or an empty one once a page with an owner is served."""
    login = Login(
        Path(config.login.directory),
        announce=announce,
        accounts=EphemeralAccount(Path(config.chain.wallet)),
        chain_id=lambda: _chain_id(config.chain),
        days=config.login.days,
    )
    if config.chain.kind == "embedded" and login.vault.owner() is None and is_ephemeral(config.chain):
        open_wallet(config.chain)  # a node trains before it needs an account; whoever claims it is to take one over
    app = build_page(config, run, login, stack)

    async def tell_owner(_: "web.Application") -> None:
        if login.vault.owner() is not None:
            announce("")

    app.on_startup.append(tell_owner)
    await serve(app, config.login.port, find_entry() if config.login.publish else None)


def build_page(config: NodeConfig, run: Path | None, login: Login, stack: ExitStack) -> "web.Application":
    """The whole server; what holds a connection is closed by `stack`."""
    base = Path(config.run.directory)
    data = DataApi(
        RunReader(
            run or base,
            lambda folder: RunFiles(folder).view,
            lambda: board_page(read_board(config.chain, base, lambda _: None)),
            market_view,
        )
    )
    legacy = legacy_id(Folder(Path(config.login.directory))) if config.login.legacy_clients else ""
    transact = contract_calls(lambda: connect(config.chain, NodeWallet(config.chain, login), stack))
    account = EphemeralAccount(Path(config.chain.wallet))
    programs = NodeApi(transact, lambda: login.vault.signer() if login.vault.owner() else account.address, legacy)
    app = build_app(login, {Access.READABLE: data.data, Access.PROBE: data.probes}, programs.routes())
    data.end_with(app)
    return app


def contract_calls(connect: "Callable[[], ContractCoordinator]") -> Transact:
    """The contract for programs that call over HTTP, one at a time.

    Nothing is kept: a caller whose connection broke calls again, and the contract takes one reward and one vote of each
    peer for each round. connect: makes the coordinator at the first call, as a page that is only looked at needs none.
    """
    coordinator = cache(connect)

    def refuse_registered(peer: str) -> None:
        """Raises ContractError when it is this account's, ForeignOwnerError when it is another's."""
        account, owner = coordinator().account, coordinator().owners([peer])[peer]
        if owner == account:
            raise ContractError(REGISTERED)
        if owner is not None:
            raise ForeignOwnerError(peer, owner, account)

    def transact(name: str, *arguments: Any) -> str:
        if name == "registerPeer":
            refuse_registered(*arguments)
        try:
            return coordinator().send(name, *arguments)["transactionHash"].to_0x_hex()
        except ContractError as error:
            if error.name == REGISTERED:  # another process was faster
                refuse_registered(*arguments)
            raise

    return transact


class NodeWallet:
    """Signs for the account that the login keeps, or while nobody owns the node for its ephemeral one."""

    def __init__(self, chain: ChainConfig, login: Login) -> None:
        self._chain, self._vault = chain, login.vault

    @property
    def address(self) -> str:
        owner = self._vault.owner()
        return open_wallet(self._chain).address if owner is None else owner.account

    def sign_transaction(self, fields: Mapping[str, Any]) -> bytes:
        """Raises WalletError."""
        try:
            owned = self._vault.owner() is not None
            wallet = KeystoreWallet.of_key(self._vault.key()) if owned else open_wallet(self._chain)
        except HttpRefusal as refusal:
            raise WalletError(refusal.text) from refusal
        return wallet.sign_transaction(fields)


def _chain_id(chain: ChainConfig) -> int | None:
    """As far as it is known without asking."""
    endpoint = ChainEndpoint.of(Path(chain.directory)) if chain.kind == "embedded" else None
    return chain.chain_id or (endpoint.chain_id if endpoint else None)
