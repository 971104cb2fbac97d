"""Log in with a wallet extension: EIP-4361 (Sign-In with Ethereum), and a second message whose signature opens the key.

The second signature is the same each time, because wallets derive the nonce from key and message (RFC 6979). One that
does not is refused when it claims. Contracts that sign (EIP-1271) cannot open anything and are refused.
"""

import secrets
from datetime import UTC, datetime, timedelta

from eth_account import Account
from eth_account.messages import encode_defunct
from eth_keys.exceptions import BadSignature
from eth_utils.address import to_checksum_address
from eth_utils.exceptions import ValidationError

from codezero.login.errors import Refusal
from codezero.login.sessions import SECONDS

UNLOCK = """\
Unlock the key of a CodeZero node.

Sign this only at http://localhost, on the machine of your node.
Who has this signature and the node's files has its key.

Wallet: {address}
Node: {node}"""


def sign_in_message(origin: str, address: str, chain_id: int, now: float) -> str:
    """What EIP-4361 prescribes. origin: like http://localhost:3000. now: seconds since 1970."""
    issued = datetime.fromtimestamp(now, UTC)
    return (
        f"{origin.removeprefix('http://')} wants you to sign in with your Ethereum account:\n"
        f"{to_checksum_address(address)}\n"
        "\n"
        "Log in to the CodeZero node on this machine.\n"
        "\n"
        f"URI: {origin}\n"
        "Version: 1\n"
        f"Chain ID: {chain_id}\n"
        f"Nonce: {secrets.token_hex(16)}\n"
        f"Issued At: {_iso(issued)}\n"
        f"Expiration Time: {_iso(issued + timedelta(seconds=SECONDS))}"
    )


def new_unlock_message(address: str) -> str:
    """Another one for each claim, so that an old signature opens nothing new."""
    return UNLOCK.format(address=to_checksum_address(address), node=secrets.token_hex(16))


def check_signature(message: str, signature: str, address: str) -> None:
    """EIP-191, by `address`. Raises Refusal."""
    try:
        signer = Account.recover_message(encode_defunct(text=message), signature=signature)
    except (BadSignature, ValidationError, ValueError, TypeError):
        signer = None
    if signer != to_checksum_address(address):
        raise Refusal(403, f"the message was not signed by {to_checksum_address(address)}; choose that account")


def secret_of(signature: str) -> bytes:
    """[64] bytes: r and s. Wallets write the last byte in two ways."""
    return bytes.fromhex(signature[2:130])


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
