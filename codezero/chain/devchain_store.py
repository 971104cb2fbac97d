"""The embedded chain's SQLite file: accounts and slots with the block since when they hold, transactions, events.

Only what changed is written, so a block costs what it changed and the state at any older block can still be read. A
block is one SQLite transaction. WAL with synchronous=FULL: what `add` returned from survives kill -9 and power loss.
"""

import contextlib
import sqlite3
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from codezero.errors import ChainError

APPLICATION, VERSION = 0x63307A63, 1
"""Written into the file, so that neither a foreign database nor one of another version is taken for ours."""

SCHEMA = """
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
CREATE TABLE account(address BLOB, block INTEGER, nonce INTEGER, balance BLOB, code_hash BLOB,
    PRIMARY KEY(address, block)) WITHOUT ROWID;
CREATE TABLE storage(address BLOB, slot BLOB, block INTEGER, value BLOB NOT NULL,
    PRIMARY KEY(address, slot, block)) WITHOUT ROWID;
CREATE TABLE code(hash BLOB PRIMARY KEY, code BLOB NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Account:
    """nonce; balance in wei; hash of the code."""

    nonce: int
    balance: int
    code_hash: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """What a transaction left changed. None: the account is gone. `wiped`: accounts whose older storage is gone."""

    accounts: dict[bytes, Account | None]
    storage: dict[tuple[bytes, int], int]
    wiped: frozenset[bytes]
    codes: dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Head:
    """What the EVM needs of a block. timestamp: seconds since 1970."""

    number: int
    hash: bytes
    timestamp: int
    mix_hash: bytes
    state_root: bytes


@dataclass(frozen=True, slots=True)
class Event:
    """A log: up to four topics, and its JSON as clients get it."""

    address: bytes
    topics: tuple[bytes, ...]
    json: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """A block with everything that `add` writes. tx_hash is None in the first block only."""

    head: Head
    json: bytes
    changes: Changes
    tx_hash: bytes | None = None
    tx_json: bytes = b""
    receipt: bytes = b""
    events: tuple[Event, ...] = ()


class Store:
    """One connection, for one thread. Raises ChainError where SQLite fails."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._translated():
            self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._sql.execute("PRAGMA trusted_schema=OFF")
            tables = self._check()
            self._sql.execute("PRAGMA journal_mode=WAL")
            self._sql.execute("PRAGMA synchronous=FULL")
            if not tables:
                self._create()
        self.head = self._newest()
        """None in a new file."""

    def close(self) -> None:
        self._sql.close()

    def meta(self, key: str) -> str | None:
        row = self._one("SELECT value FROM meta WHERE key=?", key)
        return None if row is None else row[0]

    def set_meta(self, key: str, value: str) -> None:
        with self._translated(), self._transaction():
            self._sql.execute("INSERT INTO meta VALUES(?,?)", (key, value))

    def add(self, block: Block) -> None:
        """All of it or nothing; on return it is on disk."""
        with self._translated(), self._transaction():
            run = self._sql.execute
            self._write_changes(block.head.number, block.changes)
            head = block.head
            row = (head.number, head.hash, head.timestamp, head.mix_hash, head.state_root, _packed(block.json))
            run("INSERT INTO block VALUES(?,?,?,?,?,?)", row)
            if block.tx_hash is not None:
                told = (_packed(block.tx_json), _packed(block.receipt))
                run("INSERT INTO tx VALUES(?,?,?,?)", (head.number, block.tx_hash, *told))
            for position, event in enumerate(block.events):
                topics = (*event.topics, None, None, None, None)[:4]
                run(
                    "INSERT INTO log VALUES(?,?,?,?,?,?,?,?)",
                    (head.number, position, event.address, *topics, _packed(event.json)),
                )
        self.head = block.head

    def account(self, address: bytes, block: int) -> Account | None:
        row = self._one(
            "SELECT nonce, balance, code_hash FROM account WHERE address=? AND block<=? ORDER BY block DESC LIMIT 1",
            address,
            block,
        )
        return None if row is None or row[0] is None else Account(row[0], int.from_bytes(row[1], "big"), row[2])

    def storage(self, address: bytes, slot: int, block: int) -> int:
        row = self._one(
            "SELECT value FROM storage WHERE address=? AND slot=? AND block<=? ORDER BY block DESC LIMIT 1",
            address,
            slot.to_bytes(32, "big"),
            block,
        )
        return 0 if row is None else int.from_bytes(row[0], "big")

    def code(self, code_hash: bytes) -> bytes:
        """Empty for a hash that names no code here."""
        row = self._one("SELECT code FROM code WHERE hash=?", code_hash)
        return b"" if row is None else row[0]

    def block(self, number: int) -> Head | None:
        row = self._one("SELECT number, hash, timestamp, mix_hash, state_root FROM block WHERE number=?", number)
        return None if row is None else Head(*row)

    def number_of(self, block_hash: bytes) -> int | None:
        row = self._one("SELECT number FROM block WHERE hash=?", block_hash)
        return None if row is None else row[0]

    def block_json(self, number: int) -> bytes | None:
        row = self._one("SELECT json FROM block WHERE number=?", number)
        return None if row is None else zlib.decompress(row[0])

    def transaction(self, tx_hash: bytes) -> tuple[bytes, bytes] | None:
        """The transaction and its receipt, both as JSON."""
        row = self._one("SELECT json, receipt FROM tx WHERE hash=?", tx_hash)
        return None if row is None else (zlib.decompress(row[0]), zlib.decompress(row[1]))

    def transaction_in(self, block: int) -> bytes | None:
        row = self._one("SELECT json FROM tx WHERE block=?", block)
        return None if row is None else zlib.decompress(row[0])

    def events(self, first: int, last: int, addresses: list[bytes], topics: list[list[bytes]]) -> Generator[bytes]:
        """JSON of the events of blocks first..last, in order. An empty list of choices matches anything."""
        where, bound = ["block BETWEEN ? AND ?"], cast("list[object]", [first, last])
        for column, choices in [("address", addresses)] + [(f"topic{at}", one) for at, one in enumerate(topics)]:
            if choices:
                where.append(f"{column} IN ({','.join('?' * len(choices))})")
                bound += choices
            elif column != "address":
                where.append(f"{column} IS NOT NULL")
        query = f"SELECT json FROM log WHERE {' AND '.join(where)} ORDER BY block, position"
        with self._translated():
            for (json,) in self._sql.execute(query, bound):
                yield zlib.decompress(json)

    def _write_changes(self, number: int, changes: Changes) -> None:
        run = self._sql.execute
        for code_hash, code in changes.codes.items():
            run("INSERT OR IGNORE INTO code VALUES(?,?)", (code_hash, code))
        for address in changes.wiped:
            wipe = "INSERT INTO storage SELECT address, slot, ?, x'' FROM storage WHERE address=? GROUP BY slot"
            run(wipe, (number, address))
        for (address, slot), value in changes.storage.items():
            row = (address, slot.to_bytes(32, "big"), number, _minimal(value))
            run("INSERT OR REPLACE INTO storage VALUES(?,?,?,?)", row)
        for address, account in changes.accounts.items():
            fields = (None, None, None)
            if account is not None:
                fields = (account.nonce, _minimal(account.balance), account.code_hash)
            run("INSERT INTO account VALUES(?,?,?,?,?)", (address, number, *fields))

    def _check(self) -> int:
        """How many tables there are. Raises ChainError for a file that is not ours, which is left as it is."""
        (application,) = self._sql.execute("PRAGMA application_id").fetchone()
        (version,) = self._sql.execute("PRAGMA user_version").fetchone()
        (tables,) = self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application != APPLICATION:
            raise ChainError(f"{self._path} is not a chain of codezero; give another directory")
        if tables and version != VERSION:
            raise ChainError(f"{self._path} was written by another version ({version}); give another directory")
        return tables

    def _create(self) -> None:
        with self._transaction():
            for statement in SCHEMA.split(";"):
                self._sql.execute(statement)
            self._sql.execute(f"PRAGMA application_id={APPLICATION}")
            self._sql.execute(f"PRAGMA user_version={VERSION}")

    def _newest(self) -> Head | None:
        row = self._one("SELECT max(number) FROM block")
        return None if row is None or row[0] is None else self.block(row[0])

    def _one(self, query: str, *values: object) -> Any:
        with self._translated():
            return self._sql.execute(query, values).fetchone()

    @contextlib.contextmanager
    def _transaction(self) -> Generator[None]:
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._sql.execute("COMMIT")
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ChainError(f"the chain's database {self._path} failed: {error}") from error


def _minimal(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8, "big")


def _packed(json: bytes) -> bytes:
    """A third of it: it is hexadecimal digits, most of them zeros."""
    return zlib.compress(json)
