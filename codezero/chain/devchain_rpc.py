"""The methods of the embedded chain's JSON-RPC, and what their parameters may be.

They are those that wallets and web3 libraries need, of the Ethereum JSON-RPC API (ethereum.github.io/execution-apis),
and `codezero_fund`. No account is unlocked and nothing can be cheated: there is no eth_sendTransaction, no signing, and
only a signed transaction changes anything. Every parameter has a pattern or a bound, checked by msgspec before a method
runs.
"""

import inspect
import typing
from typing import Annotated, Any

import msgspec
from eth_typing import Address as RawAddress
from msgspec import Meta

from codezero.chain.devchain import TIP, Evm, SimulatedCall
from codezero.chain.devchain_blocks import BASE_FEE, BLOCK_GAS, REFUSED, RpcRefusal
from codezero.chain.devchain_store import Head, Store

PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
OVER_LIMIT = -32005
LOG_BLOCKS, LOG_RESULTS, LOG_BYTES = 100_000, 10_000, 16 << 20
"""The widest search for events: in blocks, in results, in bytes of the answer."""
FEE_BLOCKS = 1024
MAX_TRANSACTION = 128 * 1024
"""Bytes of one signed transaction, as in other nodes."""
NOBODY = "0x" + "00" * 20

Address = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{40}\Z")]
Hash = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{64}\Z")]
Quantity = Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,64}\Z")]
Data = Annotated[str, Meta(pattern=r"^0x(?:[0-9a-fA-F]{2})*\Z", max_length=2 + 2 * MAX_TRANSACTION)]
Tag = Annotated[str, Meta(pattern=r"^(?:latest|pending|earliest|safe|finalized|0x[0-9a-fA-F]{1,64})\Z")]
Overrides = dict[str, msgspec.Raw] | None
"""Of state or block in a call. Not supported: they must be empty."""
Topics = list[Hash | Annotated[list[Hash | None], Meta(max_length=256)] | None]
Result = str | bool | dict[str, Any] | list[Any] | msgspec.Raw | None


class BlockId(msgspec.Struct, frozen=True, rename="camel"):
    """A block as EIP-1898 names it: exactly one of the two."""

    block_hash: Hash | None = None
    block_number: Quantity | None = None


At = Tag | BlockId | None


class AccessEntry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of an access list (EIP-2930)."""

    address: Address
    storage_keys: Annotated[list[Hash], Meta(max_length=1024)] = []


class CallFields(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction that is only tried. Prices are accepted and not charged; unknown fields are left unread."""

    sender: Address | None = msgspec.field(default=None, name="from")
    to: Address | None = None
    gas: Quantity | None = None
    value: Quantity | None = None
    data: Data | None = None
    input: Data | None = None
    access_list: Annotated[list[AccessEntry], Meta(max_length=1024)] | None = None
    authorization_list: msgspec.Raw | None = None


class LogFilter(msgspec.Struct, frozen=True, rename="camel"):
    """Which events: of a range of blocks or of one block, by address and by topic."""

    from_block: Tag | None = None
    to_block: Tag | None = None
    block_hash: Hash | None = None
    address: Address | Annotated[list[Address], Meta(max_length=256)] | None = None
    topics: Annotated[Topics, Meta(max_length=4)] | None = None


class BlockGas(msgspec.Struct, frozen=True, rename="camel"):
    """What a fee history reads of a block."""

    gas_used: str


