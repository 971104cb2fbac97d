"""A mined transaction as a block: its hashes, and the JSON of block, transaction, receipt and events as clients get it.

Headers, transaction and receipt roots and blooms are Ethereum's; only the state root is our own (see `devchain_state`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import rlp
from eth.abc import SignedTransactionAPI
from eth.constants import ZERO_ADDRESS
from eth.db.trie import make_trie_root_and_nodes
from eth.vm.forks.prague.blocks import PragueBlockHeader
from eth_hash.auto import keccak
from eth_typing import BlockNumber, Hash32

from codezero.chain.devchain_rules import BASE_FEE, BLOCK_GAS
from codezero.chain.devchain_store import Account, Block, Changes, Event, Head
from codezero.chain.devchain_wire import hexed, quantity

Log = tuple[bytes, Sequence[int], bytes]
"""Address, topics, data: as py-evm gives them."""


@dataclass(frozen=True, slots=True)
class Executed:
    """What a transaction did. price: wei per gas; created: the new contract's address."""

    succeeded: bool
    gas_used: int
    price: int
    created: bytes | None
    logs: tuple[Log, ...]
    changes: Changes


def first_block(timestamp: int, rich: bytes, balance: int, mix_hash: bytes) -> Block:
    """The block before all transactions, in which `rich` owns `balance` wei."""
    changes = Changes({rich: Account(0, balance, keccak(b""))}, {}, frozenset(), {})
    header = _header(None, timestamp, mix_hash, state_root=_state_root(b"", changes))
    return Block(_head(header), _encode(_block_json(header, len(_rlp(header)), None)), changes)


def mined_block(parent: Head, timestamp: int, mix_hash: bytes, tx: SignedTransactionAPI, done: Executed) -> Block:
    """The block after `parent` with the one transaction."""
    receipt = tx.make_receipt(b"\1" if done.succeeded else b"", done.gas_used, done.logs)  # type: ignore[arg-type]
    header = _header(
        parent,
        timestamp,
        mix_hash,
        state_root=_state_root(parent.state_root, done.changes),
        transaction_root=make_trie_root_and_nodes((tx,))[0],
        receipt_root=make_trie_root_and_nodes((receipt,))[0],
        bloom=receipt.bloom,
        gas_used=done.gas_used,
    )
    raw = tx.encode()
    tx_hash = keccak(raw)
    place = {
        "blockHash": hexed(header.hash),
        "blockNumber": quantity(header.block_number),
        "transactionIndex": "0x0",
    }
    logs = [_log_json(number, log, tx_hash, place) for number, log in enumerate(done.logs)]
    events = tuple(
        Event(log[0], tuple(topic.to_bytes(32, "big") for topic in log[1]), _encode(json))
        for log, json in zip(done.logs, logs, strict=True)
    )
    return Block(
        _head(header),
        _encode(_block_json(header, len(_rlp(header)) + len(raw), tx_hash)),
        done.changes,
        tx_hash,
        _encode(place | _transaction_json(tx, tx_hash, done.price)),
        _encode(place | _receipt_json(tx, tx_hash, done, receipt.bloom) | {"logs": logs}),
        events,
    )


def _rlp(what: object) -> bytes:
    return cast(Any, rlp).encode(what)  # rlp carries no types


def _header(parent: Head | None, timestamp: int, mix_hash: bytes, **fields: Any) -> Any:
    """A PragueBlockHeader, whose class py-evm declares abstract and whose later fields it does not type."""
    return cast(Any, PragueBlockHeader)(
        difficulty=0,
        block_number=BlockNumber(0 if parent is None else parent.number + 1),
        gas_limit=BLOCK_GAS,
        timestamp=timestamp,
        coinbase=ZERO_ADDRESS,
        parent_hash=Hash32(b"\0" * 32 if parent is None else parent.hash),
        mix_hash=Hash32(mix_hash),
        nonce=b"\0" * 8,
        base_fee_per_gas=BASE_FEE,
        **fields,
    )


def _head(header: Any) -> Head:
    return Head(header.block_number, header.hash, header.timestamp, header.mix_hash, header.state_root)


def _state_root(parent: bytes, changes: Changes) -> Hash32:
    accounts = [
        [address, b"" if one is None else [one.nonce, one.balance, one.code_hash]]
        for address, one in sorted(changes.accounts.items())
    ]
    storage = [[address, slot, value] for (address, slot), value in sorted(changes.storage.items())]
    return Hash32(keccak(_rlp([parent, accounts, sorted(changes.wiped), storage])))


