"""The methods of the embedded chain's JSON-RPC, and what their parameters may be.

They are those of the Ethereum JSON-RPC API (ethereum.github.io/execution-apis) that web3 libraries need, and
`codezero_fund`. No account is unlocked: only a signed transaction changes anything. Every parameter has a form or a
bound, checked before a method runs.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from eth.db.account import AccountDB
from eth_typing import Address as RawAddress
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, validate_call
from pydantic.alias_generators import to_camel

from codezero.chain.devchain import BASE_FEE, TIP, Evm, SimulatedCall
from codezero.chain.devchain_state import REFUSED, RpcRefusal
from codezero.chain.devchain_store import Head, Store, from_hex

INVALID_PARAMS, OVER_LIMIT = -32602, -32005
LOG_BLOCKS, LOG_BYTES = 100_000, 16 << 20
"""The widest search for events: in blocks, and in bytes of the answer."""
MAX_TRANSACTION = 128 * 1024
"""Bytes of one signed transaction, as in other nodes."""


def _form(pattern: str, convert: Callable[[str], Any]) -> BeforeValidator:
    def read(value: object) -> Any:
        if not isinstance(value, str) or not re.fullmatch(f"0x{pattern}", value):
            raise ValueError(f"it must be of the form 0x{pattern}")
        return convert(value)

    return BeforeValidator(read)


Address = Annotated[bytes, _form("[0-9a-fA-F]{40}", from_hex)]
Hash = Annotated[bytes, _form("[0-9a-fA-F]{64}", from_hex)]
Quantity = Annotated[int, _form("[0-9a-fA-F]{1,64}", lambda text: int(text, 16))]
Data = Annotated[bytes, _form(f"(?:[0-9a-fA-F]{{2}}){{0,{MAX_TRANSACTION}}}", from_hex)]
Tag = Literal["latest", "pending", "safe", "finalized", "earliest"] | Quantity | None
At = Annotated[Hash | Tag, Field(union_mode="left_to_right")]
"""A block by its hash, number or name; None is the newest."""
Result = str | bool | dict[str, Any] | list[Any] | msgspec.Raw | None


class Form(BaseModel):
    """An object among the parameters. Unknown fields are left unread."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class CallFields(Form):
    """A transaction that is only tried. Prices are accepted and not charged."""

    sender: Address = Field(bytes(20), alias="from")
    to: Address | None = None
    gas: Quantity | None = None
    value: Quantity = 0
    data: Data = b""
    input: Data = b""
    authorization_list: None = None

    def simulated(self) -> SimulatedCall:
        return SimulatedCall(self.sender, self.to or b"", self.value, self.input or self.data, self.gas)


class LogFilter(Form):
    """Which events: of a range of blocks or of one block, by address and by topic."""

    from_block: Tag = None
    to_block: Tag = None
    block_hash: Hash | None = None
    address: Address | Annotated[list[Address], Field(max_length=256)] = []
    topics: Annotated[list[Hash | Annotated[list[Hash | None], Field(max_length=256)] | None], Field(max_length=4)] = []


