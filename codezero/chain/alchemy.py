"""Alchemy's Wallet APIs within bounds: a key that only goes into one header, answers that are checked.

    wallet_prepareCalls        the calls         -> a user operation, and at first an EIP-7702 authorization, to sign
    wallet_sendPreparedCalls   the same, signed  -> an id
    wallet_getCallsStatus      an id             -> a status

A server that is hostile, broken or overheard could prepare other calls, for another chain or account, make the account
follow a contract of its own, or name a hash of something else: `checked` refuses each, and nothing of it is signed.
"""

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import msgspec
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector as selector
from eth_utils.address import is_address
from eth_utils.crypto import keccak
from msgspec import Meta

from codezero.chain.bounded_http import UNDECODABLE, BoundedHttp, check_url, shown
from codezero.chain.errors import ChainUnreachableError, RpcError, decode_revert, printable
from codezero.chain.provider import FINAL, Address, Bytes, Hash, Quantity, RpcAnswer, RpcFailure
from codezero.errors import ChainError, ConfigError
from codezero.system.files import read_private

T = TypeVar("T")

URL = "https://api.g.alchemy.com/v2"
DELEGATE = "0x69007702764179f14F51cdce752f4f775d74E139"
"""Alchemy's Modular Account v2 for EIP-7702: only the account's own key signs for it."""
ENTRY_POINT: Any = "0x0000000071727De22E5E9d8BAf0edAc6f37da032"
"""Of ERC-4337, v0.7, the same on every chain."""
DELEGATED = bytes.fromhex("ef0100")  # EIP-7702: then the address of the contract that the account follows
POLICY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
MAX_KEY, MAX_ANSWER = 256, 512 << 10  # bytes
Half = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,32}\Z")]
"""128 bits: two of them are packed into one word."""
Small = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,16}\Z")]


class UnsponsoredError(ChainError):
    """The service does not do it, and would not if it were asked again."""


class UnrequestedError(ChainError):
    """Something else was prepared than was requested. Nothing was signed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the paymaster's service prepared something else than it was asked for: {what}")


class UserOperation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True, kw_only=True
):
    """Of ERC-4337, sponsored, by an account that exists. Kept as it was written, so that it goes back unchanged."""

    sender: Address
    nonce: Quantity
    call_data: Bytes
    call_gas_limit: Half
    verification_gas_limit: Half
    pre_verification_gas: Quantity
    max_fee_per_gas: Half
    max_priority_fee_per_gas: Half
    paymaster: Address
    paymaster_verification_gas_limit: Half
    paymaster_post_op_gas_limit: Half
    paymaster_data: Bytes = "0x"
    factory: None = None
    factory_data: None = None

    def hash(self, chain_id: int) -> bytes:
        """[32] bytes, which cover every field, the chain and the entry point: what the account's owner signs."""
        gas = self.paymaster_verification_gas_limit, self.paymaster_post_op_gas_limit
        fields = [
            self.sender,
            int(self.nonce, 16),
            keccak(b""),  # no factory: the account exists
            keccak(bytes.fromhex(self.call_data[2:])),
            _packed(self.verification_gas_limit, self.call_gas_limit),
            int(self.pre_verification_gas, 16),
            _packed(self.max_priority_fee_per_gas, self.max_fee_per_gas),
            keccak(bytes.fromhex(self.paymaster[2:]) + _packed(*gas) + bytes.fromhex(self.paymaster_data[2:])),
        ]
        types = ["address", "uint256", "bytes32", "bytes32", "bytes32", "uint256", "bytes32", "bytes32"]
        inner = keccak(encode(types, fields))
        return keccak(encode(["bytes32", "address", "uint256"], [inner, ENTRY_POINT, chain_id]))


class _Raw(msgspec.Struct, frozen=True):
    raw: Hash


class _SignHash(msgspec.Struct, frozen=True, tag_field="type", tag="personal_sign"):
    data: _Raw