class Methods:
    """A chain's methods by their names, for one thread. Those without parameters may be called from any."""

    def __init__(self, store: Store, evm: Evm, chain_id: int, version: str) -> None:
        self._store, self._evm, self._chain_id, self._version = store, evm, chain_id, version

    def web3_clientVersion(self) -> str:
        return self._version

    def net_version(self) -> str:
        return str(self._chain_id)

    def eth_chainId(self) -> str:
        return hex(self._chain_id)

    def eth_syncing(self) -> bool:
        return False

    def eth_accounts(self) -> list[Any]:
        return []

    def eth_gasPrice(self) -> str:
        return hex(BASE_FEE + TIP)

    def eth_maxPriorityFeePerGas(self) -> str:
        return hex(TIP)

    def eth_blockNumber(self) -> str:
        return hex(self._evm.head.number)

    def eth_getBalance(self, address: Address, block: At = None) -> str:
        return hex(self._evm.accounts(self._at(block)).get_balance(RawAddress(_bytes(address))))

    def eth_getTransactionCount(self, address: Address, block: At = None) -> str:
        return hex(self._evm.accounts(self._at(block)).get_nonce(RawAddress(_bytes(address))))

    def eth_getCode(self, address: Address, block: At = None) -> str:
        return f"0x{self._evm.accounts(self._at(block)).get_code(RawAddress(_bytes(address))).hex()}"

    def eth_getStorageAt(self, address: Address, slot: Quantity, block: At = None) -> str:
        value = self._evm.accounts(self._at(block)).get_storage(RawAddress(_bytes(address)), int(slot, 16))
        return f"0x{value:064x}"

    def eth_call(self, call: CallFields, block: At = None, state: Overrides = None, header: Overrides = None) -> str:
        simulated = _simulated(call, state, header)
        return f"0x{self._evm.call(simulated, self._at(block), block == 'pending').hex()}"

    def eth_estimateGas(
        self, call: CallFields, block: At = None, state: Overrides = None, header: Overrides = None
    ) -> str:
        """For the next block unless another is named, as it is mostly asked before a transaction."""
        simulated = _simulated(call, state, header)
        return hex(self._evm.estimate(simulated, self._at(block), block in (None, "pending", "latest")))

    def eth_sendRawTransaction(self, raw: Data) -> str:
        return f"0x{self._evm.send(_bytes(raw)).hex()}"

    def codezero_fund(self, address: Address) -> str | None:
        """The hash of the faucet's transaction; null when the account has enough."""
        tx_hash = self._evm.fund(_bytes(address))
        return None if tx_hash is None else f"0x{tx_hash.hex()}"

    def eth_getBlockByNumber(self, block: Tag, full: bool = False) -> Result:
        """full: whole transactions instead of their hashes."""
        return self._block(_number(block, self._evm.head.number), full)

    def eth_getBlockByHash(self, block: Hash, full: bool = False) -> Result:
        return self._block(self._store.number_of(_bytes(block)), full)

    def eth_getTransactionByHash(self, tx_hash: Hash) -> Result:
        row = self._store.transaction(_bytes(tx_hash))
        return None if row is None else msgspec.Raw(row[0])

    def eth_getTransactionReceipt(self, tx_hash: Hash) -> Result:
        row = self._store.transaction(_bytes(tx_hash))
        return None if row is None else msgspec.Raw(row[1])

    def eth_getLogs(self, search: LogFilter) -> Result:
        blocks = self._range(search)
        if blocks is None:
            return []
        addresses = [search.address] if isinstance(search.address, str) else search.address or []
        topics = [_choices(place) for place in search.topics or []]
        events: list[msgspec.Raw] = []
        size = 0
        for event in self._store.events(*blocks, [_bytes(address) for address in addresses], topics):
            size += len(event)
            if len(events) == LOG_RESULTS or size > LOG_BYTES:
                limit = f"query returned more than {LOG_RESULTS} results or {LOG_BYTES >> 20} MiB"
                raise RpcRefusal(OVER_LIMIT, f"{limit}; ask for fewer blocks")
            events.append(msgspec.Raw(event))
        return events

    def eth_feeHistory(
        self,
        blocks: Quantity | Annotated[int, Meta(ge=0, le=2**53)],
        newest: Tag,
        percentiles: Annotated[list[float], Meta(max_length=100)] | None = None,
    ) -> Result:
        head = self._evm.head.number
        last = min(_number(newest, head), head)
        count = min(blocks if isinstance(blocks, int) else int(blocks, 16), last + 1, FEE_BLOCKS)
        first = last - count + 1
        jsons = [self._store.block_json(number) or b"" for number in range(first, last + 1)]
        history: dict[str, Any] = {
            "oldestBlock": hex(first),
            "baseFeePerGas": [hex(BASE_FEE)] * (count + 1),
            "gasUsedRatio": [int(msgspec.json.decode(json, type=BlockGas).gas_used, 16) / BLOCK_GAS for json in jsons],
        }
        if percentiles is not None:
            history["reward"] = [[hex(TIP)] * len(percentiles)] * count
        return history

    def _at(self, block: At) -> Head:
        """Raises RpcRefusal for a block that is not there."""
        head = self._evm.head
        if isinstance(block, BlockId):
            if (block.block_hash is None) == (block.block_number is None):
                raise RpcRefusal(INVALID_PARAMS, "name a block by its hash or by its number")
            block = block.block_hash or block.block_number
        if isinstance(block, str) and len(block) == 66:
            number = self._store.number_of(_bytes(block))
        else:
            number = _number(block or "latest", head.number)
        at = head if number == head.number else None
        if number is not None and number < head.number:
            at = self._store.block(number)
        if at is None:
            raise RpcRefusal(REFUSED, "header not found")
        return at

    def _block(self, number: int | None, full: bool) -> Result:
        json = None if number is None or number > self._evm.head.number else self._store.block_json(number)
        if number is None or json is None or not full:
            return None if json is None else msgspec.Raw(json)
        tx = self._store.transaction_in(number)
        transactions = [] if tx is None else [msgspec.Raw(tx)]
        return msgspec.json.decode(json, type=dict[str, msgspec.Raw]) | {"transactions": transactions}

    def _range(self, search: LogFilter) -> tuple[int, int] | None:
        """First and last block; None when there is none of them yet. Raises RpcRefusal."""
        head = self._evm.head.number
        if search.block_hash is not None:
            if search.from_block is not None or search.to_block is not None:
                raise RpcRefusal(INVALID_PARAMS, "cannot specify both BlockHash and FromBlock/ToBlock")
            number = self._store.number_of(_bytes(search.block_hash))
            if number is None:
                raise RpcRefusal(REFUSED, "unknown block")
            return number, number
        first, last = _number(search.from_block or "latest", head), _number(search.to_block or "latest", head)
        if first > last:
            raise RpcRefusal(INVALID_PARAMS, "invalid block range params")
        last = min(last, head)
        if last - first >= LOG_BLOCKS:
            raise RpcRefusal(OVER_LIMIT, f"exceed maximum block range: {LOG_BLOCKS}")
        return None if first > head else (first, last)


