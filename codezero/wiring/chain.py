"""Config -> the chain's part of a node: who keeps the round, and where points go. Nothing waits long for a chain."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.chain.errors import ContractError, ForeignOwnerError, WrongChainError
from codezero.chain.rounds import ROUND_SECONDS, ClockCoordinator, Repeating
from codezero.chain.upkeep import MEMBERS_SECONDS, ChainParts, Registry, StageManager
from codezero.config import ChainConfig, NodeConfig
from codezero.errors import ChainError, ConfigError, WalletError
from codezero.system.files import Lock
from codezero.wiring.network import visitor

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator
    from codezero.chain.provider import Ask, ChainClient
    from codezero.chain.wallet import Wallet
    from codezero.swarm.hivemind_swarm import HivemindSwarm

logger = logging.getLogger(__name__)

OUTBOX = "outbox-{chain}-{contract}.db"
"""Below a run's folder: one for each contract, so that a chain that begins anew takes no points of the old one."""
SPAN = "log-span.json"
"""How many blocks an endpoint shows the events of at once, for the next start."""
KEEPING_SECONDS = 5.0
FILLING_SECONDS = 5.0
"""Between two tries to reach a chain that may have a faucet for a poor account."""


def usual_recursion_limit() -> None:
    """Take back the 100,000 that eth-account's py_ecc sets: JSON nested by a stranger would overflow the stack."""
    sys.setrecursionlimit(1_000)  # Python's default


def build_chain(
    config: ChainConfig,
    peer: str,
    folder: Path,
    stack: contextlib.ExitStack,
    members: Path | None = None,
    network: "HivemindSwarm | None" = None,
    invitation: str = "",
) -> ChainParts:
    """The chain that the config names, closed by `stack`. `members`: file to keep the registered peers in.

    network: the way to a chain that another node keeps. invitation: the file that newcomers get, and with it the way to
    the chain of this machine; empty: they are told nothing. Coins for the account, and with the embedded chain its
    contracts, are got when they are missing.

    Raises ConfigError, WalletError, ForeignOwnerError, and ChainError when the embedded chain does not start.
    """
    if config.kind == "clock":
        clock = ClockCoordinator(config.round_seconds)
        return ChainParts(clock, clock)
    from codezero.chain.contract import ContractCoordinator, own_contracts
    from codezero.chain.gateway import ChainGateway
    from codezero.chain.outbox import ChainOutbox
    from codezero.chain.provider import LogSpan
    from codezero.chain.sender import Sender

    wallet = open_wallet(config)
    client = chain_access(config, wallet, stack, network.ask if network else None)
    client.log_span = LogSpan(folder / SPAN)
    sender, contract = Sender(client, wallet), config.contract
    if config.kind == "embedded" and not contract:
        contract = own_contracts(Path(config.directory), client, sender).contract
    coordinator = ContractCoordinator(client, contract, sender)
    stack.callback(coordinator.close)
    usual_recursion_limit()
    try:
        coordinator.register(peer)
    except (ForeignOwnerError, ContractError, WalletError):  # trying again would not help
        raise
    except WrongChainError as error:
        raise ConfigError(str(error)) from error
    except ChainError as error:
        logger.warning("this node is not registered yet, and will be when the chain answers: %s", error)
    path = folder / OUTBOX.format(chain=coordinator.client.chain_id, contract=coordinator.contract[2:10].lower())
    submit_after, round_seconds = config.submit_after or None, config.round_seconds
    outbox = ChainOutbox(path, coordinator, peer, submit_after=submit_after, round_seconds=round_seconds)
    stack.callback(outbox.close)
    # of several nodes with one account on this machine, one opens the rounds; when it ends, another does
    turn = Lock(Path(config.wallet).resolve().with_name(f"{Path(config.wallet).name}.rounds.lock"))
    stack.callback(turn.close)
    manager = StageManager(coordinator, config.round_seconds, turn=turn.take)
    _repeat("opening rounds", manager.tick, min(ROUND_SECONDS, config.round_seconds / 4), stack)
    if members is not None:
        _repeat("reading who is registered", Registry(coordinator, members, peer).tick, MEMBERS_SECONDS, stack)
    if network is not None and invitation:
        network.serve(ChainGateway(client.urls, [contract], Path(invitation)).answer)
    return ChainParts(coordinator, outbox)


