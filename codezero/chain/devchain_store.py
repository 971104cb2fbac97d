"""The embedded chain's SQLite file: blocks, transactions and events as JSON, and py-evm's state trie.

A block is one transaction, on disk (WAL, synchronous=FULL) when `add` returns. py-evm never deletes a trie node, so
every `COMPACT_EVERY` blocks those that only states older than the newest `STATES` use are dropped.
"""

import re
import sqlite3
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import rlp
from eth.abc import ComputationAPI, ReceiptAPI, SignedTransactionAPI
from eth.db.atomic import AtomicDB
from eth.db.backends.base import BaseDB
from eth_hash.auto import keccak

from codezero.errors import ChainError
from codezero.system.files import closed_on_failure

APPLICATION, VERSION = 0x63307A63, 2
"""Written into the file, so that neither a foreign database nor one of another version is taken for ours."""
COMPACT_EVERY = 4096
"""Blocks between two compactions, which take some 3 s and drop some 30 MB."""
STATES = 128
"""Newest blocks whose state can be read in any case, as in other nodes."""
HASHES = re.compile(rb"(?=\xa0(.{32}))", re.DOTALL)
"""How a node names its children, and an account its storage and code: as RLP of 32 bytes."""
NODES = "CREATE TABLE {}(hash BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
NAMES = {
    "account": "address", "block_number": "number", "bloom": "logsBloom", "coinbase": "miner",
    "receipt_root": "receiptsRoot", "transaction_root": "transactionsRoot", "uncles_hash": "sha3Uncles",
}  # fmt: skip
"""JSON's names for fields of py-evm, where they differ by more than camel case."""
WIDTHS = {"bloom": 512, "storage_keys": 64, "topics": 64}
"""Digits of numbers that are written in full."""
SCHEMA = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE block(
    number INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, timestamp INTEGER NOT NULL, mix_hash BLOB NOT NULL,
    state_root BLOB NOT NULL, json BLOB NOT NULL);
CREATE TABLE tx(block INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, json BLOB NOT NULL, receipt BLOB NOT NULL);
CREATE TABLE log(
    block INTEGER, position INTEGER, address BLOB NOT NULL, topic0 BLOB, topic1 BLOB, topic2 BLOB, topic3 BLOB,
    json BLOB NOT NULL, PRIMARY KEY(block, position)) WITHOUT ROWID;
CREATE INDEX log_by_address ON log(address, topic0, block);
CREATE INDEX log_by_topic ON log(topic0, block);
{NODES.format("node")};
PRAGMA application_id={APPLICATION};
PRAGMA user_version={VERSION}
"""

Json = dict[str, Any]


class Head(NamedTuple):
    """What the EVM needs of a block. timestamp: seconds since 1970."""

    number: int
    hash: bytes
    timestamp: int
    mix_hash: bytes
    state_root: bytes


class Mined(NamedTuple):
    """A block's transaction, and what came of it. price: wei per gas."""

    tx: SignedTransactionAPI
    receipt: ReceiptAPI
    done: ComputationAPI
    price: int