class _SignAuthorization(msgspec.Struct, frozen=True, tag_field="type", tag="eip7702Auth"):
    pass


class _FeePayment(msgspec.Struct, frozen=True):
    sponsored: bool


class _Delegation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: Address
    nonce: Small
    """Of the account's own transactions."""


class _Authorization(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="authorization"):
    data: _Delegation
    chain_id: Small
    signature_request: _SignAuthorization


class _Operation(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="user-operation-v070"):
    data: UserOperation
    chain_id: Small
    signature_request: _SignHash
    fee_payment: _FeePayment


class _Several(msgspec.Struct, frozen=True, tag_field="type", tag="array"):
    data: Annotated[list[_Authorization | _Operation], Meta(min_length=1, max_length=2)]


Prepared = _Operation | _Several


class _Sent(msgspec.Struct, frozen=True):
    id: Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,1024}\Z")]


class _Mined(msgspec.Struct, frozen=True, rename="camel"):
    transaction_hash: Hash


class CallsStatus(msgspec.Struct, frozen=True):
    """Of calls that were sent."""

    status: Annotated[int, Meta(ge=100, le=999)]
    receipts: Annotated[list[_Mined], Meta(max_length=64)] | None = None

    @property
    def refused(self) -> bool:
        """EIP-5792: 1xx it goes on, 2xx it is done, 4xx it will not be tried again, 5xx and 6xx it was undone."""
        return self.status >= 300


class _Reverted(msgspec.Struct, frozen=True, rename="camel"):
    revert_data: Annotated[str, Meta(pattern=r"^0x([0-9a-fA-F]{2}){4,4096}\Z")]


@dataclass(frozen=True, slots=True)
class WantedCall:
    """The one call that is wanted, and what the chain itself says of the account: its code, and its next nonce.

    delegates: contracts that the account may follow, in lower case.
    """

    account: str
    chain_id: int
    to: str
    data: bytes
    delegates: frozenset[str]
    code: bytes
    count: int


class Alchemy:
    """policy: of the gas manager, which pays. delegates: contracts that an account may follow. Raises ConfigError."""

    def __init__(self, key: str, policy: str, *, url: str = URL, delegates: Iterable[str] = (DELEGATE,)) -> None:
        if not POLICY.match(policy):
            raise ConfigError("chain.alchemy_policy is no policy id; copy it from the gas manager's page")
        for delegate in (delegates := list(delegates)):
            if not is_address(delegate):
                raise ConfigError(f"chain.alchemy_delegates: {delegate[:50]!r} is no address")
        self.delegates = frozenset(delegate.lower() for delegate in delegates)
        self._capabilities = {"capabilities": {"paymasterService": {"policyId": policy}}}
        self._url = check_url(url, "chain.alchemy_url")
        self._key = key
        self._http = BoundedHttp()
        self._ids = itertools.count(1)

    def prepare(self, call: WantedCall, seconds: float) -> Prepared:
        """The operation that makes one call, unchecked. Raises ChainUnreachableError, UnsponsoredError, RpcError."""
        calls = [{"to": call.to, "data": "0x" + call.data.hex()}]
        wanted = {"calls": calls, "from": call.account, "chainId": hex(call.chain_id), **self._capabilities}
        return self._request("wallet_prepareCalls", wanted, cast("type[Prepared]", Prepared), seconds)

    def send(self, signed: Sequence[Any], seconds: float) -> str:
        """The id of an operation, after its authorization if it has one. Raises as `prepare`; may be taken even so."""
        body = {"type": "array", "data": signed} if len(signed) > 1 else dict(signed[0])
        return self._request("wallet_sendPreparedCalls", body | self._capabilities, _Sent, seconds).id

    def status(self, id: str, seconds: float) -> CallsStatus:
        """Raises as `prepare`."""
        return self._request("wallet_getCallsStatus", id, CallsStatus, seconds)

    def close(self) -> None:
        self._http.close()

    def _request(self, method: str, parameter: object, form: type[T], seconds: float) -> T:
        id, where = next(self._ids), shown(self._url)
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": [parameter]})
        headers = {"Authorization": f"Bearer {self._key}"}
        status, raw = self._http.post(self._url, body, seconds, headers=headers, limit=MAX_ANSWER)
        if status in (401, 403):
            raise UnsponsoredError(f"{where} does not accept the API key; write a valid one into its file")
        if status == 429:
            raise ChainUnreachableError(f"{where} has had enough requests for now")
        try:
            answer = msgspec.json.decode(raw, type=RpcAnswer)
        except UNDECODABLE as error:
            raise ChainUnreachableError(f"{where} answers {method} with HTTP {status} and no JSON-RPC") from error
        if answer.error is not None:
            raise _refusal(answer.error, where)
        if answer.id != id:
            raise ChainUnreachableError(f"{where} answers another question than was asked")
        try:
            return msgspec.json.decode(answer.result, type=form)
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


