"""State for py-evm's Prague rules over SQLite rows instead of a Merkle trie, and a limit on how long code may run.

py-evm's own account database rewrites and keeps every trie node on the way to a changed value, some kilobytes each.
Here a transaction works on a journal over the stored rows and leaves `Changes`. What is lost is the Merkle root: a
block's `stateRoot` is a hash over all changes so far, which binds the state but proves no single value of it.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

from eth.abc import AccountDatabaseAPI, ExecutionContextAPI, MessageAPI, MetaWitnessAPI, SignedTransactionAPI
from eth.db.journal import get_next_checkpoint
from eth.typing import JournalDBCheckpoint
from eth.vm.code_stream import CodeStream
from eth.vm.forks.prague.computation import PragueComputation
from eth.vm.forks.prague.state import PragueState, PragueTransactionExecutor
from eth_hash.auto import keccak
from eth_typing import Address, Hash32

from codezero.chain.devchain_store import Account, Changes, Store

NO_CODE = keccak(b"")
NOBODY = Account(0, 0, NO_CODE)
NO_ROOT = Hash32(b"\0" * 32)
LOOK_EVERY = 1024
"""Instructions between two looks at the clock."""
_MISSING = object()


class TookTooLong(Exception):
    """Code ran past its time. Not a VMError: py-evm would swallow that."""


class View(Protocol):
    """State as it was at the end of one block."""

    def account(self, address: bytes) -> Account | None: ...
    def storage(self, address: bytes, slot: int) -> int: ...
    def code(self, code_hash: bytes) -> bytes: ...


class StoredView:
    """The state that the store has at the end of `block`."""

    def __init__(self, store: Store, block: int) -> None:
        self._store, self._block = store, block

    def account(self, address: bytes) -> Account | None:
        return self._store.account(address, self._block)

    def storage(self, address: bytes, slot: int) -> int:
        return self._store.storage(address, slot, self._block)

    def code(self, code_hash: bytes) -> bytes:
        return self._store.code(code_hash)


class JournalledAccounts(AccountDatabaseAPI):
    """A view and what ONE transaction changes over it; every change can be taken back to a checkpoint."""

    def __init__(self, db: Any, state_root: Hash32 = NO_ROOT) -> None:
        self._view: View = db
        self._read: dict[bytes, Account | None] = {}
        self._accounts: dict[bytes, Account | None] = {}
        self._storage: dict[tuple[bytes, int], int] = {}
        self._wiped: dict[bytes, bool] = {}
        self._warm: dict[object, bool] = {}
        self._codes: dict[bytes, bytes] = {}
        self._undo: list[tuple[dict[Any, Any], object, object]] = []
        self._checkpoints: dict[int, int] = {}

    def changes(self) -> Changes:
        """What differs from the view. Accounts left empty are gone (EIP-161)."""
        accounts = {address: None if account == NOBODY else account for address, account in self._accounts.items()}
        accounts = {address: account for address, account in accounts.items() if account != self._stored(address)}
        storage = {
            key: value
            for key, value in self._storage.items()
            if value != (0 if key[0] in self._wiped else self._view.storage(*key))
        }
        return Changes(accounts, storage, frozenset(self._wiped), dict(self._codes))

    # -- storage

    def get_storage(self, address: Address, slot: int, from_journal: bool = True) -> int:
        """from_journal False: the value before the transaction, which gas for writing depends on."""
        value = self._storage.get((address, slot)) if from_journal else None
        if value is not None:
            return value
        return 0 if address in self._wiped else self._view.storage(address, slot)

    def set_storage(self, address: Address, slot: int, value: int) -> None:
        self._put(self._storage, (address, slot), value)

    def delete_storage(self, address: Address) -> None:
        self._put(self._wiped, address, True)
        for key in [key for key in self._storage if key[0] == address]:
            self._put(self._storage, key, 0)

    def is_storage_warm(self, address: Address, slot: int) -> bool:
        return (address, slot) in self._warm

    def mark_storage_warm(self, address: Address, slot: int) -> None:
        self._put(self._warm, (address, slot), True)

    # -- accounts

    def get_balance(self, address: Address) -> int:
        return self._get(address).balance

    def set_balance(self, address: Address, balance: int) -> None:
        if not 0 <= balance < 1 << 256:
            raise ValueError(f"a balance of {balance} wei cannot be")
        old = self._get(address)
        self._put(self._accounts, address, Account(old.nonce, balance, old.code_hash))

    def get_nonce(self, address: Address) -> int:
        return self._get(address).nonce

    def set_nonce(self, address: Address, nonce: int) -> None:
        old = self._get(address)
        self._put(self._accounts, address, Account(nonce, old.balance, old.code_hash))

    def increment_nonce(self, address: Address) -> None:
        self.set_nonce(address, self.get_nonce(address) + 1)

    def get_code(self, address: Address) -> bytes:
        code_hash = self._get(address).code_hash
        if code_hash == NO_CODE:
            return b""
        return self._codes.get(code_hash) or self._view.code(code_hash)

    def set_code(self, address: Address, code: bytes) -> None:
        old, code_hash = self._get(address), keccak(code)
        if code:
            self._codes[code_hash] = code  # named by its own hash, so it need not be taken back
        self._put(self._accounts, address, Account(old.nonce, old.balance, code_hash))

    def get_code_hash(self, address: Address) -> Hash32:
        return Hash32(self._get(address).code_hash)

    def delete_code(self, address: Address) -> None:
        self.set_code(address, b"")

    def account_has_code_or_nonce(self, address: Address) -> bool:
        account = self._get(address)
        return account.nonce != 0 or account.code_hash != NO_CODE

    def delete_account(self, address: Address) -> None:
        self.delete_storage(address)
        self._put(self._accounts, address, None)

    def account_exists(self, address: Address) -> bool:
        return self._find(address) is not None

    def touch_account(self, address: Address) -> None:
        self._put(self._accounts, address, self._get(address))

    def account_is_empty(self, address: Address) -> bool:
        return self._get(address) == NOBODY

    def is_address_warm(self, address: Address) -> bool:
        return address in self._warm

    def mark_address_warm(self, address: Address) -> None:
        self._put(self._warm, address, True)

    # -- checkpoints

    def record(self) -> JournalDBCheckpoint:
        """A number that py-evm's own journal of transient storage has not used: both get the same."""
        checkpoint = get_next_checkpoint()
        self._checkpoints[checkpoint] = len(self._undo)
        return checkpoint

    def discard(self, checkpoint: JournalDBCheckpoint) -> None:
        mark = self._checkpoints.pop(checkpoint)
        while len(self._undo) > mark:
            table, key, old = self._undo.pop()
            if old is _MISSING:
                del table[key]
            else:
                table[key] = old

    def commit(self, checkpoint: JournalDBCheckpoint) -> None:
        del self._checkpoints[checkpoint]

    def lock_changes(self) -> None:
        """Nothing: a second transaction gets a journal of its own."""

    # -- what only a trie has

    @property
    def state_root(self) -> Hash32:
        return NO_ROOT

    @state_root.setter
    def state_root(self, value: Hash32) -> None:
        """py-evm sets the root it read when it takes changes back."""

    def has_root(self, state_root: bytes) -> bool:
        return state_root == NO_ROOT

    def make_state_root(self) -> Hash32:
        return NO_ROOT

    def persist(self) -> MetaWitnessAPI:
        raise NotImplementedError("the store writes changes()")

    def _get(self, address: bytes) -> Account:
        return self._find(address) or NOBODY

    def _find(self, address: bytes) -> Account | None:
        if address in self._accounts:
            return self._accounts[address]
        return self._stored(address)

    def _stored(self, address: bytes) -> Account | None:
        if address not in self._read:
            self._read[address] = self._view.account(address)
        return self._read[address]

    def _put(self, table: dict[Any, Any], key: object, value: object) -> None:
        old = table.get(key, _MISSING)
        if old is _MISSING or old != value:
            self._undo.append((table, key, old))
            table[key] = value


