"""An account whose key another process keeps, such as the login server on this machine: it is asked for signatures.

    JSON both ways, `Authorization: Bearer TOKEN`:
    POST {url}/api/sign-transaction
        {"transaction": {"type": 2, "chainId": n, "nonce": n, "to": "0x..", "value": 0, "data": "0x..", "gas": n,
                         "maxFeePerGas": n, "maxPriorityFeePerGas": n}}     without "to" for a deployment
    200 {"raw": "0x..", "address": "0x.."}      401, 403: the token is not accepted      409: nobody is logged in

What comes back is checked: a signature by the expected account over exactly what was asked, or nothing is sent.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from eth_account import Account
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from eth_keys.exceptions import BadSignature
from eth_utils.address import is_address, to_checksum_address
from eth_utils.exceptions import ValidationError
from hexbytes import HexBytes
from msgspec import Meta
from rlp.exceptions import RLPException

from codezero.chain.bounded_http import UNDECODABLE, BoundedHttp, check_url, shown
from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ConfigError, WalletError
from codezero.system.files import read_private

SECONDS = 10.0
MAX_TOKEN = 512
MAX_ANSWER = 256 << 10
"""Bytes; the largest transaction is a deployment."""
ROUTE = "/api/sign-transaction"
MALFORMED = (RLPException, BadSignature, ValidationError, ValueError, TypeError)
"""What eth-account raises over bytes that are no signed transaction."""


class _Answer(msgspec.Struct, frozen=True):
    raw: Annotated[str, Meta(pattern="^0x([0-9a-fA-F]{2})+$", max_length=MAX_ANSWER)]
    address: Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$")]


class RemoteWallet:
    """`address`: the account that has to sign. `token`: a file that only its owner reads. Raises ConfigError.

    The URL is https, or http to this machine.
    """

    def __init__(self, url: str, token: Path, address: str, *, seconds: float = SECONDS) -> None:
        if not is_address(address):
            raise ConfigError(f"chain.account={address[:50]!r} is no address; it has 0x and 40 hexadecimal digits")
        self._url = check_url(url, "chain.signer").rstrip("/") + ROUTE
        self._address, self._seconds = to_checksum_address(address), seconds
        self._token = token
        self._http = BoundedHttp()

    def __repr__(self) -> str:
        return f"RemoteWallet({shown(self._url)}, {self._address})"

    @property
    def address(self) -> str:
        return self._address

    def sign_transaction(self, fields: Mapping[str, Any]) -> bytes:
        """The token is read anew each time: a new login writes a new one. Raises WalletError, ChainUnreachableError."""
        status, raw = self._http.post(
            self._url,
            msgspec.json.encode({"transaction": dict(fields)}),
            self._seconds,
            headers={"Authorization": f"Bearer {_token(self._token)}"},
            limit=MAX_ANSWER,
        )
        if status in (401, 403):
            raise WalletError(f"the signer {shown(self._url)} does not accept the token in {self._token}; log in again")
        if status == 409:
            raise WalletError(f"nobody is logged in at {shown(self._url)}; open it in a browser and log in")
        if status != 200:
            raise ChainUnreachableError(f"the signer {shown(self._url)} answers with HTTP {status}")
        try:
            answer = msgspec.json.decode(raw, type=_Answer)
        except UNDECODABLE as error:
            raise WalletError(f"the signer {shown(self._url)} answers in a form that no signer has") from error
        signed = bytes.fromhex(answer.raw[2:])
        if to_checksum_address(answer.address) != self._address:
            raise WalletError(
                f"the signer signs for {answer.address}, not for {self._address}; log in with that account"
            )
        try:
            faithful = _fields_in(signed) == _requested(fields) and Account.recover_transaction(signed) == self._address
        except MALFORMED:
            faithful = False
        if not faithful:
            raise WalletError("the signer signed something else than it was asked for; nothing was sent")
        return signed

    def close(self) -> None:
        self._http.close()


def _token(path: Path) -> str:
    token = read_private(path, MAX_TOKEN).strip()
    if not token or not token.isascii() or not token.decode("ascii").isprintable() or b" " in token:
        raise WalletError(f"{path} holds no token; log in again")
    return token.decode("ascii")


def _requested(fields: Mapping[str, Any]) -> dict[str, object]:
    whole = {"to": "0x", "accessList": (), **fields}
    return {key: HexBytes(value) if isinstance(value, str) else value for key, value in whole.items()}


def _fields_in(raw: bytes) -> dict[str, object]:
    """What a raw transaction says, without its signature. Raises one of MALFORMED."""
    fields = TypedTransaction.from_bytes(HexBytes(raw)).as_dict()
    return {key: value for key, value in fields.items() if key not in ("v", "r", "s")}
