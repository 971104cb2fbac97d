"""The embedded chain's SQLite file: blocks, transactions and events as JSON, and py-evm's state trie.

A block is one SQLite transaction. WAL with synchronous=FULL: what `add` returned from survives kill -9 and power loss.

py-evm never deletes a trie node. Measured with the coordinator's contract and ten peers, its own `MiningChain` over
SQLite took 10 kB a transaction after 2,300 of them and grew by 11 kB with each: over 350 MB after 30,000. 7 kB of that
are nodes of old states. So blocks are rows here, and every `COMPACT_EVERY` blocks the nodes that only older states than
the newest `STATES` use are dropped; an old block, transaction, receipt or event stays. That is 145 MB after 29,911
transactions: 91 of rows, 22 of nodes, and 32 that were freed and are used again. A compaction then takes 3 s.
"""

import contextlib
import sqlite3
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import rlp
from eth.constants import BLANK_ROOT_HASH, EMPTY_SHA3
from eth.db.account import AccountDB
from eth.db.atomic import AtomicDB
from eth.db.backends.base import BaseDB
from eth.rlp.accounts import Account
from eth_typing import Address

from codezero.errors import ChainError

APPLICATION, VERSION = 0x63307A63, 2
"""Written into the file, so that neither a foreign database nor one of another version is taken for ours."""
COMPACT_EVERY = 4096
"""Blocks between two compactions, some 30 MB of old nodes."""
STATES = 128
"""Newest blocks whose state can be read in any case, as in other nodes."""
NODES = "CREATE TABLE {}(hash BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
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


@dataclass(frozen=True, slots=True)
class Head:
    """What the EVM needs of a block. timestamp: seconds since 1970."""

    number: int
    hash: bytes
    timestamp: int
    mix_hash: bytes
    state_root: bytes


@dataclass(frozen=True, slots=True)
class EventRow:
    """A log: up to four topics, and its JSON as clients get it."""

    address: bytes
    topics: tuple[bytes, ...]
    json: bytes


@dataclass(frozen=True, slots=True)
class MinedBlock:
    """A block with everything that `add` writes. tx_hash is None in the first block only."""

    head: Head
    json: bytes
    tx_hash: bytes | None = None
    tx_json: bytes = b""
    receipt: bytes = b""
    events: tuple[EventRow, ...] = ()


