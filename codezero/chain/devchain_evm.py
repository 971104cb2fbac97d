"""Runs calls and transactions by Prague's rules. One transaction a block, mined at once; there is no pool.

The messages of refusals are those of other nodes, because clients match on them.
"""

import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

from eth.abc import ComputationAPI, SignedTransactionAPI
from eth.constants import SECPK1_N, ZERO_ADDRESS
from eth.exceptions import Revert, UnrecognizedTransactionType, VMError
from eth.vm.execution_context import ExecutionContext
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from eth.vm.spoof import SpoofTransaction
from eth_hash.auto import keccak
from eth_keys.exceptions import BadSignature
from eth_typing import Address, BlockNumber, Hash32
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException

from codezero.chain.devchain_blocks import Executed, mined_block
from codezero.chain.devchain_rules import BASE_FEE, BLOCK_GAS, RUN_SECONDS
from codezero.chain.devchain_state import ChainState, Deadline, Executor, StoredView, TookTooLong
from codezero.chain.devchain_store import Head, Store
from codezero.chain.devchain_wire import REFUSED, REVERTED, Attempt, RpcRefusal, hexed

ESTIMATE_WITHIN = 200
"""An estimate is at most 1/200 above the least gas that does."""
BLOB, SET_CODE = 3, 4
"""Transaction types of EIP-4844 and EIP-7702."""
FLOOR_PER_TOKEN, TOKENS_PER_BYTE, TRANSFER_GAS = 10, 4, 21_000
"""EIP-7623: the least that a transaction's data costs."""
ERROR_STRING = bytes.fromhex("08c379a0")


