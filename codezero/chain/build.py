"""Config -> the chain's part of a node: who keeps the round, and where points go. Nothing waits long for a chain."""

import logging
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from codezero.chain import rounds
from codezero.chain.base import Coordinator, Outbox
from codezero.chain.errors import ContractError, ForeignOwnerError, WrongChainError
from codezero.config import MEMBERS, REGISTRY, ChainConfig, NodeConfig
from codezero.errors import ChainError, ConfigError, WalletError
from codezero.system.files import Lock

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator
    from codezero.chain.provider import Ask, ChainClient
    from codezero.chain.wallet import Wallet

logger = logging.getLogger(__name__)

FILLING_SECONDS = 5.0  # between two looks at an account that could not be looked at at the start
Visit = Callable[[ExitStack], "Ask"]  # starts a way to ask nodes of the swarm, which the stack ends
Serve = Callable[[Callable[[bytes], bytes]], None]  # has newcomers' requests answered by a function


class ChainParts(NamedTuple):
    """The chain's parts of the round loop."""

    coordinator: Coordinator
    outbox: Outbox


def usual_recursion_limit() -> None:
    """Take back the 100,000 that eth-account's py_ecc sets: JSON nested by a stranger would overflow the stack."""
    sys.setrecursionlimit(1_000)  # Python's default


def start_chain(
    config: NodeConfig, peer: str, folder: Path, stack: ExitStack, visit: Visit, serve: Serve | None = None
) -> Callable[[], ChainParts]:
    """`build_chain` in a thread, while problems are read; the call of what is returned waits for it."""
    parts = stack.enter_context(ExitStack())
    pool = ThreadPoolExecutor(1, thread_name_prefix="chain-start")
    started = pool.submit(build_chain, config, peer, folder, parts, visit, serve)
    stack.callback(wait, [started])
    pool.shutdown(wait=False)
    return started.result


def build_chain(
    config: NodeConfig, peer: str, folder: Path, stack: ExitStack, visit: Visit, serve: Serve | None = None
) -> ChainParts:
    """The chain that the config names, closed by `stack`.

    visit: the way to a chain that another node keeps. serve: answers newcomers with the invitation that this node has,
    and with the chain of this machine. Coins for the account, and with the embedded chain its contract, are got when
    they are missing.

    Raises ConfigError, WalletError, ForeignOwnerError, and ChainError when the embedded chain does not start."""
    settings, invitation = config.chain, config.swarm.invitation
    if settings.kind == "clock":
        return ChainParts(rounds.ClockCoordinator(settings.round_seconds), Outbox())
    from codezero.chain.contract import ContractCoordinator, Registry, Sender, StageManager, own_contracts
    from codezero.chain.gateway import ChainGateway
    from codezero.chain.outbox import ChainOutbox

    usual_recursion_limit()  # problems of files are being read meanwhile
    wallet = open_wallet(settings)
    client = chain_access(settings, wallet, stack, visit)
    sender, contract = Sender(client, wallet), settings.contract
    if settings.kind == "embedded" and not contract:
        contract = own_contracts(Path(settings.directory), client, sender).contract
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
    # one for each contract, so that a chain that begins anew takes no points of the old one
    path = folder / f"outbox-{client.chain_id}-{coordinator.contract[2:10].lower()}.db"
    submit_after, round_seconds = settings.submit_after or math.inf, settings.round_seconds
    outbox = ChainOutbox(path, coordinator, peer, submit_after=submit_after, round_seconds=round_seconds)
    stack.callback(outbox.close)
    # of several nodes with one account on this machine, one opens the rounds; when it ends, another does
    turn = Lock(Path(settings.wallet).resolve().with_name(f"{Path(settings.wallet).name}.rounds.lock"))
    stack.callback(turn.close)
    manager = StageManager(coordinator, round_seconds, turn=turn.take)
    _repeat("opening rounds", manager.tick, min(rounds.ROUND_SECONDS, round_seconds / 4), stack)
    if config.swarm.members == REGISTRY:
        registry = Registry(coordinator, folder / MEMBERS, peer)
        _repeat("reading who is registered", registry.tick, registry.SECONDS, stack)
    if serve is not None and invitation:
        serve(ChainGateway(client.urls, [contract], Path(invitation)).answer)
    return ChainParts(coordinator, outbox)