def _params(method: Any) -> type[msgspec.Struct]:
    """The parameters of a method by position; more of them than it has is an error."""
    hints = typing.get_type_hints(method, include_extras=True)
    fields: list[Any] = [
        (name, hints[name]) if parameter.default is parameter.empty else (name, hints[name], parameter.default)
        for name, parameter in inspect.signature(method).parameters.items()
        if name != "self"
    ]
    return msgspec.defstruct("Params", fields, frozen=True, array_like=True, forbid_unknown_fields=True)


METHODS = {name: _params(method) for name, method in vars(Methods).items() if not name.startswith("_")}
"""The parameters of each method."""


def _simulated(call: CallFields, state: Overrides, header: Overrides) -> SimulatedCall:
    """Raises RpcRefusal."""
    if state or header or call.authorization_list is not None:
        raise RpcRefusal(INVALID_PARAMS, "overrides and authorization lists are not supported in calls")
    if call.data is not None and call.input is not None and call.data != call.input:
        raise RpcRefusal(INVALID_PARAMS, "both data and input are set and not equal; use input")
    return SimulatedCall(
        sender=_bytes(call.sender or NOBODY),
        to=_bytes(call.to or "0x"),
        value=int(call.value or "0x0", 16),
        data=_bytes(call.input or call.data or "0x"),
        gas=None if call.gas is None else int(call.gas, 16),
        accesses=tuple(
            (_bytes(entry.address), tuple(int(slot, 16) for slot in entry.storage_keys))
            for entry in call.access_list or []
        ),
    )


def _number(tag: str, head: int) -> int:
    if tag == "earliest":
        return 0
    return int(tag, 16) if tag.startswith("0x") else head


def _choices(place: str | list[str | None] | None) -> list[bytes]:
    """Of one place in a topic filter; none means any."""
    if place is None or isinstance(place, str):
        return [] if place is None else [_bytes(place)]
    return [] if None in place else [_bytes(topic) for topic in place if topic is not None]


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])
