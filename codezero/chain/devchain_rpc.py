"""The methods of the embedded chain's JSON-RPC, and what their parameters may be.

They are those of ethereum.github.io/execution-apis that web3 libraries need, and `codezero_fund`. No account is
unlocked. Every parameter is checked before a method runs.
"""

import inspect
import typing
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from eth.db.account import AccountDB
from eth_typing import Address as RawAddress
from msgspec import Meta

from codezero.chain.devchain import BASE_FEE, TIP, Evm, SimulatedCall
from codezero.chain.devchain_metering import REFUSED, RpcRefusal
from codezero.chain.devchain_store import Head, Store
from codezero.system.files import Address, Hash, Quantity

INVALID_PARAMS, OVER_LIMIT = -32602, -32005
LOG_BLOCKS, LOG_BYTES = 100_000, 16 << 20
"""The widest search for events: in blocks, and in bytes of the answer."""
MAX_TRANSACTION = 128 * 1024
"""Bytes of one signed transaction, as in other nodes."""
NOBODY = "0x" + "00" * 20

Data = Annotated[str, Meta(pattern=r"^0x(?:[0-9a-fA-F]{2})*\Z", max_length=2 + 2 * MAX_TRANSACTION)]
At = Annotated[str, Meta(pattern=r"^(?:latest|pending|earliest|safe|finalized|0x[0-9a-fA-F]{1,64})\Z")] | None
"""A block by its hash, number or name; None is the newest."""
Result = str | bool | dict[str, Any] | list[Any] | msgspec.Raw | None


class CallFields(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction that is only tried. Prices are accepted and not charged; unknown fields are left unread."""

    sender: Address | None = msgspec.field(default=None, name="from")
    to: Address | None = None
    gas: Quantity | None = None
    value: Quantity | None = None
    data: Data | None = None
    input: Data | None = None
    access_list: Annotated[list[msgspec.Raw], Meta(max_length=0)] | None = None
    authorization_list: None = None
    """Neither list is supported in calls: they must be empty."""

    def simulated(self) -> SimulatedCall:
        sender, to, data = self.sender or NOBODY, self.to or "0x", self.input or self.data or "0x"
        gas = None if self.gas is None else int(self.gas, 16)
        return SimulatedCall(_bytes(sender), _bytes(to), int(self.value or "0x0", 16), _bytes(data), gas)


class LogFilter(msgspec.Struct, frozen=True, rename="camel"):
    """Which events: of a range of blocks or of one block, by address and by topic."""

    from_block: At = None
    to_block: At = None
    block_hash: Hash | None = None
    address: Address | Annotated[list[Address], Meta(max_length=256)] = []
    topics: Annotated[list[Hash | Annotated[list[Hash | None], Meta(max_length=256)] | None], Meta(max_length=4)] = []


class Methods:
    """A chain's methods by their names, for one thread. Those without parameters may be called from any."""

    def __init__(self, store: Store, evm: Evm, chain_id: int, version: str) -> None:
        self._store, self._evm, self._chain_id, self._version = store, evm, chain_id, version

    def web3_clientVersion(self) -> str:
        return self._version

    def eth_chainId(self) -> str:
        return hex(self._chain_id)

    def eth_gasPrice(self) -> str:
        return hex(BASE_FEE + TIP)

    def eth_maxPriorityFeePerGas(self) -> str:
        return hex(TIP)

    def eth_blockNumber(self) -> str:
        return hex(self._evm.head.number)

    def eth_getBalance(self, address: Address, block: At = None) -> str:
        return hex(self._accounts(block).get_balance(RawAddress(_bytes(address))))

    def eth_getTransactionCount(self, address: Address, block: At = None) -> str:
        return hex(self._accounts(block).get_nonce(RawAddress(_bytes(address))))

    def eth_getCode(self, address: Address, block: At = None) -> str:
        return f"0x{self._accounts(block).get_code(RawAddress(_bytes(address))).hex()}"

    def eth_getStorageAt(self, address: Address, slot: Quantity, block: At = None) -> str:
        return f"0x{self._accounts(block).get_storage(RawAddress(_bytes(address)), int(slot, 16)):064x}"

    def eth_call(self, call: CallFields, block: At = None) -> str:
        """In the block after the one named."""
        return f"0x{self._evm.call(call.simulated(), self._at(block)).hex()}"

    def eth_estimateGas(self, call: CallFields, block: At = None) -> str:
        return hex(self._evm.estimate(call.simulated(), self._at(block)))

    def eth_sendRawTransaction(self, raw: Data) -> str:
        return f"0x{self._evm.send(_bytes(raw)).hex()}"

    def codezero_fund(self, address: Address) -> str | None:
        """The hash of the faucet's transaction; null when the account has enough."""
        tx_hash = self._evm.fund(_bytes(address))
        return None if tx_hash is None else f"0x{tx_hash.hex()}"

    def eth_getBlockByNumber(self, block: At, full: bool = False) -> Result:
        """full: whole transactions instead of their hashes."""
        head = self._find(block)
        json = None if head is None else self._store.json("json FROM block WHERE number", head.number)
        if head is None or json is None or not full:
            return json
        tx = self._store.json("json FROM tx WHERE block", head.number)
        return msgspec.json.decode(json, type=dict[str, msgspec.Raw]) | {"transactions": [] if tx is None else [tx]}

    eth_getBlockByHash = eth_getBlockByNumber

    def eth_getTransactionByHash(self, tx_hash: Hash) -> Result:
        return self._store.json("json FROM tx WHERE hash", _bytes(tx_hash))

    def eth_getTransactionReceipt(self, tx_hash: Hash) -> Result:
        return self._store.json("receipt FROM tx WHERE hash", _bytes(tx_hash))

    def eth_getLogs(self, search: LogFilter) -> Result:
        first, last = self._range(search)
        addresses, *topics = [_choices(place) for place in (search.address, *search.topics)]
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
            if search.from_block or search.to_block:
                raise RpcRefusal(INVALID_PARAMS, "cannot specify both BlockHash and FromBlock/ToBlock")
            number = self._at(search.block_hash).number
            return number, number
        first, last = self._number(search.from_block), self._number(search.to_block)
        if first > last:
            raise RpcRefusal(INVALID_PARAMS, "invalid block range params")
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
        key = _bytes(block) if block is not None and len(block) == 66 else self._number(block)
        return self._store.block(key)

    def _number(self, block: At) -> int:
        """At most the head's and one."""
        if block == "earliest":
            return 0
        head = self._evm.head.number
        return min(int(block, 16), head + 1) if block is not None and block.startswith("0x") else head


def _params(method: Any) -> type[msgspec.Struct]:
    """The parameters of a method by position; more of them than it has is an error."""
    hints = typing.get_type_hints(method, include_extras=True)
    _, *parameters = inspect.signature(method).parameters.values()
    fields: list[Any] = [
        (each.name, hints[each.name]) + (() if each.default is each.empty else (each.default,)) for each in parameters
    ]
    return msgspec.defstruct("Params", fields, frozen=True, array_like=True, forbid_unknown_fields=True)


WRITING = {"eth_sendRawTransaction", "codezero_fund"}
METHODS = {name: _params(method) for name, method in vars(Methods).items() if not name.startswith("_")}


def _choices(place: str | Sequence[str | None] | None) -> list[bytes]:
    """Of the address or of one place in a topic filter; none means any."""
    choices = [place] if place is None or isinstance(place, str) else place
    return [] if None in choices else [_bytes(choice) for choice in choices if choice is not None]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])