class Evm:
    """Executes over a store, in one thread."""

    def __init__(self, store: Store, chain_id: int) -> None:
        self._store, self._chain_id = store, chain_id
        self._stopped = threading.Event()

    def stop(self) -> None:
        """From any thread: what runs is refused within a thousand instructions, and so is what comes."""
        self._stopped.set()

    def call(self, attempt: Attempt, at: Head, pending: bool) -> bytes:
        """What the code returns. Raises RpcRefusal."""
        done, _ = self._try(attempt, min(attempt.gas or BLOCK_GAS, BLOCK_GAS), at, pending, self._deadline())
        if done.is_error:
            raise _failure(done)
        return bytes(done.output)

    def estimate(self, attempt: Attempt, at: Head, pending: bool) -> int:
        """Gas that is enough, by bisection: not all that is needed is used up. Raises RpcRefusal."""
        deadline = self._deadline()

        def enough(gas: int) -> bool:
            return not self._try(attempt, gas, at, pending, deadline)[0].is_error

        most = min(attempt.gas or BLOCK_GAS, BLOCK_GAS)
        done, used = self._try(attempt, most, at, pending, deadline)
        if done.is_error:
            raise _failure(done)
        low = max(used, self._least(attempt))
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
        tx = _decoded(raw)
        self._check(tx)
        head = self._head()
        timestamp, mix_hash = max(int(time.time()), head.timestamp), secrets.token_bytes(32)
        context = self._context(head.number + 1, timestamp, mix_hash, BASE_FEE)
        state = ChainState(StoredView(self._store, head.number), context, self._deadline())
        _check_account(tx, state)
        done = _apply(state, tx)
        executed = Executed(
            succeeded=not done.is_error,
            gas_used=_gas_used(tx, done),
            price=state.get_gas_price(tx),
            created=None if tx.to else bytes(done.msg.storage_address),
            logs=tuple(done.get_log_entries()),
            changes=state.changes(),
        )
        self._store.add(mined_block(head, timestamp, mix_hash, tx, executed))
        return tx_hash

    def _try(
        self, attempt: Attempt, gas: int, at: Head, pending: bool, deadline: Deadline
    ) -> tuple[ComputationAPI, int]:
        """The computation, and the gas it used. Changes nothing."""
        if len(attempt.data) > MAX_INITCODE_SIZE and not attempt.to:
            raise RpcRefusal(REFUSED, f"max initcode size exceeded: {len(attempt.data)} > {MAX_INITCODE_SIZE}")
        if gas < self._least(attempt):
            raise RpcRefusal(REFUSED, f"intrinsic gas too low: gas {gas}, minimum needed {self._least(attempt)}")
        now = max(int(time.time()), at.timestamp) if pending else at.timestamp
        context = self._context(at.number + int(pending), now, at.mix_hash, base_fee=0)
        state = ChainState(StoredView(self._store, at.number), context, deadline)
        sender = Address(attempt.sender)
        if state.get_balance(sender) < attempt.value:
            raise RpcRefusal(REFUSED, f"insufficient funds for transfer: address {hexed(sender)}")
        tx: Any = SpoofTransaction(self._unsigned(attempt, state.get_nonce(sender), gas), from_=sender)
        done = _apply(state, tx)
        return done, _gas_used(tx, done)

    def _unsigned(self, attempt: Attempt, nonce: int, gas: int) -> Any:
        return PragueTransactionBuilder.new_unsigned_dynamic_fee_transaction(
            chain_id=self._chain_id,
            nonce=nonce,
            max_priority_fee_per_gas=0,
            max_fee_per_gas=0,
            gas=gas,
            to=Address(attempt.to),
            value=attempt.value,
            data=attempt.data,
            access_list=attempt.accesses,  # type: ignore[arg-type]
        )

    def _least(self, attempt: Attempt) -> int:
        return max(self._unsigned(attempt, 0, 0).intrinsic_gas, _floor(attempt.data))

    def _check(self, tx: SignedTransactionAPI) -> None:
        """What can be said without looking at the state. Raises RpcRefusal."""
        if tx.chain_id is None:
            raise RpcRefusal(REFUSED, "only replay-protected (EIP-155) transactions allowed over RPC")
        if tx.chain_id != self._chain_id:
            raise RpcRefusal(REFUSED, f"invalid chain id for signer: have {tx.chain_id} want {self._chain_id}")
        if tx.gas > BLOCK_GAS:
            raise RpcRefusal(REFUSED, f"exceeds block gas limit: {tx.gas} > {BLOCK_GAS}")
        least = max(tx.intrinsic_gas, _floor(tx.data))
        if tx.gas < least:
            raise RpcRefusal(REFUSED, f"intrinsic gas too low: gas {tx.gas}, minimum needed {least}")
        if not tx.to and len(tx.data) > MAX_INITCODE_SIZE:
            raise RpcRefusal(REFUSED, f"max initcode size exceeded: {len(tx.data)} > {MAX_INITCODE_SIZE}")
        if tx.max_priority_fee_per_gas > tx.max_fee_per_gas:
            raise RpcRefusal(REFUSED, "max priority fee per gas higher than max fee per gas")
        if tx.max_fee_per_gas < BASE_FEE:
            raise RpcRefusal(
                REFUSED,
                f"transaction underpriced: max fee per gas less than block base fee: "
                f"maxFeePerGas: {tx.max_fee_per_gas}, baseFee: {BASE_FEE}",
            )

    def _head(self) -> Head:
        if self._store.head is None:
            raise RuntimeError("the chain has no first block")
        return self._store.head

    def _deadline(self) -> Deadline:
        return Deadline(RUN_SECONDS, self._stopped)

    def _context(self, number: int, timestamp: int, mix_hash: bytes, base_fee: int) -> ExecutionContext:
        return ExecutionContext(
            coinbase=ZERO_ADDRESS,
            timestamp=timestamp,
            block_number=BlockNumber(number),
            difficulty=0,
            mix_hash=Hash32(mix_hash),
            gas_limit=BLOCK_GAS,
            prev_hashes=self._ancestors(number - 1),
            chain_id=self._chain_id,
            base_fee_per_gas=base_fee,
            excess_blob_gas=0,
        )

    def _ancestors(self, number: int) -> Iterator[Hash32]:
        while number >= 0 and (block := self._store.block(number)) is not None:
            yield Hash32(block.hash)
            number -= 1


