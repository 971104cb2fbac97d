"""A user operation of ERC-4337, EntryPoint v0.7: how it is written and hashed, and what it does.

A contract account runs what it holds; somebody else puts it into a block and, when it names a paymaster, pays. Its
hash covers every field, the chain and the entry point, so who signs the hash agrees to exactly that.
"""

from typing import Annotated

import msgspec
from eth_abi.abi import encode
from eth_utils.crypto import keccak
from msgspec import Meta

from codezero.chain.rpc import Address, Bytes, Quantity

ENTRY_POINT = "0x0000000071727De22E5E9d8BAf0edAc6f37da032"
"""v0.7, the same on every chain."""
DELEGATED = bytes.fromhex("ef0100")
"""Code of an account that follows a contract (EIP-7702): this, and the contract's address."""
Half = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,32}\Z")]
"""128 bits: two of them are packed into one word."""


class UserOperation(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True, kw_only=True
):
    """Sponsored, of an account that exists. Kept as it was written, so that it goes back unchanged."""

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

    @property
    def key(self) -> int:
        """Nonces of one key are used in order."""
        return int(self.nonce, 16) >> 64

    def hash(self, chain_id: int) -> bytes:
        """[32] bytes: what the account's owner signs."""
        paid = (
            bytes.fromhex(self.paymaster[2:])
            + _packed(self.paymaster_verification_gas_limit, self.paymaster_post_op_gas_limit)
            + bytes.fromhex(self.paymaster_data[2:])
        )
        fields = encode(
            ["address", "uint256", "bytes32", "bytes32", "bytes32", "uint256", "bytes32", "bytes32"],
            [
                self.sender,
                int(self.nonce, 16),
                keccak(b""),  # no factory: the account exists
                keccak(bytes.fromhex(self.call_data[2:])),
                _packed(self.verification_gas_limit, self.call_gas_limit),
                int(self.pre_verification_gas, 16),
                _packed(self.max_priority_fee_per_gas, self.max_fee_per_gas),
                keccak(paid),
            ],
        )
        return keccak(encode(["bytes32", "address", "uint256"], [keccak(fields), ENTRY_POINT, chain_id]))


def calls_only(call_data: bytes, to: str, data: bytes) -> bool:
    """Does an account of ERC-7579's or Alchemy's kind run this one call, without value, and nothing else?"""
    one = selector("execute(address,uint256,bytes)") + encode(["address", "uint256", "bytes"], [to, 0, data])
    batch = selector("executeBatch((address,uint256,bytes)[])")
    batch += encode(["(address,uint256,bytes)[]"], [[(to, 0, data)]])
    return call_data in (one, batch)


def delegate_of(code: bytes) -> str | None:
    """The contract that an account follows; None: it follows none."""
    return "0x" + code[3:].hex() if len(code) == 23 and code.startswith(DELEGATED) else None


def _packed(high: str, low: str) -> bytes:
    return int(high, 16).to_bytes(16) + int(low, 16).to_bytes(16)


def selector(signature: str) -> bytes:
    """[4] bytes."""
    return keccak(text=signature)[:4]
