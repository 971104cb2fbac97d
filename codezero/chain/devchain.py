"""The EVM of the embedded chain: py-evm's Prague rules and state trie, one transaction a block, mined at once, no pool.

The messages of refusals are those of other nodes, because clients match on them. Importing this takes a second.
"""

import secrets
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eth.abc import ComputationAPI, ExecutionContextAPI, MessageAPI, SignedTransactionAPI
from eth.constants import BLANK_ROOT_HASH, SECPK1_N
from eth.db.account import AccountDB
from eth.exceptions import VMError
from eth.vm.chain_context import ChainContext
from eth.vm.code_stream import CodeStream
from eth.vm.forks.prague import PragueVM
from eth.vm.forks.prague.computation import PragueComputation
from eth.vm.forks.prague.state import PragueState, PragueTransactionExecutor
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth.vm.spoof import SpoofTransaction
from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey
from eth_typing import Address, Hash32

from codezero.chain.devchain_blocks import (
    BASE_FEE,
    BLOCK_GAS,
    REFUSED,
    RpcRefusal,
    check_size,
    check_transaction,
    decode_transaction,
    failure,
    first_block,
    least_gas,
    mined_block,
    next_header,
)
from codezero.chain.devchain_store import Head, Store
from codezero.errors import ChainError
from codezero.system.files import read_private, write_new

RUN_SECONDS = 20.0
"""The longest that one call, estimate or transaction may run."""
CLOCK_EVERY = 1024
"""Instructions between two looks at the clock."""
ESTIMATE_WITHIN = 200
"""An estimate is at most 1/200 above the least gas that does."""
TIP = 1_000_000
"""wei per gas that is suggested on top of the base fee."""
ETHER = 10**18
RICHES, FULL = 10**9 * ETHER, 10 * ETHER
"""wei: what the faucet owns at the start, and up to what it fills an account that has less than half of it."""
FUND_GAS = 100_000
"""More than a plain transfer needs, for accounts that are contracts."""

# Given each time that a contract destroys itself; where warnings are errors it would break the contract's execution.
warnings.filterwarnings("ignore", "SELFDESTRUCT opcode", DeprecationWarning)


class TookTooLong(Exception):
    """Code ran past its time. Not a VMError: py-evm would swallow that."""


class TimedCode(CodeStream):
    """Bytecode that stops at a deadline (monotonic seconds), or when the chain ends."""

    def __init__(self, code: bytes, deadline: float, stopped: threading.Event) -> None:
        super().__init__(code)
        self._deadline, self._stopped = deadline, stopped

    def __iter__(self) -> Iterator[int]:
        for number, opcode in enumerate(super().__iter__()):
            if number % CLOCK_EVERY == 0 and (self._stopped.is_set() or time.monotonic() > self._deadline):
                raise TookTooLong
            yield opcode


class TimedComputation(PragueComputation):
    """Prague's rules, within the time that the state allows."""

    def __init__(self, state: "TimedState", message: MessageAPI, transaction_context: Any) -> None:
        super().__init__(state, message, transaction_context)
        self.code = TimedCode(message.code, state.deadline, state.stopped)


class UncheckedExecutor(PragueTransactionExecutor):
    """Prague's, without its checks: `Evm` makes them, with the messages that clients know."""

    def validate_transaction(self, transaction: SignedTransactionAPI) -> None:
        pass


class TimedState(PragueState):
    """Prague's state after a block."""

    computation_class = TimedComputation
    transaction_executor_class = UncheckedExecutor

    def __init__(self, store: Store, at: Head, context: ExecutionContextAPI, stopped: threading.Event) -> None:
        self.deadline, self.stopped = time.monotonic() + RUN_SECONDS, stopped
        super().__init__(store.state_db, context, Hash32(at.state_root))

    def set_system_contracts(self) -> None:
        """None: they are for beacon blocks, which this chain has not."""


@dataclass(frozen=True, slots=True)
class SimulatedCall:
    """A transaction that is only tried. value: wei; gas None: as much as a block holds; to empty: create a contract."""

    sender: bytes
    to: bytes
    value: int
    data: bytes
    gas: int | None
    accesses: tuple[tuple[bytes, tuple[int, ...]], ...] = ()


