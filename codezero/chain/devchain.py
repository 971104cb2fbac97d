"""The embedded chain: py-evm's Prague rules and state trie over a store, one transaction a block, mined at once."""

import secrets
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import rlp
from eth.abc import ComputationAPI, ReceiptAPI, SignedTransactionAPI
from eth.constants import BLANK_ROOT_HASH, ZERO_HASH32
from eth.db.account import AccountDB
from eth.db.trie import make_trie_root_and_nodes
from eth.vm.chain_context import ChainContext
from eth.vm.forks.london.transactions import UnsignedDynamicFeeTransaction
from eth.vm.forks.prague import PragueVM
from eth.vm.forks.prague.blocks import PragueBlockHeader
from eth.vm.spoof import SpoofTransaction
from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey
from eth_typing import Address, Hash32
from eth_utils.exceptions import ValidationError

from codezero.chain.devchain_state import BLOCK_GAS, CheckingExecutor, TimedState, decode, fail
from codezero.chain.devchain_store import Head, Json, Store
from codezero.errors import ChainError
from codezero.system.files import read_private, write_new

BASE_FEE, TIP = 1_000_000, 1_000_000
"""wei per gas, for ever, and what is suggested on top: a transaction of 100,000 gas costs 2e-7 ETH."""
ESTIMATE_WITHIN = 200
"""An estimate is at most 1/200 above the least gas that does."""
RICHES, FULL = 10**27, 10**19
"""wei: what the faucet owns at the start, and up to what it fills an account that has less than half of it."""
FUND_GAS = 100_000
"""More than a plain transfer needs, for accounts that are contracts."""
NAMES = {
    "account": "address", "block_number": "number", "bloom": "logsBloom", "coinbase": "miner",
    "receipt_root": "receiptsRoot", "transaction_root": "transactionsRoot", "uncles_hash": "sha3Uncles",
}  # fmt: skip
"""JSON's names for fields of py-evm, where they differ by more than camel case."""
WIDTHS = {"bloom": 512, "storage_keys": 64, "topics": 64}
"""Digits of numbers that are written in full."""


class SimulatedCall(NamedTuple):
    """A transaction that is only tried. value: wei; gas: None is as much as a block holds; to empty: a new contract."""

    sender: bytes
    to: bytes
    value: int
    data: bytes
    gas: int | None = None