def chain_access(
    config: ChainConfig, wallet: "Wallet", stack: contextlib.ExitStack, ask: "Ask | None" = None
) -> "ChainClient":
    """The chain's endpoints; a poor account is filled where there is a faucet. Raises ConfigError and ChainError."""
    from codezero.chain.contract import fund

    client = open_client(config, stack, ask)
    try:
        fund(client, wallet.address)
    except ChainError as error:
        if config.kind == "embedded":
            raise
        logger.warning("the account %s could not be looked at: %s", wallet.address, error)
        _repeat("looking at the account", partial(fund, client, wallet.address), FILLING_SECONDS, stack, once=True)
    return client


def read_only(config: ChainConfig, stack: contextlib.ExitStack, ask: "Ask | None" = None) -> "ContractCoordinator":
    """The contract, for who only reads. Raises ConfigError and ChainError."""
    from codezero.chain.contract import ContractCoordinator, founded

    if config.kind == "clock":
        raise ConfigError("chain.kind=clock counts no points; there is nothing to read")
    directory = Path(config.directory)
    if config.kind == "embedded" and not directory.is_dir():
        raise ConfigError(f"{directory} holds no chain yet; run a node first, or set chain.directory")
    contract = founded(directory).contract if config.kind == "embedded" and not config.contract else config.contract
    return ContractCoordinator(open_client(config, stack, ask), contract)


def open_client(
    config: ChainConfig, stack: contextlib.ExitStack, ask: "Ask | None" = None, seconds: float | None = None
) -> "ChainClient":
    """The embedded chain stays while any node of this machine uses it, and is started anew when it dies.

    ask: by a node of the swarm; a visitor asks where there is none. seconds: of a call, if not the usual ones.
    Raises SwarmError where the visitor cannot start.
    """
    from codezero.chain.devchain_process import DevChainHandle
    from codezero.chain.provider import SECONDS, ChainClient, is_node

    urls, chain_id = list(config.rpc_urls), config.chain_id
    if config.kind == "embedded":
        chain = DevChainHandle(Path(config.directory), port=config.port, chain_id=config.chain_id or None)
        stack.enter_context(chain)
        _repeat("keeping the embedded chain alive", chain.revive, KEEPING_SECONDS, stack)
        urls, chain_id = [chain.url], chain.chain_id
    if ask is None and any(map(is_node, urls)):
        ask = visitor(stack)
    http, since = config.plain_http, config.contract_block
    return ChainClient(urls, chain_id, seconds=seconds or SECONDS, plain_http=http, ask=ask, since=since)


def _repeat(
    name: str, job: Callable[[], object], seconds: float, stack: contextlib.ExitStack, *, once: bool = False
) -> None:
    stack.callback(Repeating(name, job, seconds, once=once).close)


def with_login(config: NodeConfig) -> NodeConfig:
    """The login's account, once the node has an owner; a keystore of one's own goes first. Raises LoginError."""
    chain = config.chain
    if chain.kind == "clock" or not is_ephemeral(chain) or not Path(config.login.directory).is_dir():
        return config
    from codezero.login.login import TOKEN
    from codezero.login.store import Folder
    from codezero.login.vault import Vault

    folder = Folder(Path(config.login.directory))
    owner = Vault(folder, config.login.days, time.time).owner()
    if owner is None:
        return config
    signer = f"http://localhost:{config.login.port}"
    remote = replace(chain, signer=signer, signer_token=str(folder.path / TOKEN), account=owner.account)
    page = "on" if config.login.page == "auto" else config.login.page  # off: another process serves it
    return replace(config, chain=remote, login=replace(config.login, page=page))


def open_wallet(config: ChainConfig) -> "Wallet":
    """The account that the config names; an ephemeral one where there is none yet. Raises WalletError, ConfigError."""
    from codezero.chain.remote_signer import RemoteWallet
    from codezero.chain.wallet import KeystoreWallet

    if config.signer:
        return RemoteWallet(config.signer, Path(config.signer_token), config.account)
    path = Path(config.wallet)
    return KeystoreWallet.ephemeral(path) if is_ephemeral(config) else KeystoreWallet.open(path, passphrase_of(config))


def is_ephemeral(config: ChainConfig) -> bool:
    """Is the account one that the node makes and opens by itself?"""
    path = Path(config.wallet)
    return not config.signer and (not path.exists() or path.with_name(f"{path.name}.passphrase").exists())


def passphrase_of(config: ChainConfig, *, new: bool = False) -> str:
    """From a file, an environment variable or a prompt, which asks twice for a `new` one. Raises WalletError."""
    from codezero.chain.wallet import read_passphrase

    file = Path(config.passphrase_file) if config.passphrase_file else None
    return read_passphrase(file, config.passphrase_variable, f"passphrase of {config.wallet}: ", confirm=new)