class NodeTable(BaseDB):
    """Trie nodes and contracts' code by their hash, for py-evm. Written within `Store.add` alone."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql

    def __getitem__(self, key: bytes) -> bytes:
        row = self._sql.execute("SELECT value FROM node WHERE hash=?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return row[0]

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._sql.execute("INSERT OR IGNORE INTO node VALUES(?,?)", (key, value))

    def __delitem__(self, key: bytes) -> None:
        raise NotImplementedError("py-evm deletes no node; Store drops old ones")

    def _exists(self, key: bytes) -> bool:
        return self._sql.execute("SELECT 1 FROM node WHERE hash=?", (key,)).fetchone() is not None


class Store:
    """One connection, for one thread. head: None in a new file. Raises ChainError for a file that is none of ours,
    which is left as it is, and sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with closed_on_failure(self._sql):
            self._open(path)

    def _open(self, path: Path) -> None:
        self.state_db = AtomicDB(NodeTable(self._sql))  # type: ignore[arg-type]
        application, version, tables = (
            self.row(query)[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if tables and application != APPLICATION:
            raise ChainError(f"{path} is not a chain of codezero; give another directory")
        if tables and version != VERSION:
            raise ChainError(f"{path} was written by another version ({version}); give another directory")
        self.row("PRAGMA journal_mode=WAL")
        self.row("PRAGMA synchronous=FULL")
        with self._sql:
            self.row("BEGIN IMMEDIATE")
            for statement in () if tables else SCHEMA.split(";"):
                self.row(statement)
        self.head = self.block(self.row("SELECT max(number) FROM block")[0])

    def close(self) -> None:
        self._sql.close()

    def row(self, query: str, *values: object) -> Any:
        """The first row; None where there is none."""
        return self._sql.execute(query, values).fetchone()

    def add(self, header: Any, mined: Mined | None, persist_state: Callable[[], object]) -> None:
        """The block and its state, or nothing; on return it is on disk. mined: None in the first block only."""
        head = Head(header.block_number, header.hash, header.timestamp, header.mix_hash, header.state_root)
        block: Json = _json(header) | {"hash": _json(header.hash), "size": _json(len(cast(Any, rlp).encode(header)))}
        block |= {"uncles": [], "withdrawals": [], "transactions": []}
        with self._sql:
            self.row("BEGIN IMMEDIATE")
            persist_state()
            if mined is not None:
                transaction, receipt = _mined_json(header, mined)
                block["transactions"] = [transaction["hash"]]
                tx_hash = bytes.fromhex(transaction["hash"][2:])
                self.row("INSERT INTO tx VALUES(?,?,?,?)", head.number, tx_hash, _packed(transaction), _packed(receipt))
                for position, (event, json) in enumerate(zip(mined.receipt.logs, receipt["logs"], strict=True)):
                    topics = (*(topic.to_bytes(32, "big") for topic in event.topics), None, None, None, None)[:4]
                    values = head.number, position, event.address, *topics, _packed(json)
                    self.row("INSERT INTO log VALUES(?,?,?,?,?,?,?,?)", *values)
            self.row("INSERT INTO block VALUES(?,?,?,?,?,?)", *head, _packed(block))
        self.head = head
        if head.number % COMPACT_EVERY == COMPACT_EVERY - 1:
            self.compact()

    def block(self, key: int | bytes | None) -> Head | None:
        """By number or hash; None where there is none."""
        column = "hash" if isinstance(key, bytes) else "number"
        row = self.row(f"SELECT number, hash, timestamp, mix_hash, state_root FROM block WHERE {column}=?", key)
        return None if row is None else Head(*row)

    def json(self, what: str, key: object) -> msgspec.Raw | None:
        """what: `json FROM block WHERE number`, or the like."""
        row = self.row(f"SELECT {what}=?", key)
        return None if row is None else msgspec.Raw(zlib.decompress(row[0]))

    def events(self, first: int, last: int, addresses: list[bytes], topics: list[list[bytes]]) -> Generator[bytes]:
        """JSON of the events of blocks first..last, in order. An empty list of choices matches anything."""
        where, bound = ["block BETWEEN ? AND ?"], cast("list[object]", [first, last])
        for column, choices in [("address", addresses)] + [(f"topic{at}", place) for at, place in enumerate(topics)]:
            where.append(f"{column} IN ({','.join('?' * len(choices))})" if choices else f"{column} IS NOT NULL")
            bound += choices
        query = f"SELECT json FROM log WHERE {' AND '.join(where)} ORDER BY block, position"
        for (json,) in self._sql.execute(query, bound):
            yield zlib.decompress(json)

    def compact(self) -> None:
        """Drop the nodes that only older states than the newest STATES use. All or nothing."""
        with self._sql:
            self.row("BEGIN IMMEDIATE")
            self.row(NODES.format("live"))
            roots = self._sql.execute("SELECT state_root FROM block ORDER BY number DESC LIMIT ?", (STATES,))
            self._keep([root for (root,) in roots.fetchall()])
            self.row("DROP TABLE node")
            self.row("ALTER TABLE live RENAME TO node")

    def _keep(self, pending: list[bytes]) -> None:
        """Copy nodes, and whatever they refer to: every hash in them, even one that is there by accident."""
        while pending:
            key = pending.pop()
            row = self.row("SELECT value FROM node WHERE hash=?", key)
            copied = row and self._sql.execute("INSERT OR IGNORE INTO live VALUES(?,?)", (key, row[0])).rowcount
            pending += HASHES.findall(row[0]) if copied else []


def _packed(json: Json) -> bytes:
    return zlib.compress(msgspec.json.encode(json))


def _mined_json(header: Any, mined: Mined) -> tuple[Json, Json]:
    tx, failed = mined.tx, mined.done.is_error
    kind, price, tx_hash = _json(tx.type_id or 0), _json(mined.price), _json(keccak(tx.encode()))
    place = {"blockHash": _json(header.hash), "blockNumber": _json(header.block_number), "transactionIndex": "0x0"}
    both = place | {"type": kind, "from": _json(tx.sender), "to": _json(tx.to) if tx.to else None}
    transaction = _json(getattr(tx, "_inner", tx)) | both
    transaction |= {"hash": tx_hash, "chainId": _json(tx.chain_id), "gasPrice": price, "input": transaction.pop("data")}
    transaction.setdefault("v", transaction.get("yParity"))
    return transaction, both | {
        "transactionHash": tx_hash,
        "status": "0x0" if failed else "0x1",
        "contractAddress": None if tx.to else _json(mined.done.msg.storage_address),
        "gasUsed": _json(header.gas_used),
        "cumulativeGasUsed": _json(header.gas_used),
        "effectiveGasPrice": price,
        "logsBloom": _json(header.bloom, WIDTHS["bloom"]),
        "logs": [
            _json(log) | place | {"transactionHash": tx_hash, "logIndex": hex(number), "removed": False}
            for number, log in enumerate(mined.receipt.logs)
        ],
    }


def _json(value: Any, width: int = 0) -> Any:
    """As JSON-RPC writes it. width: least digits of a number."""
    if isinstance(value, int):
        return f"{value:#0{width + 2}x}"
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, rlp.Serializable):
        fields: dict[str, Any] = cast(Any, value).as_dict()
        camel = {name: re.sub("_(.)", lambda letter: letter[1].upper(), name) for name in fields} | NAMES
        return {camel[name]: _json(field, WIDTHS.get(name, 0)) for name, field in fields.items()}
    return [_json(item, width) for item in value]
