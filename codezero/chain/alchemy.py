"""Alchemy's Wallet APIs, asked within bounds: a key that only goes into one header, answers that are checked.

It is not trusted: what it prepares is signed only when it is exactly what was asked for, and what it says of an
operation's fate is a hint where to look on the chain.
"""

import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from eth_utils.address import is_address
from msgspec import Meta

from codezero.chain.alchemy_wire import (
    MAX_ANSWER,
    Answer,
    Failure,
    Prepared,
    Sent,
    SignedOperation,
    Status,
    capabilities,
)
from codezero.chain.errors import ChainUnreachableError, RpcError, decode_revert, printable
from codezero.chain.rpc import FINAL, UNDECODABLE
from codezero.chain.transport import Transport, check_url, shown
from codezero.errors import ChainError, ConfigError
from codezero.system.files import read_private

T = TypeVar("T")

URL = "https://api.g.alchemy.com/v2"
DELEGATE = "0x69007702764179f14F51cdce752f4f775d74E139"
"""Alchemy's Modular Account v2 for EIP-7702: only the account's own key signs for it."""
POLICY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
MAX_KEY = 256
PREPARED: msgspec.json.Decoder[Prepared] = msgspec.json.Decoder(Prepared)
SENT = msgspec.json.Decoder(Sent)
STATUS = msgspec.json.Decoder(Status)


class UnsponsoredError(ChainError):
    """The service does not do it, and would not if it were asked again."""


class _Reverted(msgspec.Struct, frozen=True, rename="camel"):
    revert_data: Annotated[str, Meta(pattern=r"^0x([0-9a-fA-F]{2}){4,4096}\Z")]


class Alchemy:
    """policy: of the gas manager, which pays. delegates: contracts that an account may follow. Raises ConfigError."""

    def __init__(self, key: str, policy: str, *, url: str = URL, delegates: Iterable[str] = (DELEGATE,)) -> None:
        if not POLICY.match(policy):
            raise ConfigError("chain.alchemy_policy is no policy id; copy it from the gas manager's page")
        for delegate in (delegates := list(delegates)):
            if not is_address(delegate):
                raise ConfigError(f"chain.alchemy_delegates: {delegate[:50]!r} is no address")
        self.policy, self.delegates = policy, frozenset(delegate.lower() for delegate in delegates)
        self._url = check_url(url, "chain.alchemy_url")
        self._key = key
        self._transport = Transport()
        self._ids = itertools.count(1)

    def __repr__(self) -> str:
        return f"Alchemy({shown(self._url)})"

    def prepare(self, account: str, to: str, data: bytes, chain_id: int, seconds: float) -> Prepared:
        """The operation that makes one call, unchecked. Raises ChainUnreachableError, UnsponsoredError, RpcError."""
        asked = {
            "calls": [{"to": to, "data": "0x" + data.hex()}],
            "from": account,
            "chainId": hex(chain_id),
        } | capabilities(self.policy)
        return self._ask("wallet_prepareCalls", asked, PREPARED, seconds)

    def send(self, signed: SignedOperation, seconds: float) -> str:
        """Its id. Raises as `prepare`, and may be taken even so."""
        return self._ask("wallet_sendPreparedCalls", signed.request(self.policy), SENT, seconds).id

    def status(self, id: str, seconds: float) -> Status:
        """Raises as `prepare`."""
        return self._ask("wallet_getCallsStatus", id, STATUS, seconds)

    def close(self) -> None:
        self._transport.close()

    def _ask(self, method: str, parameter: object, form: msgspec.json.Decoder[T], seconds: float) -> T:
        id, where = next(self._ids), shown(self._url)
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": [parameter]})
        headers = {"Authorization": f"Bearer {self._key}"}
        status, raw = self._transport.post(self._url, body, seconds, headers=headers, limit=MAX_ANSWER)
        if status in (401, 403):
            raise UnsponsoredError(f"{where} does not accept the API key; write a valid one into its file")
        if status == 429:
            raise ChainUnreachableError(f"{where} has had enough requests for now")
        try:
            answer = msgspec.json.decode(raw, type=Answer)
        except UNDECODABLE as error:
            raise ChainUnreachableError(f"{where} answers {method} with HTTP {status} and no JSON-RPC") from error
        if answer.error is not None:
            raise _told(answer.error, where)
        if answer.id != id:
            raise ChainUnreachableError(f"{where} answers another question than was asked")
        try:
            return form.decode(answer.result)
        except UNDECODABLE as error:
            raise ChainUnreachableError(f"{where} answers {method} in a form that is not known here") from error


def api_key(file: Path | None, variable: str = "") -> str:
    """From a file that only its owner reads, or out of the environment. Raises ConfigError, WalletError."""
    source = str(file) if file else f"the environment variable {variable}"
    raw = read_private(file, MAX_KEY) if file else os.environ.pop(variable, "").encode(errors="surrogateescape")
    key = raw.strip()
    if not key or len(key) > MAX_KEY or not re.fullmatch(rb"[!-~]+", key):
        raise ConfigError(f"{source} holds no API key; write the key of the app on one line")
    return key.decode("ascii")


def _told(error: Failure, where: str) -> ChainError:
    """Never a ContractError: the chain itself was asked before, and only the chain is believed."""
    if error.code in FINAL:
        return UnsponsoredError(f"{where} refuses: {printable(error.message)} (code {error.code})")
    try:
        revert = bytes.fromhex(msgspec.convert(error.data, _Reverted).revert_data[2:])
    except msgspec.ValidationError:
        return RpcError(error.code, f"{where}: {printable(error.message)}")
    return RpcError(error.code, f"{where} says: {decode_revert(revert)}")
