"""An account whose key another process keeps, such as the login server on this machine: it is asked for signatures.

POST {url}/api/sign-transaction   {"transaction": the fields of `wallet.transaction_fields`}
200 {"raw": "0x..", "address": "0x.."}      401, 403: the token is not accepted      409: nobody is logged in
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

from codezero.chain.bounded_http import post, shown
from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ConfigError, WalletError, translated
from codezero.system.files import UNDECODABLE, Address, read_private
from codezero.system.http_client import check_url

SECONDS = 10.0
MAX_TOKEN = 512
MAX_ANSWER = 256 << 10
"""Bytes; the largest transaction is a deployment."""


class _Answer(msgspec.Struct, frozen=True):
    raw: Annotated[str, Meta(pattern=r"^0x([0-9a-fA-F]{2})+\Z", max_length=MAX_ANSWER)]
    address: Address


class RemoteWallet:
    """address: of the account that has to sign. token: a file that only its owner reads. Raises ConfigError."""

    def __init__(self, url: str, token: Path, address: str) -> None:
        if not is_address(address):
            raise ConfigError(f"chain.account={address[:50]!r} is no address; it has 0x and 40 hexadecimal digits")
        self._url = check_url(url, "chain.signer").rstrip("/") + "/api/sign-transaction"
        self.address, self._token = to_checksum_address(address), token

    def __repr__(self) -> str:
        return f"RemoteWallet({shown(self._url)}, {self.address})"

    def sign_transaction(self, fields: Mapping[str, Any]) -> bytes:
        """Signed by the expected account, exactly as asked. The token is read anew: each login writes another.

        Raises WalletError, ChainUnreachableError.
        """
        token, where = read_private(self._token, MAX_TOKEN).strip(), shown(self._url)
        if not token or not all(0x21 <= byte <= 0x7E for byte in token):  # no word for an HTTP header
            raise WalletError(f"{self._token} holds no token; log in again")
        body = msgspec.json.encode({"transaction": dict(fields)})
        status, raw = post(self._url, body, SECONDS, {"Authorization": f"Bearer {token.decode()}"}, MAX_ANSWER)
        if status in (401, 403):
            raise WalletError(f"the signer {where} does not accept the token in {self._token}; log in again")
        if status == 409:
            raise WalletError(f"nobody is logged in at {where}; open it in a browser and log in")
        if status != 200:
            raise ChainUnreachableError(f"the signer {where} answers with HTTP {status}")
        malformed = f"the signer {where} answers in a form that no signer has"
        with translated(WalletError, malformed, *UNDECODABLE, reason=False):
            answer = msgspec.json.decode(raw, type=_Answer)
        if to_checksum_address(answer.address) != self.address:
            raise WalletError(
                f"the signer signs for {answer.address}, not for {self.address}; log in with that account"
            )
        signed, wanted = HexBytes(answer.raw), {**fields, "to": HexBytes(fields.get("to", b""))}  # in any spelling
        try:
            same = TypedTransaction.from_bytes(signed).hash() == TypedTransaction.from_dict(wanted).hash()
            faithful = same and Account.recover_transaction(signed) == self.address
        except (RLPException, BadSignature, ValidationError, ValueError, TypeError):  # of eth-account
            faithful = False
        if not faithful:
            raise WalletError("the signer signed something else than it was asked for; nothing was sent")
        return bytes(signed)
