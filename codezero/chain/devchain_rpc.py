"""The methods of the embedded chain's JSON-RPC.

Those that wallets and web3 libraries need, and `codezero_fund`. No account is unlocked and nothing can be cheated:
there is no eth_sendTransaction, no signing, and only a signed transaction changes anything.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from codezero.chain import devchain_wire as wire
from codezero.chain.devchain_rules import BASE_FEE, BLOCK_GAS, TIP
from codezero.chain.devchain_store import Head, Store
from codezero.chain.devchain_wire import Attempt, RpcRefusal, hexed, quantity, to_bytes, to_int

if TYPE_CHECKING:
    from codezero.chain.devchain_engine import Engine

LOG_BLOCKS, LOG_RESULTS, LOG_BYTES = 100_000, 10_000, 16 << 20
"""The widest search for events: in blocks, in results, in bytes of the answer."""
FEE_BLOCKS = 1024
Result = str | bool | dict[str, Any] | list[Any] | msgspec.Raw | None
NOBODY = "0x" + "00" * 20


class GasUsed(msgspec.Struct, frozen=True, rename="camel"):
    """What a fee history reads of a block."""

    gas_used: str


class Node:
    """A chain's methods, for one thread. py-evm is loaded when a method first needs it.

    It is loaded as `devchain_engine` only, here and by who loads it ahead: its packages import each other in circles,
    and two threads that enter these by two doors end in a deadlock, which Python breaks by failing the import for good.
    """

    def __init__(self, store: Store, chain_id: int, version: str, faucet_key: Path) -> None:
        self.chain_id, self.version = chain_id, version
        self._store, self._faucet_key = store, faucet_key
        self._engine: Engine | None = None

    def engine(self) -> "Engine":
        """Raises ChainError."""
        if self._engine is None:
            from codezero.chain.devchain_engine import Engine  # takes seconds

            self._engine = Engine(self._store, self.chain_id, self._faucet_key)
        return self._engine

    def stop(self) -> None:
        """From any thread: end what runs soon, refuse what comes."""
        if self._engine is not None:
            self._engine.evm.stop()

    # -- constants

    def client_version(self, _: wire.Nothing) -> str:
        return self.version

    def own_id(self, _: wire.Nothing) -> str:
        return quantity(self.chain_id)

    def net_version(self, _: wire.Nothing) -> str:
        return str(self.chain_id)

    def syncing(self, _: wire.Nothing) -> bool:
        return False

    def accounts(self, _: wire.Nothing) -> list[Any]:
        return []

    def gas_price(self, _: wire.Nothing) -> str:
        return quantity(BASE_FEE + TIP)

    def priority_fee(self, _: wire.Nothing) -> str:
        return quantity(TIP)

    # -- state

    def block_number(self, _: wire.Nothing) -> str:
        return quantity(self._head().number)

    def balance(self, asked: wire.OfAccount) -> str:
        account = self._store.account(to_bytes(asked.address), self._at(asked.block).number)
        return quantity(0 if account is None else account.balance)

    def transaction_count(self, asked: wire.OfAccount) -> str:
        account = self._store.account(to_bytes(asked.address), self._at(asked.block).number)
        return quantity(0 if account is None else account.nonce)

    def code(self, asked: wire.OfAccount) -> str:
        account = self._store.account(to_bytes(asked.address), self._at(asked.block).number)
        return hexed(b"" if account is None else self._store.code(account.code_hash))

    def storage_at(self, asked: wire.OfSlot) -> str:
        number = self._at(asked.block).number
        return f"0x{self._store.storage(to_bytes(asked.address), to_int(asked.slot), number):064x}"

    # -- running code

    def call(self, asked: wire.Trial) -> str:
        attempt, at = self._attempt(asked), self._at(asked.block)
        return hexed(self.engine().evm.call(attempt, at, asked.block == "pending"))

    def estimate_gas(self, asked: wire.Trial) -> str:
        """For the next block unless another is named, as it is mostly asked before a transaction."""
        attempt, at = self._attempt(asked), self._at(asked.block)
        return quantity(self.engine().evm.estimate(attempt, at, asked.block in (None, "pending", "latest")))

    def send_raw_transaction(self, asked: wire.Signed) -> str:
        return hexed(self.engine().evm.send(to_bytes(asked.raw)))

    def fund(self, asked: wire.Fund) -> str | None:
        """The hash of the faucet's transaction; null when the account has enough."""
        self._head()
        tx_hash = self.engine().fund(to_bytes(asked.address))
        return None if tx_hash is None else hexed(tx_hash)

    # -- history

    def block_by_number(self, asked: wire.OfBlock) -> Result:
        head = self._head().number
        number = _number(asked.block, head)
        return self._block(number, asked.full) if number <= head else None

    def block_by_hash(self, asked: wire.OfBlockHash) -> Result:
        number = self._store.number_of(to_bytes(asked.hash))
        return None if number is None else self._block(number, asked.full)

    def transaction(self, asked: wire.OfTransaction) -> Result:
        found = self._store.transaction(to_bytes(asked.hash))
        return None if found is None else msgspec.Raw(found[0])

    def receipt(self, asked: wire.OfTransaction) -> Result:
        found = self._store.transaction(to_bytes(asked.hash))
        return None if found is None else msgspec.Raw(found[1])

    def logs(self, asked: wire.Logs) -> Result:
        search = asked.filter
        blocks = self._range(search)
        if blocks is None:
            return []
        addresses = [search.address] if isinstance(search.address, str) else search.address or []
        topics = [_choices(place) for place in search.topics or []]
        found: list[msgspec.Raw] = []
        size = 0
        for event in self._store.events(*blocks, [to_bytes(one) for one in addresses], topics):
            size += len(event)
            if len(found) == LOG_RESULTS or size > LOG_BYTES:
                limit = f"query returned more than {LOG_RESULTS} results or {LOG_BYTES >> 20} MiB"
                raise RpcRefusal(wire.OVER_LIMIT, f"{limit}; ask for fewer blocks")
            found.append(msgspec.Raw(event))
        return found

    def fee_history(self, asked: wire.FeeHistory) -> Result:
        head = self._head().number
        newest = min(_number(asked.newest, head), head)
        wanted = asked.blocks if isinstance(asked.blocks, int) else to_int(asked.blocks)
        count = min(wanted, newest + 1, FEE_BLOCKS)
        first = newest - count + 1
        jsons = [self._store.block_json(number) or b"" for number in range(first, newest + 1)]
        told: dict[str, Any] = {
            "oldestBlock": quantity(first),
            "baseFeePerGas": [quantity(BASE_FEE)] * (count + 1),
            "gasUsedRatio": [to_int(msgspec.json.decode(json, type=GasUsed).gas_used) / BLOCK_GAS for json in jsons],
        }
        if asked.percentiles is not None:
            told["reward"] = [[quantity(TIP)] * len(asked.percentiles)] * count
        return told

    def _head(self) -> Head:
        if self._store.head is None:
            self.engine()  # makes the first block
        if self._store.head is None:
            raise RuntimeError("the chain has no first block")
        return self._store.head

    def _at(self, block: wire.Block) -> Head:
        """Raises RpcRefusal for a block that is not there."""
        head = self._head()
        if isinstance(block, wire.BlockRef):
            if (block.block_hash is None) == (block.block_number is None):
                raise RpcRefusal(wire.INVALID_PARAMS, "name a block by its hash or by its number")
            block = block.block_hash or block.block_number
        if isinstance(block, str) and len(block) == 66:
            number = self._store.number_of(to_bytes(block))
        else:
            number = _number(block or "latest", head.number)
        found = head if number == head.number else None
        if number is not None and number < head.number:
            found = self._store.block(number)
        if found is None:
            raise RpcRefusal(wire.REFUSED, "header not found")
        return found

    def _block(self, number: int, full: bool) -> Result:
        json = self._store.block_json(number)
        if json is None or not full:
            return None if json is None else msgspec.Raw(json)
        told: dict[str, Any] = msgspec.json.decode(json, type=dict[str, msgspec.Raw])
        tx = self._store.transaction_in(number)
        return told | {"transactions": [] if tx is None else [msgspec.Raw(tx)]}

    def _range(self, search: wire.LogFilter) -> tuple[int, int] | None:
        """First and last block; None when there is none of them yet. Raises RpcRefusal."""
        head = self._head().number
        if search.block_hash is not None:
            if search.from_block is not None or search.to_block is not None:
                raise RpcRefusal(wire.INVALID_PARAMS, "cannot specify both BlockHash and FromBlock/ToBlock")
            number = self._store.number_of(to_bytes(search.block_hash))
            if number is None:
                raise RpcRefusal(wire.REFUSED, "unknown block")
            return number, number
        first, last = _number(search.from_block or "latest", head), _number(search.to_block or "latest", head)
        if first > last:
            raise RpcRefusal(wire.INVALID_PARAMS, "invalid block range params")
        last = min(last, head)
        if last - first >= LOG_BLOCKS:
            raise RpcRefusal(wire.OVER_LIMIT, f"exceed maximum block range: {LOG_BLOCKS}")
        return None if first > head else (first, last)

    def _attempt(self, asked: wire.Trial) -> Attempt:
        call = asked.call
        if asked.state_override or asked.block_override or call.authorization_list is not None:
            raise RpcRefusal(wire.INVALID_PARAMS, "overrides and authorization lists are not supported in calls")
        if call.data is not None and call.input is not None and call.data != call.input:
            raise RpcRefusal(wire.INVALID_PARAMS, "both data and input are set and not equal; use input")
        return Attempt(
            sender=to_bytes(call.sender or NOBODY),
            to=to_bytes(call.to or "0x"),
            value=to_int(call.value or "0x0"),
            data=to_bytes(call.input or call.data or "0x"),
            gas=None if call.gas is None else to_int(call.gas),
            accesses=tuple(
                (to_bytes(entry.address), tuple(to_int(slot) for slot in entry.storage_keys))
                for entry in call.access_list or []
            ),
        )


