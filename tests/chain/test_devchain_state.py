"""The embedded chain's state against py-evm's own, on random operations and on random programs: no difference."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from eth.constants import BLANK_ROOT_HASH, ZERO_ADDRESS
from eth.db.account import AccountDB
from eth.db.atomic import AtomicDB
from eth.vm.execution_context import ExecutionContext
from eth.vm.forks.prague.state import PragueState
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth.vm.spoof import SpoofTransaction
from eth_hash.auto import keccak
from eth_typing import Address, BlockNumber, Hash32
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from codezero.chain.devchain_state import ChainState, Deadline, Executor, JournalledAccounts
from codezero.chain.devchain_store import Account

USER, CONTRACT, OTHER = (Address(bytes([number]) * 20) for number in (0xA1, 0xC1, 0xD1))
PEOPLE = (USER, CONTRACT, OTHER)
SLOTS = range(3)
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Shrinking such programs takes longer than a test may."""


@dataclass
class Beginning:
    """State before a transaction, as our view and in py-evm's database."""

    codes: dict[bytes, bytes] = field(default_factory=dict)
    accounts: dict[bytes, Account] = field(default_factory=dict)
    slots: dict[tuple[bytes, int], int] = field(default_factory=dict)

    def put(self, address: bytes, nonce: int, balance: int, code: bytes = b"") -> None:
        self.codes[keccak(code)] = code
        self.accounts[address] = Account(nonce, balance, keccak(code))

    def account(self, address: bytes) -> Account | None:
        return self.accounts.get(address)

    def storage(self, address: bytes, slot: int) -> int:
        return self.slots.get((address, slot), 0)

    def code(self, code_hash: bytes) -> bytes:
        return self.codes[code_hash]

    def theirs(self) -> tuple[AtomicDB, Hash32]:
        database = AtomicDB()
        state = AccountDB(database)
        for address, account in self.accounts.items():
            state.set_nonce(Address(address), account.nonce)
            state.set_balance(Address(address), account.balance)
            if code := self.codes[account.code_hash]:
                state.set_code(Address(address), code)
        for (address, slot), value in self.slots.items():
            state.set_storage(Address(address), slot, value)
        state.persist()
        return database, state.state_root


def seen(state: Any) -> list[object]:
    """Everything that can be read of the people."""
    told: list[object] = []
    for one in PEOPLE:
        told += [state.get_balance(one), state.get_nonce(one), state.get_code(one), state.account_exists(one)]
        told += [state.get_storage(one, slot) for slot in SLOTS]
        told += [state.get_storage(one, slot, from_journal=False) for slot in SLOTS]
    return told


people, slots, numbers = st.sampled_from(PEOPLE), st.sampled_from(SLOTS), st.integers(0, 3)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("set_storage"), people, slots, numbers),
        st.tuples(st.just("set_balance"), people, numbers),
        st.tuples(st.just("set_nonce"), people, numbers),
        st.tuples(st.just("set_code"), people, st.binary(max_size=2)),
        st.tuples(st.sampled_from(["delete_account", "touch_account", "increment_nonce", "delete_code"]), people),
        st.tuples(st.sampled_from(["record", "record", "discard", "commit"])),
    ),
    max_size=40,
)


@settings(phases=UNSHRUNK)
@given(operations=operations)
def test_random_operations_leave_what_py_evms_own_database_has(operations: list[tuple[Any, ...]]) -> None:
    beginning = Beginning(slots={(CONTRACT, 0): 1, (CONTRACT, 1): 2})
    beginning.put(USER, 1, 100)
    beginning.put(CONTRACT, 1, 0, b"\x00")
    ours, theirs = JournalledAccounts(beginning), AccountDB(*beginning.theirs())
    checkpoints: list[tuple[Any, Any]] = [(ours.record(), theirs.record())]
    deleted: set[Any] = set()
    for name, *values in operations:
        if name == "delete_account":
            if values[0] in deleted:  # their database cannot revert past two deletions of one account, nor need it
                continue
            deleted.add(values[0])
        if name == "record":
            checkpoints.append((ours.record(), theirs.record()))
        elif name in ("discard", "commit"):
            if len(checkpoints) > 1:
                for state, checkpoint in zip((ours, theirs), checkpoints.pop(), strict=True):
                    getattr(state, name)(checkpoint)
        else:
            for state in (ours, theirs):
                getattr(state, name)(*values)
        assert seen(ours) == seen(theirs)


def push(number: int) -> bytes:
    return bytes([0x60, number])


