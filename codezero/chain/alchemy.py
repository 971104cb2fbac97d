"""What Alchemy's Wallet APIs prepare to be signed: a user operation, and at first an EIP-7702 authorization.

A hostile or broken server could prepare another call, account, chain, delegate or hash: `checked` refuses each.
"""

from typing import Annotated, Any, Literal

import msgspec
from eth_abi.abi import encode
from eth_abi.packed import encode_packed
from eth_utils.abi import function_signature_to_4byte_selector as selector
from eth_utils.crypto import keccak
from hexbytes import HexBytes
from msgspec import Meta

from codezero.chain.provider import Address, Bytes, Hash, Quantity
from codezero.errors import ChainError

ENTRY_POINT: Any = "0x0000000071727De22E5E9d8BAf0edAc6f37da032"
"""Of ERC-4337, v0.7, the same on every chain."""
UNREQUESTED = "the paymaster's service prepared something else than it was asked for: "
Half = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,32}\Z")]  # 128 bits: two of them are packed into one word
Small = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,16}\Z")]


class UnsponsoredError(ChainError):
    """The service does not do it, or prepared something else, which was not signed: another try would not help."""


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
        halves = self.verification_gas_limit, self.call_gas_limit, self.max_priority_fee_per_gas, self.max_fee_per_gas
        limits = self.paymaster_verification_gas_limit, self.paymaster_post_op_gas_limit
        packed = encode_packed(["uint128"] * 6, [int(half, 16) for half in halves + limits])
        paymaster = HexBytes(self.paymaster) + packed[64:] + HexBytes(self.paymaster_data)
        types = ["address", "uint256", "bytes32", "bytes32", "bytes32", "uint256", "bytes32", "bytes32"]
        account = self.sender, int(self.nonce, 16), keccak(b""), keccak(hexstr=self.call_data)  # no factory
        gas = packed[:32], int(self.pre_verification_gas, 16), packed[32:64]
        inner = keccak(encode(types, [*account, *gas, keccak(paymaster)]))
        return keccak(encode(["bytes32", "address", "uint256"], [inner, ENTRY_POINT, chain_id]))


class _SignHash(msgspec.Struct, frozen=True, tag_field="type", tag="personal_sign"):
    data: dict[Literal["raw"], Hash]


class _Delegation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: Address
    nonce: Small  # of the account's own transactions


class _Authorization(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="authorization"):
    data: _Delegation
    chain_id: Small


class _Operation(msgspec.Struct, frozen=True, rename="camel", tag_field="type", tag="user-operation-v070"):
    data: UserOperation
    chain_id: Small
    signature_request: _SignHash
    fee_payment: dict[str, object]


class _Several(msgspec.Struct, frozen=True, tag_field="type", tag="array"):
    data: Annotated[list[_Authorization | _Operation], Meta(min_length=1, max_length=2)]


Prepared = _Operation | _Several


def checked(
    prepared: Prepared, account: str, chain: int, to: str, data: bytes, delegates: set[str], code: bytes, count: int
) -> tuple[_Authorization | None, _Operation]:
    """What may be signed for the one call that is wanted: `data` to the contract `to`. Raises UnsponsoredError.

    delegates: contracts that the account may follow, in lower case. code, count: the account's code and its next nonce,
    as the chain itself says.
    """
    match prepared.data if isinstance(prepared, _Several) else [prepared]:
        case [_Operation() as operation]:
            authorization, follows = None, delegate_of(code) or ""
        case [_Authorization() as authorization, _Operation() as operation]:
            follows = authorization.data.address
        case _:
            raise UnsponsoredError(f"{UNREQUESTED}not one operation, with at most one authorization before it")
    offered = operation.data
    for problem, right in {
        "the account follows no contract yet, and no authorization is offered": code or authorization,
        "an authorization for another chain": not authorization or int(authorization.chain_id, 16) == chain,
        "an authorization for another time": not authorization or int(authorization.data.nonce, 16) == count,
        f"the account follows {follows or 'code of its own'}, which chain.alchemy_delegates lacks": (
            follows.lower() in delegates
        ),
        "an operation for another chain": int(operation.chain_id, 16) == chain,
        "an operation of another account": offered.sender.lower() == account.lower(),
        "another call, or more than one": calls_only(bytes.fromhex(offered.call_data[2:]), to, data),
        "the account itself would pay; correct the gas manager's policy": (
            operation.fee_payment.get("sponsored") is True and int(offered.paymaster, 16)
        ),
        "the hash to be signed is not the operation's": (
            operation.signature_request.data.get("raw", "").lower() == "0x" + offered.hash(chain).hex()
        ),
    }.items():
        if not right:
            raise UnsponsoredError(UNREQUESTED + problem)
    return authorization, operation


def calls_only(call_data: bytes, to: str, data: bytes) -> bool:
    """Does an account of ERC-7579's or Alchemy's kind run this one call, without value, and nothing else?"""
    single = selector("execute(address,uint256,bytes)") + encode(["address", "uint256", "bytes"], [to, 0, data])
    batch = selector("executeBatch((address,uint256,bytes)[])")
    return call_data in (single, batch + encode(["(address,uint256,bytes)[]"], [[(to, 0, data)]]))


def delegate_of(code: bytes) -> str | None:
    """The contract that an account with this code follows (EIP-7702); None: it follows none."""
    return "0x" + code[3:].hex() if len(code) == 23 and code.startswith(b"\xef\x01\x00") else None