def checked(prepared: Prepared, wanted: WantedCall) -> tuple[_Authorization | None, _Operation]:
    """What may be signed. Raises UnrequestedError."""
    match prepared.data if isinstance(prepared, _Several) else [prepared]:
        case [_Operation() as operation]:
            authorization, follows = None, delegate_of(wanted.code) or ""
            _require(wanted.code != b"", "the account follows no contract yet, and no authorization is offered")
        case [_Authorization() as authorization, _Operation() as operation]:
            follows = authorization.data.address
            _require(int(authorization.chain_id, 16) == wanted.chain_id, "an authorization for another chain")
            _require(int(authorization.data.nonce, 16) == wanted.count, "an authorization for another time")
        case _:
            raise UnrequestedError("not one operation, with at most one authorization before it")
    listed = follows.lower() in wanted.delegates
    _require(listed, f"the account follows {follows or 'code of its own'}, which chain.alchemy_delegates lacks")
    data = operation.data
    _require(int(operation.chain_id, 16) == wanted.chain_id, "an operation for another chain")
    _require(data.sender.lower() == wanted.account.lower(), "an operation of another account")
    _require(calls_only(bytes.fromhex(data.call_data[2:]), wanted.to, wanted.data), "another call, or more than one")
    sponsored = operation.fee_payment.sponsored and int(data.paymaster, 16) != 0
    _require(sponsored, "the account itself would pay; correct the gas manager's policy")
    right = operation.signature_request.data.raw.lower() == "0x" + data.hash(wanted.chain_id).hex()
    _require(right, "the hash to be signed is not the operation's")
    return authorization, operation


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise UnrequestedError(what)


def calls_only(call_data: bytes, to: str, data: bytes) -> bool:
    """Does an account of ERC-7579's or Alchemy's kind run this one call, without value, and nothing else?"""
    single = selector("execute(address,uint256,bytes)") + encode(["address", "uint256", "bytes"], [to, 0, data])
    batch = selector("executeBatch((address,uint256,bytes)[])")
    batch += encode(["(address,uint256,bytes)[]"], [[(to, 0, data)]])
    return call_data in (single, batch)


def delegate_of(code: bytes) -> str | None:
    """The contract that an account follows; None: it follows none."""
    return "0x" + code[3:].hex() if len(code) == 23 and code.startswith(DELEGATED) else None


def _packed(high: str, low: str) -> bytes:
    return int(high, 16).to_bytes(16) + int(low, 16).to_bytes(16)


def _refusal(error: RpcFailure, where: str) -> ChainError:
    """Never a ContractError: the chain itself was asked before, and only the chain is believed."""
    if error.code in FINAL:
        return UnsponsoredError(f"{where} refuses: {printable(error.message)} (code {error.code})")
    try:
        revert = bytes.fromhex(msgspec.convert(error.data, _Reverted).revert_data[2:])
    except msgspec.ValidationError:
        return RpcError(error.code, f"{where}: {printable(error.message)}")
    return RpcError(error.code, f"{where} says: {decode_revert(revert)}")
