"""The embedded chain's side of JSON-RPC: what a request may contain, and the codes of what is refused.

Every field has a pattern or a bound, checked by msgspec before anything looks at it.
Method names, parameters and error codes are those of the Ethereum JSON-RPC API (ethereum.github.io/execution-apis).
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.errors import ChainError

PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
REFUSED, OVER_LIMIT, REVERTED = -32000, -32005, 3
"""A transaction or call that cannot be; a bound of this server; the contract said no."""

MAX_TRANSACTION = 128 * 1024
"""Bytes of one signed transaction, as in other nodes."""
MAX_ADDRESSES = 256
MAX_CHOICES = 256
"""Alternatives at one place of a topic filter."""
MAX_ACCESSES = 1024


class RpcRefusal(ChainError):
    """A JSON-RPC error. `data` is a 0x string, never an object: web3 reads custom errors from it."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def to_json(self) -> dict[str, int | str]:
        told: dict[str, int | str] = {"code": self.code, "message": self.message}
        if self.data is not None:
            told["data"] = self.data
        return told


Address = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{40}\Z")]
Hash = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{64}\Z")]
Quantity = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,64}\Z")]
Data = Annotated[str, Meta(pattern=r"^0x(?:[0-9a-fA-F]{2})*\Z", max_length=2 + 2 * MAX_TRANSACTION)]
Tag = Annotated[str, Meta(pattern=r"^(?:latest|pending|earliest|safe|finalized|0x[0-9a-fA-F]{1,64})\Z")]


class BlockRef(msgspec.Struct, frozen=True, rename="camel"):
    """A block as EIP-1898 names it: exactly one of the two."""

    block_hash: Hash | None = None
    block_number: Quantity | None = None


Block = Tag | BlockRef | None


class Params(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Parameters by position; more of them than named is an error."""


class AccessEntry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of an access list (EIP-2930)."""

    address: Address
    storage_keys: Annotated[list[Hash], Meta(max_length=MAX_ACCESSES)] = []


class Call(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction that is only tried. Prices are accepted and not charged; unknown fields are left unread."""

    sender: Address | None = msgspec.field(default=None, name="from")
    to: Address | None = None
    gas: Quantity | None = None
    value: Quantity | None = None
    data: Data | None = None
    input: Data | None = None
    access_list: Annotated[list[AccessEntry], Meta(max_length=MAX_ACCESSES)] | None = None
    authorization_list: msgspec.Raw | None = None


class LogFilter(msgspec.Struct, frozen=True, rename="camel"):
    """Which events: of a range of blocks or of one block, by address and by topic."""

    from_block: Tag | None = None
    to_block: Tag | None = None
    block_hash: Hash | None = None
    address: Address | Annotated[list[Address], Meta(max_length=MAX_ADDRESSES)] | None = None
    topics: (
        Annotated[
            list[Hash | Annotated[list[Hash | None], Meta(max_length=MAX_CHOICES)] | None],
            Meta(max_length=4),
        ]
        | None
    ) = None


class Nothing(Params, frozen=True):
    """No parameters."""


class OfAccount(Params, frozen=True):
    """An account, at a block."""

    address: Address
    block: Block = None


class OfSlot(Params, frozen=True):
    """A storage slot of an account, at a block."""

    address: Address
    slot: Quantity
    block: Block = None


class OfBlock(Params, frozen=True):
    """A block by number or tag; `full`: whole transactions instead of their hashes."""

    block: Tag
    full: bool = False


class OfBlockHash(Params, frozen=True):
    """A block by hash."""

    hash: Hash
    full: bool = False


class OfTransaction(Params, frozen=True):
    """A transaction by hash."""

    hash: Hash


class Trial(Params, frozen=True):
    """A call at a block. State or block overrides are not supported: they must be empty."""

    call: Call
    block: Block = None
    state_override: dict[str, msgspec.Raw] | None = None
    block_override: dict[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A transaction that is only tried. value: wei; gas None: as much as a block holds; to empty: create a contract."""

    sender: bytes
    to: bytes
    value: int
    data: bytes
    gas: int | None
    accesses: tuple[tuple[bytes, tuple[int, ...]], ...] = ()


class Signed(Params, frozen=True):
    """A signed transaction."""

    raw: Data


class Logs(Params, frozen=True):
    """A search for events."""

    filter: LogFilter


class FeeHistory(Params, frozen=True):
    """Fees of the `blocks` blocks up to `newest`."""

    blocks: Quantity | Annotated[int, Meta(ge=0, le=2**53)]
    newest: Tag
    percentiles: Annotated[list[float], Meta(max_length=100)] | None = None


class Fund(Params, frozen=True):
    """Whom the faucet is asked to fill up."""

    address: Address


class Request(msgspec.Struct, frozen=True):
    """One call. A request without an id would have no answer, so it is refused."""

    jsonrpc: Annotated[str, Meta(pattern=r"^2\.0\Z")]
    id: Annotated[str, Meta(max_length=256)] | Annotated[int, Meta(ge=-(2**53), le=2**53)] | None
    method: Annotated[str, Meta(max_length=64)]
    params: msgspec.Raw = msgspec.Raw(b"[]")


def quantity(number: int) -> str:
    return hex(number)


def hexed(raw: bytes) -> str:
    return "0x" + raw.hex()


def to_int(text: str) -> int:
    return int(text, 16)


def to_bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])