class NodeTable(BaseDB):
    """Trie nodes and contracts' code by their hash, for py-evm. Written within `Store.add` alone."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def __getitem__(self, key: bytes) -> bytes:
        row = self._store.row("SELECT value FROM node WHERE hash=?", key)
        if row is None:
            raise KeyError(key)
        return row[0]

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._store.row("INSERT OR IGNORE INTO node VALUES(?,?)", key, value)

    def __delitem__(self, key: bytes) -> None:
        raise NotImplementedError("py-evm deletes no node; Store drops old ones")

    def _exists(self, key: bytes) -> bool:
        return self._store.row("SELECT 1 FROM node WHERE hash=?", key) is not None


class Store:
    """One connection, for one thread. Raises ChainError where SQLite fails. head: None in a new file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.state_db = AtomicDB(NodeTable(self))  # type: ignore[arg-type]
        with self._translated():
            self._sql = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._sql.execute("PRAGMA trusted_schema=OFF")
            version = self._version()
            self._sql.execute("PRAGMA journal_mode=WAL")
            self._sql.execute("PRAGMA synchronous=FULL")
            with self._transaction():
                for statement in SCHEMA.split(";") if version is None else ():
                    self._sql.execute(statement)
                if version == 1:
                    self._migrate()
        self.head = self.block(self.row("SELECT max(number) FROM block")[0])

    def close(self) -> None:
        self._sql.close()

    def row(self, query: str, *values: object) -> Any:
        """The first row; None where there is none."""
        with self._translated():
            return self._sql.execute(query, values).fetchone()

    def meta(self, key: str) -> str | None:
        row = self.row("SELECT value FROM meta WHERE key=?", key)
        return None if row is None else row[0]

    def set_meta(self, key: str, value: str) -> None:
        self.row("INSERT INTO meta VALUES(?,?)", key, value)

    def add(self, block: MinedBlock, persist_state: Callable[[], object]) -> None:
        """The block and its state, or nothing; on return it is on disk."""
        head = block.head
        with self._translated(), self._transaction():
            persist_state()
            self.row(
                "INSERT INTO block VALUES(?,?,?,?,?,?)",
                *(head.number, head.hash, head.timestamp, head.mix_hash, head.state_root, zlib.compress(block.json)),
            )
            if block.tx_hash is not None:
                answers = (zlib.compress(block.tx_json), zlib.compress(block.receipt))
                self.row("INSERT INTO tx VALUES(?,?,?,?)", head.number, block.tx_hash, *answers)
            for position, event in enumerate(block.events):
                topics = (*event.topics, None, None, None, None)[:4]
                values = (head.number, position, event.address, *topics, zlib.compress(event.json))
                self.row("INSERT INTO log VALUES(?,?,?,?,?,?,?,?)", *values)
        self.head = head
        if head.number % COMPACT_EVERY == COMPACT_EVERY - 1:
            self.compact()

    def block(self, number: int | None) -> Head | None:
        row = self.row("SELECT number, hash, timestamp, mix_hash, state_root FROM block WHERE number=?", number)
        return None if row is None else Head(*row)

    def number_of(self, block_hash: bytes) -> int | None:
        row = self.row("SELECT number FROM block WHERE hash=?", block_hash)
        return None if row is None else row[0]

    def block_json(self, number: int) -> bytes | None:
        row = self.row("SELECT json FROM block WHERE number=?", number)
        return None if row is None else zlib.decompress(row[0])

    def transaction(self, tx_hash: bytes) -> tuple[bytes, bytes] | None:
        """The transaction and its receipt, both as JSON."""
        row = self.row("SELECT json, receipt FROM tx WHERE hash=?", tx_hash)
        return None if row is None else (zlib.decompress(row[0]), zlib.decompress(row[1]))

    def transaction_in(self, block: int) -> bytes | None:
        row = self.row("SELECT json FROM tx WHERE block=?", block)
        return None if row is None else zlib.decompress(row[0])

    def events(self, first: int, last: int, addresses: list[bytes], topics: list[list[bytes]]) -> Generator[bytes]:
        """JSON of the events of blocks first..last, in order. An empty list of choices matches anything."""
        where, bound = ["block BETWEEN ? AND ?"], cast("list[object]", [first, last])
        for column, choices in [("address", addresses)] + [(f"topic{at}", place) for at, place in enumerate(topics)]:
            if choices:
                where.append(f"{column} IN ({','.join('?' * len(choices))})")
                bound += choices
            elif column != "address":
                where.append(f"{column} IS NOT NULL")
        query = f"SELECT json FROM log WHERE {' AND '.join(where)} ORDER BY block, position"
        with self._translated():
            for (json,) in self._sql.execute(query, bound):
                yield zlib.decompress(json)

    def compact(self) -> None:
        """Drop the nodes that only older states than the newest STATES use. All or nothing."""
        with self._translated(), self._transaction():
            self.row(NODES.format("live"))
            roots = self._sql.execute("SELECT state_root FROM block ORDER BY number DESC LIMIT ?", (STATES,)).fetchall()
            codes: set[bytes] = set()
            for number, (root,) in enumerate(roots):
                if number == 0 or root in self.state_db:
                    self._keep(root, codes)
            for code_hash in codes:  # after all nodes: code may have a node's bytes, and so its hash
                self.row("INSERT OR IGNORE INTO live VALUES(?,?)", code_hash, self.state_db[code_hash])
            self.row("DROP TABLE node")
            self.row("ALTER TABLE live RENAME TO node")

    def _keep(self, root: bytes, codes: set[bytes]) -> None:
        """Copy the nodes of a state that are not copied yet; add to `codes`. Raises ChainError where one is missing."""
        pending = [(root, True)]
        while pending:
            key, of_accounts = pending.pop()
            row = self.row("SELECT value FROM node WHERE hash=?", key)
            if row is None:
                raise ChainError(f"{self._path} is damaged: a part of the newest state is missing")
            if self._sql.execute("INSERT OR IGNORE INTO live VALUES(?,?)", (key, row[0])).rowcount == 0:
                continue
            for leaf, link in _links(cast(Any, rlp).decode(row[0])):
                if not leaf:
                    pending.append((link, of_accounts))
                elif of_accounts:
                    account = cast(Any, rlp).decode(link, sedes=Account)
                    codes |= {account.code_hash} - {EMPTY_SHA3}
                    pending += [(account.storage_root, False)] if account.storage_root != BLANK_ROOT_HASH else []

    def _migrate(self) -> None:
        """From version 1, whose state was rows of accounts and slots, and whose state root was no trie's."""
        run = self._sql.execute
        run(NODES.format("node"))
        state = AccountDB(self.state_db)
        for raw, nonce, balance, code, _ in run(
            "SELECT address, nonce, balance, code, max(block) FROM account LEFT JOIN code ON hash=code_hash "
            "GROUP BY address"
        ).fetchall():
            if nonce is not None:
                state.set_nonce(Address(raw), nonce)
                state.set_balance(Address(raw), int.from_bytes(balance, "big"))
                if code:
                    state.set_code(Address(raw), code)
        for raw, slot, value, _ in run("SELECT address, slot, value, max(block) FROM storage GROUP BY address, slot"):
            if value:
                state.set_storage(Address(raw), int.from_bytes(slot, "big"), int.from_bytes(value, "big"))
        state.persist()
        newest = "(SELECT state_root FROM block ORDER BY number DESC LIMIT 1)"  # stays in its header: it gets the trie
        run(
            f"INSERT INTO node SELECT {newest}, value FROM node WHERE hash=? AND {newest} IS NOT NULL",
            (state.state_root,),
        )
        for table in ("account", "storage", "code"):
            run(f"DROP TABLE {table}")
        run(f"PRAGMA user_version={VERSION}")

    def _version(self) -> int | None:
        """None for a new file. Raises ChainError for a file that is not ours, which is left as it is."""
        (application,) = self._sql.execute("PRAGMA application_id").fetchone()
        (version,) = self._sql.execute("PRAGMA user_version").fetchone()
        (tables,) = self._sql.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            return None
        if application != APPLICATION:
            raise ChainError(f"{self._path} is not a chain of codezero; give another directory")
        if version not in (1, VERSION):
            raise ChainError(f"{self._path} was written by another version ({version}); give another directory")
        return version

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


def _links(node: Any) -> Iterator[tuple[bool, bytes]]:
    """A decoded node's leaf values (True) and its children's hashes (False). A short child lies within its parent."""
    if len(node) == 2 and node[0][0] & 0x20:
        yield True, node[1]
        return
    for child in node[:16] if len(node) == 17 else node[1:]:
        if isinstance(child, list):
            yield from _links(child)
        elif child:
            yield False, child