def word(value: bytes) -> bytes:
    return bytes([0x5F + len(value)]) + value


def put(code: bytes) -> bytes:
    """Code that puts at most 32 bytes to memory address 0."""
    return word(code.ljust(32, b"\0")) + push(0) + b"\x52"


STORE = st.builds(lambda slot, value: push(value) + push(slot) + b"\x55", slots, numbers)
KEEP = st.builds(lambda slot: push(slot) + b"\x54" + push(slot) + b"\x5d", slots)  # TSTORE(slot, SLOAD(slot))
LOG = st.builds(lambda slot: push(slot) + b"\x5c" + push(0) + push(0) + b"\xa1", slots)  # LOG1 of TLOAD(slot)
CALL = st.builds(
    lambda kind, to, value: (
        push(0) * 4
        + (push(value) if kind in (0xF1, 0xF2) else b"")
        + word(to)
        + b"\x61\x40\x00"
        + bytes([kind])
        + push(2)
        + b"\x55"
    ),
    st.sampled_from([0xF1, 0xF2, 0xF4, 0xFA]),
    people,
    st.integers(0, 1),
)
CREATE = st.builds(
    lambda code, value: put(code) + push(len(code)) + push(0) + push(value) + b"\xf0" + push(1) + b"\x55",
    st.sampled_from(
        [push(1) + push(0) + b"\x55", b"\x33\xff", push(1) + push(0) + b"\xfd", push(9) + push(0) + b"\xf3"]
    ),
    st.integers(0, 1),
)
END = st.sampled_from([b"", b"\x00", push(0) * 2 + b"\xfd", b"\xfe", b"\x33\xff", word(OTHER) + b"\xff"])
PROGRAM = st.builds(
    lambda parts, end: b"".join(parts) + end, st.lists(st.one_of(STORE, KEEP, LOG, CALL, CREATE), max_size=8), END
)


# py-evm warns whenever code runs SELFDESTRUCT, which these programs do on purpose
@pytest.mark.filterwarnings("ignore:SELFDESTRUCT opcode:DeprecationWarning")
@settings(max_examples=80, phases=UNSHRUNK)
@given(first=PROGRAM, second=PROGRAM, gas=st.sampled_from([60_000, 300_000, 2_000_000]))
def test_random_programs_do_what_they_do_on_py_evms_own_state(first: bytes, second: bytes, gas: int) -> None:
    beginning = Beginning(slots={(CONTRACT, 0): 1, (OTHER, 1): 2})
    beginning.put(USER, 0, 10**18)
    beginning.put(CONTRACT, 1, 5, first)
    beginning.put(OTHER, 1, 0, second)
    database, root = beginning.theirs()
    ours = ChainState(beginning, context(), Deadline(60, threading.Event()))
    theirs = PragueState(database, context(), root)
    results = [outcome(state, gas) for state in (ours, theirs)]
    assert results[0] == results[1]
    assert seen(ours) == seen(theirs)
    theirs.persist()
    changes = ours.changes()
    for address, account in changes.accounts.items():
        assert theirs.get_nonce(Address(address)) == (0 if account is None else account.nonce)
        assert theirs.get_balance(Address(address)) == (0 if account is None else account.balance)
    for (address, slot), value in changes.storage.items():
        assert theirs.get_storage(Address(address), slot) == value


def context() -> ExecutionContext:
    return ExecutionContext(ZERO_ADDRESS, 1000, BlockNumber(5), 0, Hash32(b"\7" * 32), 30_000_000, (), 7, 10, 0)


def outcome(state: PragueState, gas: int) -> tuple[object, ...]:
    unsigned = PragueTransactionBuilder.new_unsigned_dynamic_fee_transaction(
        chain_id=7,
        nonce=0,
        max_priority_fee_per_gas=3,
        max_fee_per_gas=20,
        gas=gas,
        to=CONTRACT,
        value=2,
        data=b"",
        access_list=(),
    )
    tx: Any = SpoofTransaction(unsigned, from_=USER)
    done = Executor(state)(tx)
    return (
        type(done.error) if done.is_error else None,
        done.output,
        done.get_gas_remaining(),
        done.get_gas_refund(),
        done.get_log_entries(),
        state.get_balance(ZERO_ADDRESS),
    )


def test_py_evm_starts_from_the_same_nothing() -> None:
    assert AccountDB(AtomicDB()).state_root == BLANK_ROOT_HASH
    assert JournalledAccounts(Beginning()).changes().accounts == {}