def _block_json(header: Any, size: int, tx_hash: bytes | None) -> dict[str, Any]:
    return {
        "number": quantity(header.block_number),
        "hash": hexed(header.hash),
        "parentHash": hexed(header.parent_hash),
        "timestamp": quantity(header.timestamp),
        "gasLimit": quantity(header.gas_limit),
        "gasUsed": quantity(header.gas_used),
        "baseFeePerGas": quantity(header.base_fee_per_gas),
        "stateRoot": hexed(header.state_root),
        "transactionsRoot": hexed(header.transaction_root),
        "receiptsRoot": hexed(header.receipt_root),
        "logsBloom": _bloom(header.bloom),
        "miner": hexed(header.coinbase),
        "difficulty": "0x0",
        "totalDifficulty": "0x0",
        "extraData": hexed(header.extra_data),
        "nonce": hexed(header.nonce),
        "mixHash": hexed(header.mix_hash),
        "sha3Uncles": hexed(header.uncles_hash),
        "withdrawalsRoot": hexed(header.withdrawals_root),
        "blobGasUsed": "0x0",
        "excessBlobGas": "0x0",
        "parentBeaconBlockRoot": hexed(header.parent_beacon_block_root),
        "requestsHash": hexed(header.requests_hash),
        "size": quantity(size),
        "uncles": [],
        "withdrawals": [],
        "transactions": [] if tx_hash is None else [hexed(tx_hash)],
    }


def _transaction_json(tx: SignedTransactionAPI, tx_hash: bytes, price: int) -> dict[str, Any]:
    kind = tx.type_id or 0
    told: dict[str, Any] = {
        "hash": hexed(tx_hash),
        "type": quantity(kind),
        "chainId": quantity(tx.chain_id or 0),
        "nonce": quantity(tx.nonce),
        "from": hexed(tx.sender),
        "to": hexed(tx.to) if tx.to else None,
        "value": quantity(tx.value),
        "gas": quantity(tx.gas),
        "gasPrice": quantity(price),
        "input": hexed(tx.data),
        "r": quantity(tx.r),
        "s": quantity(tx.s),
    }
    if kind == 0:
        return told | {"v": quantity(tx.v)}  # type: ignore[attr-defined]
    told |= {"v": quantity(tx.y_parity), "yParity": quantity(tx.y_parity)}
    told["accessList"] = [
        {"address": hexed(address), "storageKeys": [f"0x{slot:064x}" for slot in slots]}
        for address, slots in tx.access_list
    ]
    if kind >= 2:
        told["maxFeePerGas"] = quantity(tx.max_fee_per_gas)
        told["maxPriorityFeePerGas"] = quantity(tx.max_priority_fee_per_gas)
    if kind == 4:
        told["authorizationList"] = [
            {
                "chainId": quantity(one.chain_id),
                "address": hexed(one.address),
                "nonce": quantity(one.nonce),
                "yParity": quantity(one.y_parity),
                "r": quantity(one.r),
                "s": quantity(one.s),
            }
            for one in tx.authorization_list
        ]
    return told


def _receipt_json(tx: SignedTransactionAPI, tx_hash: bytes, done: Executed, bloom: int) -> dict[str, Any]:
    return {
        "transactionHash": hexed(tx_hash),
        "type": quantity(tx.type_id or 0),
        "status": quantity(int(done.succeeded)),
        "from": hexed(tx.sender),
        "to": hexed(tx.to) if tx.to else None,
        "contractAddress": None if done.created is None else hexed(done.created),
        "gasUsed": quantity(done.gas_used),
        "cumulativeGasUsed": quantity(done.gas_used),
        "effectiveGasPrice": quantity(done.price),
        "logsBloom": _bloom(bloom),
    }


def _log_json(number: int, log: Log, tx_hash: bytes, place: dict[str, str]) -> dict[str, Any]:
    address, topics, data = log
    return place | {
        "address": hexed(address),
        "topics": [f"0x{topic:064x}" for topic in topics],
        "data": hexed(data),
        "transactionHash": hexed(tx_hash),
        "logIndex": quantity(number),
        "removed": False,
    }


def _bloom(bloom: int) -> str:
    return f"0x{bloom:0512x}"


def _encode(told: dict[str, Any]) -> bytes:
    return msgspec.json.encode(told)