class Methods:
    """A chain's methods by their names, for one thread. Those without parameters may be called from any."""

    def __init__(self, store: Store, evm: Evm, chain_id: int, version: str) -> None:
        self._store, self._evm, self._chain_id, self._version = store, evm, chain_id, version
        self.checked: dict[str, Callable[..., Result]] = {name: validate_call(getattr(self, name)) for name in METHODS}
        """They raise pydantic's ValidationError for parameters that have not the form."""

    def web3_clientVersion(self) -> str:
        return self._version

    def net_version(self) -> str:
        return str(self._chain_id)

    def eth_chainId(self) -> str:
        return hex(self._chain_id)

    def eth_gasPrice(self) -> str:
        return hex(BASE_FEE + TIP)

    def eth_maxPriorityFeePerGas(self) -> str:
        return hex(TIP)

    def eth_blockNumber(self) -> str:
        return hex(self._evm.head.number)

    def eth_getBalance(self, address: Address, block: At = None) -> str:
        return hex(self._accounts(block).get_balance(RawAddress(address)))

    def eth_getTransactionCount(self, address: Address, block: At = None) -> str:
        return hex(self._accounts(block).get_nonce(RawAddress(address)))

    def eth_getCode(self, address: Address, block: At = None) -> str:
        return f"0x{self._accounts(block).get_code(RawAddress(address)).hex()}"

    def eth_getStorageAt(self, address: Address, slot: Quantity, block: At = None) -> str:
        return f"0x{self._accounts(block).get_storage(RawAddress(address), slot):064x}"

    def eth_call(self, call: CallFields, block: At = None) -> str:
        """In the block after the one named."""
        return f"0x{self._evm.call(call.simulated(), self._at(block)).hex()}"

    def eth_estimateGas(self, call: CallFields, block: At = None) -> str:
        return hex(self._evm.estimate(call.simulated(), self._at(block)))

    def eth_sendRawTransaction(self, raw: Data) -> str:
        return f"0x{self._evm.send(raw).hex()}"

    def codezero_fund(self, address: Address) -> str | None:
        """The hash of the faucet's transaction; null when the account has enough."""
        tx_hash = self._evm.fund(address)
        return None if tx_hash is None else f"0x{tx_hash.hex()}"

    def eth_getBlockByNumber(self, block: At, full: bool = False) -> Result:
        """full: whole transactions instead of their hashes."""
        head = self._find(block)
        json = None if head is None else self._store.json("json FROM block WHERE number", head.number)
        if head is None or json is None or not full:
            return None if json is None else msgspec.Raw(json)
        tx = self._store.json("json FROM tx WHERE block", head.number)
        transactions = [] if tx is None else [msgspec.Raw(tx)]
        return msgspec.json.decode(json, type=dict[str, msgspec.Raw]) | {"transactions": transactions}

    eth_getBlockByHash = eth_getBlockByNumber

    def eth_getTransactionByHash(self, tx_hash: Hash) -> Result:
        json = self._store.json("json FROM tx WHERE hash", tx_hash)
        return None if json is None else msgspec.Raw(json)

    def eth_getTransactionReceipt(self, tx_hash: Hash) -> Result:
        json = self._store.json("receipt FROM tx WHERE hash", tx_hash)
        return None if json is None else msgspec.Raw(json)

    def eth_getLogs(self, search: LogFilter) -> Result:
        first, last = self._range(search)
        addresses = [search.address] if isinstance(search.address, bytes) else search.address
        topics = [_choices(place) for place in search.topics]
        events: list[msgspec.Raw] = []
        size = 0
        for event in self._store.events(first, last, addresses, topics):
            size += len(event)
            if size > LOG_BYTES:
                limit = f"query returned more than {LOG_BYTES >> 20} MiB; ask for fewer blocks"
                raise RpcRefusal(OVER_LIMIT, limit)
            events.append(msgspec.Raw(event))
        return events

    def _range(self, search: LogFilter) -> tuple[int, int]:
        """First and last block. Raises RpcRefusal."""
        if search.block_hash is not None:
            if search.model_fields_set & {"from_block", "to_block"}:
                raise RpcRefusal(INVALID_PARAMS, "cannot specify both BlockHash and FromBlock/ToBlock")
            number = self._at(search.block_hash).number
            return number, number
        first, last = self._number(search.from_block), self._number(search.to_block)
        if first > last:
            raise RpcRefusal(INVALID_PARAMS, "invalid block range params")
        head = self._evm.head.number
        first, last = min(first, head + 1), min(last, head)
        if last - first >= LOG_BLOCKS:
            raise RpcRefusal(OVER_LIMIT, f"exceed maximum block range: {LOG_BLOCKS}")
        return first, last

    def _accounts(self, block: At) -> AccountDB:
        return self._evm.accounts(self._at(block))

    def _at(self, block: At) -> Head:
        """Raises RpcRefusal for a block that is not there."""
        head = self._find(block)
        if head is None:
            raise RpcRefusal(REFUSED, "header not found")
        return head

    def _find(self, block: At) -> Head | None:
        number = self._store.number_of(block) if isinstance(block, bytes) else self._number(block)
        return None if number is None or number > self._evm.head.number else self._store.block(number)

    def _number(self, tag: Tag) -> int:
        if isinstance(tag, int):
            return tag
        return 0 if tag == "earliest" else self._evm.head.number


METHODS = tuple(name for name in vars(Methods) if not name.startswith("_"))


def _choices(place: bytes | list[bytes | None] | None) -> list[bytes]:
    """Of one place in a topic filter; none means any."""
    choices = place if isinstance(place, list) else [place]
    return [] if None in choices else [choice for choice in choices if choice is not None]
