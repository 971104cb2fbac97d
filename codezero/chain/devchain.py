"""The embedded chain: py-evm's Prague rules over one SQLite file, a transaction a block, mined at once.

`Chain` has the methods of JSON-RPC that web3 libraries need (ethereum.github.io/execution-apis), and `codezero_fund`.
A block is one SQLite transaction, on disk (WAL, synchronous=FULL) when its method returns. py-evm never deletes a trie
node, so every COMPACT_EVERY blocks those that only states older than the newest STATES use are dropped."""

import re
import secrets
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import rlp
from eth.abc import ComputationAPI, SignedTransactionAPI
from eth.constants import BLANK_ROOT_HASH
from eth.db.account import AccountDB
from eth.db.atomic import AtomicDB
from eth.db.backends.base import BaseDB
from eth.db.trie import make_trie_root_and_nodes
from eth.vm.chain_context import ChainContext
from eth.vm.forks.london.transactions import UnsignedDynamicFeeTransaction
from eth.vm.forks.prague import PragueVM
from eth.vm.spoof import SpoofTransaction
from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey
from eth_utils.exceptions import ValidationError
from msgspec import Meta

from codezero.chain import devchain_evm as evm
from codezero.chain.devchain_evm import ChainState, Json, RpcRefusal
from codezero.chain.errors import INVALID_PARAMS
from codezero.errors import ChainError, translated
from codezero.system.files import Address, Hash, Quantity, read_bounded, write_new

DATABASE, FAUCET_KEY = "chain.db", "faucet.key"
APPLICATION, VERSION = 0x63307A63, 2  # in the file, so that no database of another program or version is taken for ours
FAUCET_WEI, FULL_WEI = 10**27, 10**19  # what the faucet has, and up to what it fills an account with less than half
FIRST_CHAIN_ID = 1_000_000_000  # new chains get a random id from here to twice that: signatures of one fit no other
LOG_BLOCKS = 100_000  # the widest search for events
COMPACT_EVERY = 4096  # blocks; a compaction takes some 3 s and drops some 30 MB
STATES = 128  # newest blocks whose state can be read in any case, as in other nodes
HASHES = re.compile(rb"(?=\xa0(.{32}))", re.DOTALL)  # a node's children, an account's storage and code: RLP of 32 bytes
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
NEWEST_BLOCK = "SELECT * FROM block ORDER BY number DESC LIMIT 1"
Data = Annotated[str, Meta(pattern=r"^0x(?:[0-9a-fA-F]{2})*\Z", max_length=2 + (256 << 10))]  # as in other nodes
At = Annotated[str, Meta(pattern=r"^(?:latest|pending|earliest|safe|finalized|0x[0-9a-fA-F]{1,64})\Z")] | None


class CallFields(msgspec.Struct, frozen=True, rename="camel"):
    """A transaction that is only tried. Prices are accepted and not charged; unknown fields are left unread."""

    sender: Address | None = msgspec.field(default=None, name="from")
    to: Address | None = None
    gas: Quantity = hex(evm.BLOCK_GAS)
    value: Quantity | None = None
    data: Data | None = None
    input: Data | None = None
    access_list: Annotated[list[msgspec.Raw], Meta(max_length=0)] | None = None  # neither list is supported in calls
    authorization_list: None = None


class LogFilter(msgspec.Struct, frozen=True, rename="camel"):
    """Selects events of a range of blocks or of one block, by address and by topic."""

    from_block: At = None
    to_block: At = None
    block_hash: Hash | None = None
    address: Address | Annotated[list[Address], Meta(max_length=256)] = []
    topics: Annotated[list[Hash | Annotated[list[Hash | None], Meta(max_length=256)] | None], Meta(max_length=4)] = []