def _number(tag: str, head: int) -> int:
    if tag == "earliest":
        return 0
    return to_int(tag) if tag.startswith("0x") else head


def _choices(place: str | list[str | None] | None) -> list[bytes]:
    """Of one place in a topic filter; none means any."""
    if place is None or isinstance(place, str):
        return [] if place is None else [to_bytes(place)]
    return [] if None in place else [to_bytes(topic) for topic in place if topic is not None]


@dataclass(frozen=True, slots=True)
class Method:
    """constant: answered without waiting for the thread that owns the store."""

    params: type[wire.Params]
    run: Callable[[Node, Any], Result]
    constant: bool = False


METHODS = {
    "web3_clientVersion": Method(wire.Nothing, Node.client_version, constant=True),
    "net_version": Method(wire.Nothing, Node.net_version, constant=True),
    "eth_chainId": Method(wire.Nothing, Node.own_id, constant=True),
    "eth_syncing": Method(wire.Nothing, Node.syncing, constant=True),
    "eth_accounts": Method(wire.Nothing, Node.accounts, constant=True),
    "eth_gasPrice": Method(wire.Nothing, Node.gas_price, constant=True),
    "eth_maxPriorityFeePerGas": Method(wire.Nothing, Node.priority_fee, constant=True),
    "eth_blockNumber": Method(wire.Nothing, Node.block_number),
    "eth_getBalance": Method(wire.OfAccount, Node.balance),
    "eth_getTransactionCount": Method(wire.OfAccount, Node.transaction_count),
    "eth_getCode": Method(wire.OfAccount, Node.code),
    "eth_getStorageAt": Method(wire.OfSlot, Node.storage_at),
    "eth_call": Method(wire.Trial, Node.call),
    "eth_estimateGas": Method(wire.Trial, Node.estimate_gas),
    "eth_sendRawTransaction": Method(wire.Signed, Node.send_raw_transaction),
    "eth_getBlockByNumber": Method(wire.OfBlock, Node.block_by_number),
    "eth_getBlockByHash": Method(wire.OfBlockHash, Node.block_by_hash),
    "eth_getTransactionByHash": Method(wire.OfTransaction, Node.transaction),
    "eth_getTransactionReceipt": Method(wire.OfTransaction, Node.receipt),
    "eth_getLogs": Method(wire.Logs, Node.logs),
    "eth_feeHistory": Method(wire.FeeHistory, Node.fee_history),
    "codezero_fund": Method(wire.Fund, Node.fund),
}