class Evm:
    """Executes over a store, in one thread. A new chain begins here, with a new faucet key. Raises ChainError."""

    def __init__(self, store: Store, chain_id: int, faucet_key: Path) -> None:
        self._store, self._chain_id = store, chain_id
        self._stopped, self._faucet_key = threading.Event(), faucet_key
        if store.head is None:
            write_new(faucet_key, secrets.token_bytes(32).hex().encode())
            state = AccountDB(store.state_db, BLANK_ROOT_HASH)
            state.set_balance(Address(_key(faucet_key).public_key.to_canonical_address()), RICHES)
            block = first_block(int(time.time()), secrets.token_bytes(32), state.make_state_root())
            store.add(block, state.persist)

    @property
    def head(self) -> Head:
        assert self._store.head is not None
        return self._store.head

    def stop(self) -> None:
        """From any thread: what runs is refused within a thousand instructions, and so is what comes."""
        self._stopped.set()

    def accounts(self, at: Head) -> AccountDB:
        """The state after a block. Reading raises EVMMissingData where it is kept no longer."""
        return AccountDB(self._store.state_db, Hash32(at.state_root))

    def call(self, call: SimulatedCall, at: Head, pending: bool) -> bytes:
        """What the code returns. Raises RpcRefusal."""
        done, _ = self._try(call, min(call.gas or BLOCK_GAS, BLOCK_GAS), at, pending)
        if done.is_error:
            raise failure(done)
        return bytes(done.output)

    def estimate(self, call: SimulatedCall, at: Head, pending: bool) -> int:
        """Gas that is enough, by bisection: not all that is needed is used up. Raises RpcRefusal."""
        end = time.monotonic() + RUN_SECONDS

        def enough(gas: int) -> bool:
            if time.monotonic() > end:
                raise RpcRefusal(REFUSED, f"execution aborted (timeout = {RUN_SECONDS:g}s)")
            return not self._try(call, gas, at, pending)[0].is_error

        most = min(call.gas or BLOCK_GAS, BLOCK_GAS)
        done, used = self._try(call, most, at, pending)
        if done.is_error:
            raise failure(done)
        low = max(used, least_gas(self._unsigned(call, 0, 0)))
        if low >= most or enough(low):
            return low
        high = most
        guess = (low + done.get_gas_refund() + 2300) * 64 // 63  # a call keeps 1/64 back; a transfer needs 2300 more
        if guess < most:
            low, high = (low, guess) if enough(guess) else (guess, most)
        while (high - low) * ESTIMATE_WITHIN > high:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def send(self, raw: bytes) -> bytes:
        """Mine a signed transaction; its hash, also of one mined before. Raises RpcRefusal, ChainError."""
        tx_hash = keccak(raw)
        if self._store.transaction(tx_hash) is not None:
            return tx_hash
        tx = decode_transaction(raw)
        check_transaction(tx, self._chain_id)
        head = self.head
        header = next_header(head, max(int(time.time()), head.timestamp), secrets.token_bytes(32))
        state = self._state(head, header)
        _check_account(tx, state)
        done = _apply(state, tx)
        header = header.copy(gas_used=_gas_used(tx, done), state_root=state.make_state_root())
        self._store.add(mined_block(header, tx, done, state.get_gas_price(tx)), state.persist)
        return tx_hash

    def fund(self, address: bytes) -> bytes | None:
        """Fill an account up from the faucet; the transaction's hash, None when it has enough. Raises ChainError."""
        accounts, key = self.accounts(self.head), _key(self._faucet_key)
        own = Address(key.public_key.to_canonical_address())
        have = accounts.get_balance(Address(address))
        if have * 2 >= FULL:
            return None
        if accounts.get_balance(own) < FULL:
            raise RpcRefusal(REFUSED, "the faucet is empty")
        unsigned = PragueTransactionBuilder.new_unsigned_dynamic_fee_transaction(
            chain_id=self._chain_id,
            nonce=accounts.get_nonce(own),
            max_priority_fee_per_gas=TIP,
            max_fee_per_gas=BASE_FEE + TIP,
            gas=FUND_GAS,
            to=Address(address),
            value=FULL - have,
            data=b"",
            access_list=(),
        )
        return self.send(unsigned.as_signed_transaction(key).encode())

    def _try(self, call: SimulatedCall, gas: int, at: Head, pending: bool) -> tuple[ComputationAPI, int]:
        """The computation, and the gas it used. Changes nothing."""
        check_size(call.to, call.data, gas, least_gas(self._unsigned(call, 0, 0)))
        now = max(int(time.time()), at.timestamp) if pending else at.timestamp
        header = next_header(at, now, at.mix_hash)
        state = self._state(at, header.copy(base_fee_per_gas=0, block_number=at.number + int(pending)))
        sender = Address(call.sender)
        if state.get_balance(sender) < call.value:
            raise RpcRefusal(REFUSED, f"insufficient funds for transfer: address 0x{sender.hex()}")
        tx: Any = SpoofTransaction(self._unsigned(call, state.get_nonce(sender), gas), from_=sender)
        done = _apply(state, tx)
        return done, _gas_used(tx, done)

    def _unsigned(self, call: SimulatedCall, nonce: int, gas: int) -> Any:
        return PragueTransactionBuilder.new_unsigned_dynamic_fee_transaction(
            chain_id=self._chain_id,
            nonce=nonce,
            max_priority_fee_per_gas=0,
            max_fee_per_gas=0,
            gas=gas,
            to=Address(call.to),
            value=call.value,
            data=call.data,
            access_list=call.accesses,  # type: ignore[arg-type]
        )

    def _state(self, at: Head, header: Any) -> TimedState:
        """To run code on the state after `at`, as in a block with this header."""
        ancestors = self._ancestors(header.block_number - 1)
        context = PragueVM.create_execution_context(header, ancestors, ChainContext(self._chain_id))
        return TimedState(self._store, at, context, self._stopped)

    def _ancestors(self, number: int) -> Iterator[Hash32]:
        while number >= 0 and (block := self._store.block(number)) is not None:
            yield Hash32(block.hash)
            number -= 1