def chain_access(config: ChainConfig, wallet: "Wallet", stack: ExitStack, visit: Visit) -> "ChainClient":
    """The chain's endpoints; a poor account is filled where there is a faucet. Raises ConfigError and ChainError."""
    from codezero.chain.contract import fund

    client = open_client(config, stack, visit)
    try:
        fund(client, wallet.address)
    except ChainError as error:
        if config.kind == "embedded":
            raise
        logger.warning("the account %s could not be looked at: %s", wallet.address, error)
        _repeat("looking at the account", partial(fund, client, wallet.address), FILLING_SECONDS, stack, once=True)
    return client


def read_only(config: ChainConfig, stack: ExitStack, visit: Visit) -> "ContractCoordinator":
    """The contract, for who only reads. Raises ConfigError and ChainError."""
    from codezero.chain.contract import ContractCoordinator, founded

    if config.kind == "clock":
        raise ConfigError("chain.kind=clock counts no points; there is nothing to read")
    directory = Path(config.directory)
    if config.kind == "embedded" and not directory.is_dir():
        raise ConfigError(f"{directory} holds no chain yet; run a node first, or set chain.directory")
    contract = founded(directory).contract if config.kind == "embedded" and not config.contract else config.contract
    return ContractCoordinator(open_client(config, stack, visit), contract)


def open_client(config: ChainConfig, stack: ExitStack, visit: Visit, seconds: float | None = None) -> "ChainClient":
    """visit: called where an endpoint is a node of the swarm; it may raise SwarmError. seconds: of a call, if not the
    usual ones. The embedded chain stays while any node of this machine uses it, and is started anew when it dies."""
    from codezero.chain.devchain_process import DevChainHandle
    from codezero.chain.provider import SECONDS, ChainClient, is_node

    urls, chain_id = list(config.rpc_urls), config.chain_id
    if config.kind == "embedded":
        chain = DevChainHandle(Path(config.directory), port=config.port, chain_id=config.chain_id or None)
        stack.enter_context(chain)
        _repeat("keeping the embedded chain alive", chain.revive, 5.0, stack)
        urls, chain_id = [chain.url], chain.chain_id
    ask = visit(stack) if any(map(is_node, urls)) else None
    http, since = config.plain_http, config.contract_block
    return ChainClient(urls, chain_id, seconds=seconds or SECONDS, plain_http=http, ask=ask, since=since)


def _repeat(name: str, job: Callable[[], object], seconds: float, stack: ExitStack, *, once: bool = False) -> None:
    stack.callback(rounds.Repeating(name, job, seconds, once=once).close)


@dataclass(kw_only=True)
class LoginChain(ChainConfig):
    """The chain's settings of a node that its owner has logged in to: the page's process signs for the account."""

    signer: str  # address of the page
    token: Path  # file with what it wants to see
    account: str


def open_wallet(config: ChainConfig) -> "Wallet":
    """The account that the config names; an ephemeral one where there is none yet. Raises WalletError, ConfigError."""
    from codezero.chain.wallet import KeystoreWallet, RemoteWallet

    if isinstance(config, LoginChain):
        return RemoteWallet(config.signer, config.token, config.account)
    path = Path(config.wallet)
    return KeystoreWallet.ephemeral(path) if is_ephemeral(config) else KeystoreWallet.open(path, passphrase_of(config))


def is_ephemeral(config: ChainConfig) -> bool:
    """Is the account one that the node makes and opens by itself?"""
    path = Path(config.wallet)
    beside = path.with_name(f"{path.name}.passphrase")
    return not isinstance(config, LoginChain) and (not path.exists() or beside.exists())


def passphrase_of(config: ChainConfig, *, new: bool = False) -> str:
    """From a file, an environment variable or a prompt, which asks twice for a `new` one. Raises WalletError."""
    from codezero.chain.wallet import read_passphrase

    file = Path(config.passphrase_file) if config.passphrase_file else None
    return read_passphrase(file, config.passphrase_variable, f"passphrase of {config.wallet}: ", confirm=new)