class Evm:
    """Executes over a store, in one thread. A new chain begins here, with a new faucet key. Raises ChainError."""

    def __init__(self, store: Store, chain_id: int, faucet_key: Path) -> None:
        self._store, self._chain_id, self._faucet_key = store, chain_id, faucet_key
        if store.head is None:
            write_new(faucet_key, secrets.token_bytes(32).hex().encode())
            state = AccountDB(store.state_db, BLANK_ROOT_HASH)
            state.set_balance(Address(_key(faucet_key).public_key.to_canonical_address()), RICHES)
            self._add(_header(None).copy(state_root=state.make_state_root()), None, {}, state)

    @property
    def head(self) -> Head:
        assert self._store.head is not None
        return self._store.head

    def accounts(self, at: Head) -> AccountDB:
        """The state after a block. Reading raises EVMMissingData where it is kept no longer."""
        return AccountDB(self._store.state_db, Hash32(at.state_root))

    def call(self, call: SimulatedCall, at: Head) -> bytes:
        """What the code returns in the block after `at`. Raises RpcRefusal."""
        done = self._try(call, self._state(at, _header(at, base_fee=0)), min(call.gas or BLOCK_GAS, BLOCK_GAS))
        return bytes(done.output) if done.is_success else fail(done)

    def estimate(self, call: SimulatedCall, at: Head) -> int:
        """Gas that is enough, by bisection from the gas used: calls keep back more than they use. Raises RpcRefusal."""
        state, high = self._state(at, _header(at, base_fee=0)), min(call.gas or BLOCK_GAS, BLOCK_GAS)
        done = self._try(call, state, high)
        if done.is_error:
            fail(done)
        guess = min(high - done.get_gas_remaining() + cast(Any, done).data_floor_gas, high)
        low = guess - 1
        while (high - low) * ESTIMATE_WITHIN > high:
            low, high = (guess, high) if self._try(call, state, guess).is_error else (low, guess)
            guess = min((low + high) // 2, 2 * low)
        return high

    def send(self, raw: bytes) -> bytes:
        """Mine a signed transaction; its hash, also of one mined before. Raises RpcRefusal, ChainError."""
        tx_hash = keccak(raw)
        if self._store.json("json FROM tx WHERE hash", tx_hash) is not None:
            return tx_hash
        tx = decode(raw)
        header = _header(self.head)
        state = self._state(self.head, header)
        done = state.apply_transaction(tx)
        used = tx.gas - done.get_gas_remaining()
        used += cast(Any, done).data_floor_gas - CheckingExecutor.calculate_gas_refund(done, used)
        receipt = tx.make_receipt(b"" if done.is_error else b"\1", used, done.get_log_entries())
        header = header.copy(
            gas_used=used,
            state_root=state.make_state_root(),
            transaction_root=make_trie_root_and_nodes((tx,))[0],
            receipt_root=make_trie_root_and_nodes((receipt,))[0],
            bloom=receipt.bloom,
        )
        self._add(header, *_mined_json(header, tx, receipt, done, state.get_gas_price(tx)), state)
        return tx_hash

    def fund(self, address: bytes) -> bytes | None:
        """Fill an account up from the faucet; the transaction's hash, None when it has enough. Raises ChainError."""
        accounts, key = self.accounts(self.head), _key(self._faucet_key)
        have = accounts.get_balance(Address(address))
        if have * 2 >= FULL:
            return None
        nonce = accounts.get_nonce(Address(key.public_key.to_canonical_address()))
        unsigned = self._unsigned(nonce, BASE_FEE + TIP, FUND_GAS, address, FULL - have, b"")
        return self.send(unsigned.as_signed_transaction(key).encode())

    def _try(self, call: SimulatedCall, state: TimedState, gas: int) -> ComputationAPI:
        """Changes nothing, and costs nothing with a base fee of 0."""
        before, sender = state.snapshot(), Address(call.sender)
        unsigned = self._unsigned(state.get_nonce(sender), 0, gas, call.to, call.value, call.data)
        try:
            return state.apply_transaction(cast(Any, SpoofTransaction(unsigned, from_=sender)))
        finally:
            state.revert(before)

    def _unsigned(self, nonce: int, fee: int, gas: int, to: bytes, value: int, data: bytes) -> Any:
        """fee: wei per gas."""
        fields = self._chain_id, nonce, min(fee, TIP), fee, gas, to, value, data, ()
        return cast(Any, UnsignedDynamicFeeTransaction)(*fields)

    def _state(self, at: Head, header: Any) -> TimedState:
        """To run code on the state after `at`, as in a block with this header."""
        numbers = range(at.number, -1, -1)
        ancestors = (Hash32(block.hash) for number in numbers if (block := self._store.block(number)))
        context = PragueVM.create_execution_context(header, ancestors, ChainContext(self._chain_id))
        return TimedState(self._store.state_db, context, at.state_root)

    def _add(self, header: Any, transaction: Json | None, receipt: Json, state: AccountDB | TimedState) -> None:
        block = _json(header) | {
            "hash": _json(header.hash),
            "size": _json(len(cast(Any, rlp).encode(header))),
            "uncles": [],
            "withdrawals": [],
            "transactions": [] if transaction is None else [transaction["hash"]],
        }
        head = Head(header.block_number, header.hash, header.timestamp, header.mix_hash, header.state_root)
        self._store.add(head, block, transaction, receipt, state.persist)


def _key(path: Path) -> PrivateKey:
    """The faucet's. Raises ChainError."""
    mend = "put the faucet's key back, or begin a new chain in another directory"
    if not path.exists():
        raise ChainError(f"{path} is missing: {mend}")
    try:
        return PrivateKey(bytes.fromhex(read_private(path, 128).decode()))
    except (ValueError, ValidationError) as error:
        raise ChainError(f"{path} does not hold a key: {mend}") from error


def _header(parent: Head | None, base_fee: int = BASE_FEE) -> Any:
    """Of the block after `parent`. Any: py-evm declares the class abstract and does not type its fields."""
    now = int(time.time())
    return cast(Any, PragueBlockHeader)(
        difficulty=0,
        block_number=0 if parent is None else parent.number + 1,
        gas_limit=BLOCK_GAS,
        timestamp=now if parent is None else max(now, parent.timestamp),
        parent_hash=ZERO_HASH32 if parent is None else parent.hash,
        mix_hash=secrets.token_bytes(32),
        nonce=bytes(8),
        base_fee_per_gas=base_fee,
    )


def _mined_json(
    header: Any, tx: SignedTransactionAPI, receipt: ReceiptAPI, done: ComputationAPI, price: int
) -> tuple[Json, Json]:
    """The transaction and its receipt. price: wei per gas."""
    kind, tx_hash = _json(tx.type_id or 0), _json(keccak(tx.encode()))
    place = {"blockHash": _json(header.hash), "blockNumber": _json(header.block_number), "transactionIndex": "0x0"}
    both = place | {"type": kind, "from": _json(tx.sender), "to": _json(tx.to) if tx.to else None}
    transaction = _json(getattr(tx, "_inner", tx)) | both
    transaction |= {"hash": tx_hash, "chainId": _json(tx.chain_id), "gasPrice": _json(price)}
    transaction["input"] = transaction.pop("data")
    transaction.setdefault("v", transaction.get("yParity"))
    logs = [
        _json(log) | place | {"transactionHash": tx_hash, "logIndex": hex(number), "removed": False}
        for number, log in enumerate(receipt.logs)
    ]
    return transaction, both | {
        "transactionHash": tx_hash,
        "status": "0x0" if done.is_error else "0x1",
        "contractAddress": None if tx.to else _json(done.msg.storage_address),
        "gasUsed": _json(header.gas_used),
        "cumulativeGasUsed": _json(header.gas_used),
        "effectiveGasPrice": _json(price),
        "logsBloom": _json(header.bloom, WIDTHS["bloom"]),
        "logs": logs,
    }


def _json(value: Any, width: int = 0) -> Any:
    """As JSON-RPC writes it. width: least digits of a number."""
    if isinstance(value, int):
        return f"{value:#0{width + 2}x}"
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, rlp.Serializable):
        fields: dict[str, Any] = cast(Any, value).as_dict()
        return {NAMES.get(name, _camel(name)): _json(field, WIDTHS.get(name, 0)) for name, field in fields.items()}
    return [_json(item, width) for item in value]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.title, rest))