def _key(path: Path) -> PrivateKey:
    """The faucet's. Raises ChainError."""
    if not path.exists():
        raise ChainError(f"{path} is missing: put the faucet's key back, or begin a new chain in another directory")
    try:
        number = int(read_private(path, 128).strip(), 16)
    except ValueError:
        number = 0
    if not 0 < number < SECPK1_N:
        raise ChainError(f"{path} does not hold a key: put the faucet's key back")
    return PrivateKey(number.to_bytes(32, "big"))


def _check_account(tx: SignedTransactionAPI, state: TimedState) -> None:
    """Raises RpcRefusal where the sender cannot send this now."""
    expected, who = state.get_nonce(tx.sender), f"address 0x{tx.sender.hex()}, tx: {tx.nonce}"
    if tx.nonce < expected:
        raise RpcRefusal(REFUSED, f"nonce too low: {who} state: {expected}")
    if tx.nonce > expected:
        raise RpcRefusal(REFUSED, f"nonce too high: {who} state: {expected}; this chain does not queue transactions")
    have, want = state.get_balance(tx.sender), tx.gas * tx.max_fee_per_gas + tx.value
    if have < want:
        account = f"address 0x{tx.sender.hex()} have {have} want {want}"
        raise RpcRefusal(REFUSED, f"insufficient funds for gas * price + value: {account}")


def _apply(state: TimedState, tx: SignedTransactionAPI) -> ComputationAPI:
    try:
        return state.apply_transaction(tx)
    except TookTooLong as error:
        raise RpcRefusal(REFUSED, f"execution aborted (timeout = {RUN_SECONDS:g}s)") from error
    except VMError as error:
        raise RpcRefusal(REFUSED, f"execution failed: {type(error).__name__}: {error}") from error


def _gas_used(tx: SignedTransactionAPI, done: ComputationAPI) -> int:
    """As the sender was charged for."""
    used = tx.gas - done.get_gas_remaining()
    return used - UncheckedExecutor.calculate_gas_refund(done, used) + done.data_floor_gas