def _decoded(raw: bytes) -> SignedTransactionAPI:
    """A well-formed transaction of a kind that is mined here, its signature checked. Raises RpcRefusal."""
    if raw[:1] == bytes([BLOB]):
        raise RpcRefusal(REFUSED, "transaction type not supported: blobs")
    try:
        tx = PragueTransactionBuilder.decode(raw)
        if tx.encode() != raw:
            raise RpcRefusal(REFUSED, "rlp: not the canonical encoding")
        _check_bounds(tx)
        _ = tx.sender  # recovered once and kept
    except (UnrecognizedTransactionType, ValidationError, RLPException, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RpcRefusal(REFUSED, f"rlp: not a transaction: {type(error).__name__}: {reason}") from error
    except BadSignature as error:
        raise RpcRefusal(REFUSED, "invalid sender: the signature is not valid") from error
    return tx


def _check_bounds(tx: SignedTransactionAPI) -> None:
    """Raises ValidationError and RpcRefusal."""
    numbers = (tx.value, tx.gas, tx.max_fee_per_gas, tx.max_priority_fee_per_gas)
    if any(number >= 1 << 256 for number in numbers) or tx.nonce >= (1 << 64) - 1:
        raise ValidationError("a number is too large")
    if not 0 < tx.s <= SECPK1_N // 2 or not 0 < tx.r < SECPK1_N or tx.y_parity not in (0, 1):
        raise RpcRefusal(REFUSED, "invalid sender: the signature is out of range")
    if (tx.type_id or 0) == SET_CODE:
        if not tx.to or not tx.authorization_list:
            raise ValidationError("a set-code transaction needs a recipient and an authorization")
        for one in tx.authorization_list:
            one.validate_for_transaction()  # type: ignore[attr-defined]


def _check_account(tx: SignedTransactionAPI, state: ChainState) -> None:
    """Raises RpcRefusal where the sender cannot send this now."""
    expected, who = state.get_nonce(tx.sender), f"address {hexed(tx.sender)}, tx: {tx.nonce}"
    if tx.nonce < expected:
        raise RpcRefusal(REFUSED, f"nonce too low: {who} state: {expected}")
    if tx.nonce > expected:
        raise RpcRefusal(REFUSED, f"nonce too high: {who} state: {expected}; this chain does not queue transactions")
    have, want = state.get_balance(tx.sender), tx.gas * tx.max_fee_per_gas + tx.value
    if have < want:
        raise RpcRefusal(
            REFUSED,
            f"insufficient funds for gas * price + value: address {hexed(tx.sender)} have {have} want {want}",
        )


def _apply(state: ChainState, tx: SignedTransactionAPI) -> ComputationAPI:
    try:
        return state.apply_transaction(tx)
    except TookTooLong as error:
        raise RpcRefusal(REFUSED, f"execution aborted (timeout = {RUN_SECONDS:g}s)") from error
    except VMError as error:
        raise RpcRefusal(REFUSED, f"execution failed: {type(error).__name__}: {error}") from error


def _gas_used(tx: SignedTransactionAPI, done: ComputationAPI) -> int:
    """As the sender was charged for."""
    used = tx.gas - done.get_gas_remaining()
    return used - Executor.calculate_gas_refund(done, used) + done.data_floor_gas


def _floor(data: bytes) -> int:
    zeros = data.count(0)
    return TRANSFER_GAS + FLOOR_PER_TOKEN * (zeros + TOKENS_PER_BYTE * (len(data) - zeros))


def _failure(done: ComputationAPI) -> RpcRefusal:
    """The contract's refusal with its bytes, or what went wrong inside."""
    if isinstance(done.error, Revert):
        output = bytes(done.output)
        return RpcRefusal(REVERTED, f"execution reverted{_words(output)}", hexed(output))
    name = type(done.error).__name__
    text = "out of gas" if name == "OutOfGas" else f"execution failed: {name}: {done.error}"
    return RpcRefusal(REFUSED, text[:300])


def _words(output: bytes) -> str:
    """`: reason` of Solidity's Error(string), which other nodes put into the message."""
    if output[:4] != ERROR_STRING or len(output) < 68:
        return ""
    length = int.from_bytes(output[36:68], "big")
    words = output[68 : 68 + min(length, 1024)].decode("utf-8", "replace")
    return f": {''.join(letter if letter.isprintable() else ' ' for letter in words)}"