class NodeTable(BaseDB):
    """Trie nodes and contracts' code by their hash, for py-evm."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql

    def __getitem__(self, key: bytes) -> bytes:
        if row := self._sql.execute("SELECT value FROM node WHERE hash=?", (key,)).fetchone():
            return row[0]
        raise KeyError(key)

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._sql.execute("INSERT OR IGNORE INTO node VALUES(?,?)", (key, value))

    def __delitem__(self, key: bytes) -> None:
        raise NotImplementedError("py-evm deletes no node; Chain drops old ones")


class Chain:
    """The chain in a folder, for one thread; made where there is none, with a new faucet key and `chain_id` or a random
    one. Raises ChainError for a file that is none of ours, which is left as it is, and sqlite3.Error.

    Public methods are JSON-RPC's, each parameter by its annotation; no account is unlocked. They raise RpcRefusal,
    ChainError, sqlite3.Error, and EVMMissingData where a state is kept no longer."""

    def __init__(self, folder: Path, version: str, chain_id: int | None = None) -> None:
        self._faucet_key, self.version, path = folder / FAUCET_KEY, version, folder / DATABASE
        with ExitStack() as stack:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._sql = stack.enter_context(closing(connection))
            self._sql.row_factory = sqlite3.Row
            application, version_of_file, tables = (
                self._row(query)[0]
                for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
            )
            if tables and application != APPLICATION:
                raise ChainError(f"{path} is not a chain of codezero; give another directory")
            if tables and version_of_file != VERSION:
                raise ChainError(f"{path} was written by another version ({version_of_file}); give another directory")
            self._row("PRAGMA journal_mode=WAL")
            self._row("PRAGMA synchronous=FULL")
            self._nodes: Any = AtomicDB(cast(Any, NodeTable(self._sql)))
            with self._sql:
                self._row("BEGIN IMMEDIATE")
                for statement in () if tables else SCHEMA.split(";"):
                    self._row(statement)
                new = chain_id or FIRST_CHAIN_ID + secrets.randbelow(FIRST_CHAIN_ID)
                self._row("INSERT OR IGNORE INTO meta VALUES('chain_id',?)", str(new))
            self.chain_id = int(self._row("SELECT value FROM meta WHERE key='chain_id'")[0])
            if self._row(NEWEST_BLOCK) is None:
                self._begin()
            self._head: sqlite3.Row = self._row(NEWEST_BLOCK)
            self.close = stack.pop_all().close

    def web3_clientVersion(self) -> str:
        return self.version

    def eth_chainId(self) -> str:
        return hex(self.chain_id)

    def eth_gasPrice(self) -> str:
        return hex(evm.BASE_FEE + evm.TIP)

    def eth_maxPriorityFeePerGas(self) -> str:
        return hex(evm.TIP)

    def eth_blockNumber(self) -> str:
        return hex(self._head["number"])

    def eth_getBalance(self, address: Address, block: At = None) -> str:
        return hex(self._accounts(block).get_balance(_bytes(address)))

    def eth_getTransactionCount(self, address: Address, block: At = None) -> str:
        return hex(self._accounts(block).get_nonce(_bytes(address)))

    def eth_getCode(self, address: Address, block: At = None) -> str:
        return f"0x{self._accounts(block).get_code(_bytes(address)).hex()}"

    def eth_getStorageAt(self, address: Address, slot: Quantity, block: At = None) -> str:
        return f"0x{self._accounts(block).get_storage(_bytes(address), int(slot, 16)):064x}"

    def eth_call(self, call: CallFields, block: At = None) -> str:
        """Run code in the block after the one named."""
        done = self._try(call, self._state_after(self._at(block)), int(call.gas, 16))
        return f"0x{done.output.hex()}" if done.is_success else evm.fail(done)

    def eth_estimateGas(self, call: CallFields, block: At = None) -> str:
        """The gas used, or as many sixteenths more as it takes: calls keep back more than they use."""
        state, high = self._state_after(self._at(block)), min(int(call.gas, 16), evm.BLOCK_GAS)
        done = self._try(call, state, high)
        if done.is_error:
            evm.fail(done)
        guess = min(high - done.get_gas_remaining() + cast(Any, done).data_floor_gas, high)
        while guess < high and self._try(call, state, guess).is_error:
            guess = min(guess + guess // 16, high)
        return hex(guess)

    def eth_sendRawTransaction(self, raw: Data) -> str:
        """Mine a signed transaction; its hash, also of one mined before."""
        tx_hash = f"0x{keccak(_bytes(raw)).hex()}"
        if self.eth_getTransactionByHash(tx_hash) is None:
            self._mine(evm.decode_transaction(_bytes(raw)))
        return tx_hash

    def codezero_fund(self, address: Address) -> str | None:
        """Fill an account up from the faucet; the transaction's hash, null when it has enough."""
        balance = self._accounts().get_balance(_bytes(address))
        if balance * 2 >= FULL_WEI:
            return None
        key = self._faucet()
        nonce = self._accounts().get_nonce(cast(Any, key.public_key.to_canonical_address()))
        gas = 100_000  # more than a plain transfer needs, for accounts that are contracts
        unsigned = self._unsigned(nonce, evm.BASE_FEE + evm.TIP, gas, _bytes(address), FULL_WEI - balance, b"")
        return self.eth_sendRawTransaction(f"0x{unsigned.as_signed_transaction(key).encode().hex()}")

    def eth_getBlockByNumber(self, block: At, full: bool = False) -> object:
        """full: whole transactions instead of their hashes."""
        head = self._find(block)
        if head is None:
            return None
        json, tx = _unpacked(head["json"]), self._row("SELECT json FROM tx WHERE block=?", head["number"])
        return msgspec.json.decode(json, type=Json) | {"transactions": [_unpacked(tx[0])]} if full and tx else json

    eth_getBlockByHash = eth_getBlockByNumber

    def eth_getTransactionByHash(self, tx_hash: Hash) -> msgspec.Raw | None:
        row = self._row("SELECT json FROM tx WHERE hash=?", _bytes(tx_hash))
        return row and _unpacked(row[0])

    def eth_getTransactionReceipt(self, tx_hash: Hash) -> msgspec.Raw | None:
        row = self._row("SELECT receipt FROM tx WHERE hash=?", _bytes(tx_hash))
        return row and _unpacked(row[0])

    def eth_getLogs(self, search: LogFilter) -> object:
        """Events in order. An empty list of addresses, or null among topics, matches any."""
        first, last = self._number(search.from_block), self._number(search.to_block)
        if search.block_hash is not None:
            first = last = self._at(search.block_hash)["number"]
        if first > last:
            raise RpcRefusal(INVALID_PARAMS, "invalid block range params")
        if last - first >= LOG_BLOCKS:
            raise RpcRefusal(-32005, f"exceed maximum block range: {LOG_BLOCKS}")
        where, values = ["block BETWEEN ? AND ?"], cast("list[object]", [first, last])
        places = {"address": search.address} | {f"topic{at}": place for at, place in enumerate(search.topics)}
        for column, place in places.items():
            choices: Sequence[str | None] = [place] if place is None or isinstance(place, str) else place
            wanted = [] if None in choices else [_bytes(choice) for choice in choices if choice is not None]
            where.append(f"{column} IN ({','.join('?' * len(wanted))})" if wanted else f"{column} IS NOT NULL")
            values += wanted
        query = f"SELECT json FROM log WHERE {' AND '.join(where)} ORDER BY block, position"
        return [_unpacked(row[0]) for row in self._sql.execute(query, values)]

    def _row(self, query: str, *values: object) -> Any:
        return self._sql.execute(query, values).fetchone()

    def _accounts(self, block: At = None) -> AccountDB:
        return AccountDB(self._nodes, self._at(block)["state_root"])

    def _number(self, block: At) -> int:  # at most the head's and one
        head = 0 if block == "earliest" else self._head["number"]
        return min(int(block, 16), head + 1) if block and block.startswith("0x") else head

    def _find(self, block: At) -> sqlite3.Row | None:
        if block is not None and len(block) == 66:
            return self._row("SELECT * FROM block WHERE hash=?", _bytes(block))
        return self._row("SELECT * FROM block WHERE number=?", self._number(block))

    def _at(self, block: At) -> sqlite3.Row:
        if (head := self._find(block)) is None:
            raise RpcRefusal(evm.REFUSED, "header not found")
        return head

    def _faucet(self) -> PrivateKey:
        lost = f"{self._faucet_key}: put the faucet's key back, or begin a new chain in another directory"
        with translated(ChainError, lost, OSError, ValueError, ValidationError, reason=False):
            return PrivateKey(bytes.fromhex(read_bounded(self._faucet_key, 128, private=True).decode()))

    def _begin(self) -> None:
        write_new(self._faucet_key, secrets.token_bytes(32).hex().encode())
        accounts = AccountDB(self._nodes, BLANK_ROOT_HASH)
        accounts.set_balance(cast(Any, self._faucet().public_key.to_canonical_address()), FAUCET_WEI)
        with self._sql:
            self._row("BEGIN IMMEDIATE")
            header = evm.new_header(None).copy(state_root=accounts.make_state_root())
            accounts.persist()
            self._write(header, [])

    def _mine(self, tx: SignedTransactionAPI) -> None:
        header = evm.new_header(self._head)
        state = self._state_after(self._head, header)
        done = state.apply_transaction(tx)
        used = tx.gas - done.get_gas_remaining()
        used += cast(Any, done).data_floor_gas - evm.CheckingExecutor.calculate_gas_refund(done, used)
        receipt = tx.make_receipt(b"" if done.is_error else b"\1", used, done.get_log_entries())
        header = header.copy(
            gas_used=used,
            state_root=state.make_state_root(),
            transaction_root=make_trie_root_and_nodes((tx,))[0],
            receipt_root=make_trie_root_and_nodes((receipt,))[0],
            bloom=receipt.bloom,
        )
        created = None if tx.to else done.msg.storage_address
        transaction, receipt_json = evm.mined_json(header, tx, receipt, created, state.get_gas_price(tx))
        with self._sql:
            self._row("BEGIN IMMEDIATE")
            state.persist()
            values = header.block_number, keccak(tx.encode()), _packed(transaction), _packed(receipt_json)
            self._row("INSERT INTO tx VALUES(?,?,?,?)", *values)
            for position, (log, json) in enumerate(zip(receipt.logs, receipt_json["logs"], strict=True)):
                topics = (*(topic.to_bytes(32) for topic in log.topics), None, None, None, None)[:4]
                values = header.block_number, position, log.address, *topics, _packed(json)
                self._row("INSERT INTO log VALUES(?,?,?,?,?,?,?,?)", *values)
            self._write(header, [transaction["hash"]])
        self._head = self._row(NEWEST_BLOCK)
        if header.block_number % COMPACT_EVERY == COMPACT_EVERY - 1:
            self._compact()

    def _write(self, header: Any, hashes: list[str]) -> None:
        block, size = evm.to_json(header), hex(len(cast(Any, rlp).encode(header)))
        block |= {"hash": evm.to_json(header.hash), "size": size, "uncles": [], "withdrawals": []}
        json = _packed(block | {"transactions": hashes})
        values = header.block_number, header.hash, header.timestamp, header.mix_hash, header.state_root, json
        self._row("INSERT INTO block VALUES(?,?,?,?,?,?)", *values)

    def _compact(self) -> None:
        """Drop the nodes that only older states than the newest STATES use. All or nothing."""
        with self._sql:
            self._row("BEGIN IMMEDIATE")
            self._row(NODES.format("live"))
            roots = self._sql.execute("SELECT state_root FROM block ORDER BY number DESC LIMIT ?", (STATES,))
            pending = [root for (root,) in roots.fetchall()]
            while pending:  # nodes, and whatever they refer to: every hash in them, even one that is there by accident
                key = pending.pop()
                row = self._row("SELECT value FROM node WHERE hash=?", key)
                copied = row and self._sql.execute("INSERT OR IGNORE INTO live VALUES(?,?)", (key, row[0])).rowcount
                pending += HASHES.findall(row[0]) if copied else []
            self._row("DROP TABLE node")
            self._row("ALTER TABLE live RENAME TO node")

    def _try(self, call: CallFields, state: ChainState, gas: int) -> ComputationAPI:  # changes nothing
        before, sender = state.snapshot(), _bytes(call.sender or f"0x{'00' * 20}")
        to, value, data = _bytes(call.to or "0x"), int(call.value or "0x0", 16), _bytes(call.input or call.data or "0x")
        unsigned = self._unsigned(state.get_nonce(sender), 0, min(gas, evm.BLOCK_GAS), to, value, data)
        try:
            return state.apply_transaction(cast(Any, SpoofTransaction(unsigned, from_=sender)))
        finally:
            state.revert(before)

    def _unsigned(self, nonce: int, fee: int, gas: int, to: bytes, value: int, data: bytes) -> Any:
        fields = self.chain_id, nonce, min(fee, evm.TIP), fee, gas, to, value, data, ()
        return cast(Any, UnsignedDynamicFeeTransaction)(*fields)

    def _state_after(self, at: sqlite3.Row, header: Any = None) -> ChainState:
        """To run code on the state after `at`, as in a block with this header, or one without a base fee."""
        newest_first = "SELECT hash FROM block WHERE number<=? ORDER BY number DESC LIMIT 256"
        ancestors = [block[0] for block in self._sql.execute(newest_first, (at["number"],))]
        header = header or evm.new_header(at, base_fee=0)
        context = PragueVM.create_execution_context(header, ancestors, ChainContext(self.chain_id))
        return ChainState(self._nodes, context, at["state_root"])


def _packed(json: Json) -> bytes:
    return zlib.compress(msgspec.json.encode(json))


def _unpacked(json: bytes) -> msgspec.Raw:
    return msgspec.Raw(zlib.decompress(json))


def _bytes(text: str) -> Any:  # py-evm has a type for each use of bytes
    return bytes.fromhex(text[2:])
