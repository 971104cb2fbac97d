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


def fund(client: ChainClient, address: str) -> None:
    """Let the faucet fill a poor account, where the chain has one. Raises ChainError."""
    if client.eth.get_balance(to_checksum_address(address)) < POOR:
        try:
            client.provider.make_request(FUND, [address])
        except RpcError as error:
            if error.code != METHOD_NOT_FOUND:
                raise


def own_contract(folder: Path, client: ChainClient, sender: Sender) -> str:
    """The address of this chain's contract, deployed now by one of the callers if there is none. Raises ChainError."""
    path = folder / FILE
    with (folder / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            known = _read(path)
            if known.chain_id == client.chain_id:
                return known.contract
            os.replace(path, path.with_name(f"{FILE}.{known.chain_id}"))  # of a chain that is no more
        address = deploy(sender)
        logger.info("contract %s was deployed on chain %d", address, client.chain_id)
        write_new(path, msgspec.json.encode(Founded(client.chain_id, address)))
        return address


def founded(folder: Path) -> str:
    """The address of this chain's own contract. Raises ChainError when there is none."""
    if not (folder / FILE).exists():
        raise ChainError(f"{folder} has no contract of its own yet; name one with chain.contract")
    return _read(folder / FILE).contract


def _read(path: Path) -> Founded:
    try:
        return msgspec.json.decode(read_private(path, MAX_FILE), type=Founded)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChainError(f"{path} is damaged; restore a copy, or move it away to found a new contract") from error