class Deadline:
    """The end of a run: so many seconds from now, or when `stopped` is set."""

    def __init__(self, seconds: float, stopped: threading.Event) -> None:
        self._at, self._stopped = time.monotonic() + seconds, stopped

    def passed(self) -> bool:
        return self._stopped.is_set() or time.monotonic() > self._at


class TimedCode(CodeStream):
    """Bytecode that stops at a deadline."""

    def __init__(self, code: bytes, deadline: Deadline) -> None:
        super().__init__(code)
        self._deadline = deadline

    def __iter__(self) -> Iterator[int]:
        for number, opcode in enumerate(super().__iter__()):
            if number % LOOK_EVERY == 0 and self._deadline.passed():
                raise TookTooLong
            yield opcode


class TimedComputation(PragueComputation):
    """Prague's rules, within the time that the state allows."""

    def __init__(self, state: "ChainState", message: MessageAPI, transaction_context: Any) -> None:
        super().__init__(state, message, transaction_context)
        self.code = TimedCode(message.code, state.deadline)


class Executor(PragueTransactionExecutor):
    """Prague's, without its checks: `devchain_evm` makes them, with the messages that clients know."""

    def validate_transaction(self, transaction: SignedTransactionAPI) -> None:
        pass


class ChainState(PragueState):
    """Prague's state over a view, for one transaction."""

    account_db_class = JournalledAccounts
    computation_class = TimedComputation
    transaction_executor_class = Executor

    def __init__(self, view: View, context: ExecutionContextAPI, deadline: Deadline) -> None:
        self.deadline = deadline
        super().__init__(view, context, NO_ROOT)  # type: ignore[arg-type]

    def set_system_contracts(self) -> None:
        """None: they tell contracts about beacon blocks, which this chain has not."""

    def changes(self) -> Changes:
        assert isinstance(self._account_db, JournalledAccounts)
        return self._account_db.changes()
