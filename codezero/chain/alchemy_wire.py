"""What Alchemy's Wallet APIs say, as far as it is used: schema-checked, bounded, and never believed without a look.

wallet_prepareCalls        the calls            -> a user operation, and at first an EIP-7702 authorization, to sign
wallet_sendPreparedCalls   the same, signed     -> an id
wallet_getCallsStatus      an id                -> a status
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from codezero.chain.rpc import Address, Hash, Quantity
from codezero.chain.user_operation import UserOperation

MAX_ANSWER = 512 << 10
"""Bytes."""
Fate = Literal["accepted", "refused", "pending"]
Id = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,1024}\Z")]
Small = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,16}\Z")]


class _Raw(msgspec.Struct, frozen=True):
    raw: Hash


class HashRequest(msgspec.Struct, frozen=True, tag_field="type", tag="personal_sign"):
    """Sign these 32 bytes as a message (EIP-191)."""

    data: _Raw


class AuthorizationRequest(msgspec.Struct, frozen=True, tag_field="type", tag="eip7702Auth"):
    """Sign the authorization; what its bytes are follows from its fields."""


class Delegation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """address: the contract whose code the account is to follow. nonce: of the account's own transactions."""

    address: Address
    nonce: Small


class FeePayment(msgspec.Struct, frozen=True, rename="camel"):
    """Who pays."""

    sponsored: bool


class Authorization(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="authorization"):
    """To be signed once for an account, before its first operation."""

    data: Delegation
    chain_id: Small
    signature_request: AuthorizationRequest


class Operation(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="user-operation-v070"):
    """To be signed for each call."""

    data: UserOperation
    chain_id: Small
    signature_request: HashRequest
    fee_payment: FeePayment


class Several(msgspec.Struct, frozen=True, tag_field="type", tag="array"):
    """Of an account that follows no contract yet."""

    data: Annotated[list[Authorization | Operation], Meta(min_length=1, max_length=2)]


Prepared = Operation | Several


class Sent(msgspec.Struct, frozen=True):
    """id: to ask for the status with."""

    id: Id


class _Mined(msgspec.Struct, frozen=True, rename="camel"):
    transaction_hash: Hash


class Status(msgspec.Struct, frozen=True):
    """Of calls that were sent."""

    status: Annotated[int, Meta(ge=100, le=999)]
    receipts: Annotated[list[_Mined], Meta(max_length=64)] | None = None

    @property
    def fate(self) -> Fate:
        """EIP-5792: 1xx it goes on, 2xx it is done, 4xx it will not be tried again, 5xx and 6xx it was undone."""
        if self.status < 200:
            return "pending"
        return "accepted" if self.status < 300 else "refused"


class Failure(msgspec.Struct, frozen=True):
    """The error object of JSON-RPC."""

    code: int
    message: str
    data: object = None


class Answer(msgspec.Struct, frozen=True):
    """One answer of JSON-RPC."""

    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None


class Signature(msgspec.Struct, frozen=True, tag_field="type", tag="secp256k1"):
    """data: r, s and v, 65 bytes as hexadecimal."""

    data: str


class SignedAuthorization(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="authorization"):
    """As it was prepared, with a signature."""

    data: Delegation
    chain_id: Quantity
    signature: Signature


class SignedOperation(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="user-operation-v070"):
    """As it was prepared, with a signature."""

    data: UserOperation
    chain_id: Quantity
    signature: Signature
    authorization: SignedAuthorization | None = None
    """Kept beside it; on the wire the two stand in an array."""

    def request(self, policy: str) -> dict[str, object]:
        """The parameter of wallet_sendPreparedCalls."""
        operation = msgspec.structs.replace(self, authorization=None)
        alone = {name: value for name, value in msgspec.to_builtins(operation).items() if name != "authorization"}
        if self.authorization is None:
            return alone | capabilities(policy)
        return {"type": "array", "data": [msgspec.to_builtins(self.authorization), alone]} | capabilities(policy)


def capabilities(policy: str) -> dict[str, object]:
    """Who is to pay."""
    return {"capabilities": {"paymasterService": {"policyId": policy}}}
