"""What the embedded chain needs to be a swarm's: a contract that is deployed once, and accounts that can pay."""

import fcntl
import logging
import os
from pathlib import Path
from typing import Annotated

import msgspec
from eth_utils.address import to_checksum_address
from msgspec import Meta
from web3.types import RPCEndpoint

from codezero.chain.contract import deploy
from codezero.chain.errors import RpcError
from codezero.chain.provider import ChainClient
from codezero.chain.sender import Sender
from codezero.errors import ChainError
from codezero.system.files import read_private, write_new

logger = logging.getLogger(__name__)

FILE = "contract.json"
MAX_FILE = 4096
POOR = 10**18
"""wei: an account with less asks the faucet."""
METHOD_NOT_FOUND = -32601
FUND = RPCEndpoint("codezero_fund")


class Founded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contract of this chain's own swarm."""

    chain_id: int
    contract: Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{40}$")]


def fund(client: ChainClient, address: str) -> bool:
    """Let a development chain's faucet fill a poor account. False: this chain has none. Raises ChainError."""
    balance = client.eth.get_balance(to_checksum_address(address))
    if balance >= POOR:
        return True
    try:
        client.provider.make_request(FUND, [address])
    except RpcError as error:
        if error.code == METHOD_NOT_FOUND:
            return False
        raise
    return True


def own_contract(folder: Path, client: ChainClient, sender: Sender) -> str:
    """The address of the contract of this chain, deployed now if there is none; of several callers one does it.

    Raises ChainError.
    """
    path = folder / FILE
    with (folder / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            founded = _read(path)
            if founded.chain_id == client.chain_id:
                return founded.contract
            os.replace(path, path.with_name(f"{FILE}.{founded.chain_id}"))  # of a chain that is no more
        address = deploy(sender)
        logger.info("contract %s was deployed on chain %d", address, client.chain_id)
        write_new(path, msgspec.json.encode(Founded(client.chain_id, address)))
        return address


def founded(folder: Path) -> str:
    """The address of this chain's own contract. Raises ChainError when there is none."""
    path = folder / FILE
    if not path.exists():
        raise ChainError(f"{folder} has no contract of its own yet; name one with chain.contract")
    return _read(path).contract


def _read(path: Path) -> Founded:
    try:
        return msgspec.json.decode(read_private(path, MAX_FILE), type=Founded)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChainError(f"{path} is damaged; restore a copy, or move it away to found a new contract") from error
