"""The embedded chain: py-evm's Prague rules and state trie over a store, one transaction a block, mined at once."""

import secrets
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from eth.abc import ComputationAPI, SignedTransactionAPI
from eth.constants import BLANK_ROOT_HASH, SECPK1_N, ZERO_HASH32
from eth.db.account import AccountDB
from eth.db.trie import make_trie_root_and_nodes
from eth.exceptions import Revert, UnrecognizedTransactionType
from eth.vm.chain_context import ChainContext
from eth.vm.forks.cancun.constants import BLOB_TX_TYPE
from eth.vm.forks.london.transactions import UnsignedDynamicFeeTransaction
from eth.vm.forks.prague import PragueVM
from eth.vm.forks.prague.blocks import PragueBlockHeader
from eth.vm.forks.prague.constants import SET_CODE_TRANSACTION_TYPE
from eth.vm.forks.prague.state import PragueState, PragueTransactionExecutor
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from eth.vm.spoof import SpoofTransaction
from eth_hash.auto import keccak
from eth_keys.datatypes import PrivateKey
from eth_keys.exceptions import BadSignature
from eth_typing import Address, Hash32
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException

from codezero.chain.devchain_metering import REFUSED, RUN_SECONDS, RpcRefusal, TimedComputation
from codezero.chain.devchain_store import Head, Mined, Store
from codezero.chain.errors import ERROR_STRING
from codezero.errors import ChainError, translated
from codezero.system.files import read_private, write_new

BLOCK_GAS = 30_000_000
"""Gas of a block, and so of its one transaction."""
REVERTED = 3
"""JSON-RPC's code for a call that the contract refused."""
BASE_FEE, TIP = 1_000_000, 1_000_000
"""wei per gas, for ever, and what is suggested on top: a transaction of 100,000 gas costs 2e-7 ETH."""
ESTIMATE_WITHIN = 200
"""An estimate is at most 1/200 above the least gas that does."""
RICHES, FULL = 10**27, 10**19
"""wei: what the faucet owns at the start, and up to what it fills an account that has less than half of it."""
FUND_GAS = 100_000
"""More than a plain transfer needs, for accounts that are contracts."""
MOST_AUTHORIZATIONS = 64
"""Of one transaction; each costs 10 ms before its first instruction runs."""

# Given each time that a contract destroys itself; where warnings are errors it would break the contract's execution.
warnings.filterwarnings("ignore", "SELFDESTRUCT opcode", DeprecationWarning)


class CheckingExecutor(PragueTransactionExecutor):
    """Prague's, which refuses in the words that clients know, and by the rules that py-evm leaves to others."""

    def validate_transaction(self, transaction: SignedTransactionAPI) -> None:
        """Raises RpcRefusal."""
        tx, state, sender = transaction, self.vm_state, transaction.sender
        chain_id = state.execution_context.chain_id
        have, want = state.get_balance(sender), tx.gas * tx.max_fee_per_gas + tx.value
        nonce, least = state.get_nonce(sender), max(tx.intrinsic_gas, self.calc_data_floor_gas(tx, 0, 0))
        fees = f"maxFeePerGas: {tx.max_fee_per_gas}, maxPriorityFeePerGas: {tx.max_priority_fee_per_gas}"
        authorizations = cast(Any, tx).authorization_list if tx.type_id == SET_CODE_TRANSACTION_TYPE else ()
        who = f"address 0x{sender.hex()}, tx: {tx.nonce} state: {nonce}"
        for wrong, message in (
            (tx.type_id == BLOB_TX_TYPE, "transaction type not supported: blobs"),
            (len(authorizations) > MOST_AUTHORIZATIONS, f"more than {MOST_AUTHORIZATIONS} authorizations"),
            (tx.chain_id is None, "only replay-protected (EIP-155) transactions allowed over RPC"),
            (tx.chain_id != chain_id, f"invalid chain id for signer: have {tx.chain_id} want {chain_id}"),
            (tx.gas > BLOCK_GAS, f"exceeds block gas limit: {tx.gas} > {BLOCK_GAS}"),
            (not tx.to and len(tx.data) > MAX_INITCODE_SIZE, f"max initcode size exceeded: {len(tx.data)}"),
            (tx.gas < least, f"intrinsic gas too low: gas {tx.gas}, minimum needed {least}"),
            (tx.max_priority_fee_per_gas > tx.max_fee_per_gas, f"max priority fee per gas higher than max fee: {fees}"),
            (tx.max_fee_per_gas < state.base_fee, f"max fee per gas less than block base fee: {fees}"),
            (tx.nonce < nonce, f"nonce too low: {who}"),
            (tx.nonce > nonce, f"nonce too high: {who}; this chain does not queue transactions"),
            (have < want, f"insufficient funds for gas * price + value: address 0x{sender.hex()} {have=} {want=}"),
        ):
            if wrong:
                raise RpcRefusal(REFUSED, message)


class TimedState(PragueState):
    """Prague's state after a block. seconds: of the thread's CPU, for all that is run on it."""

    computation_class = TimedComputation
    transaction_executor_class = CheckingExecutor

    def __init__(self, seconds: float, *arguments: Any) -> None:
        self.deadline = time.thread_time() + seconds
        super().__init__(*arguments)

    def set_system_contracts(self) -> None:
        """None: they are for beacon blocks, which this chain has not."""


class SimulatedCall(NamedTuple):
    """A transaction that is only tried. value: wei; gas: None is as much as a block holds; to empty: a new contract."""

    sender: bytes
    to: bytes
    value: int
    data: bytes
    gas: int | None = None


class Evm:
    """Executes over a store, in one thread. A new chain begins here, with a new faucet key. Raises ChainError.

    seconds: of CPU, for one call, estimate or transaction; more raises OutOfTime.
    """

    def __init__(self, store: Store, chain_id: int, faucet_key: Path, seconds: float = RUN_SECONDS) -> None:
        self._store, self._chain_id, self._faucet_key, self._seconds = store, chain_id, faucet_key, seconds
        if store.head is None:
            write_new(faucet_key, secrets.token_bytes(32).hex().encode())
            state = AccountDB(store.state_db, BLANK_ROOT_HASH)
            state.set_balance(Address(_key(faucet_key).public_key.to_canonical_address()), RICHES)
            store.add(_header(None).copy(state_root=state.make_state_root()), None, state.persist)

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
        return bytes(done.output) if done.is_success else _fail(done)

    def estimate(self, call: SimulatedCall, at: Head) -> int:
        """Gas that is enough, by bisection from the gas used: calls keep back more than they use. Raises RpcRefusal."""
        state, high = self._state(at, _header(at, base_fee=0)), min(call.gas or BLOCK_GAS, BLOCK_GAS)
        done = self._try(call, state, high)
        if done.is_error:
            _fail(done)
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
        tx = _decode(raw)
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
        self._store.add(header, Mined(tx, receipt, done, state.get_gas_price(tx)), state.persist)
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
        return TimedState(self._seconds, self._store.state_db, context, at.state_root)


def _key(path: Path) -> PrivateKey:
    """The faucet's. Raises ChainError."""
    mend = "put the faucet's key back, or begin a new chain in another directory"
    if not path.exists():
        raise ChainError(f"{path} is missing: {mend}")
    with translated(ChainError, f"{path} does not hold a key: {mend}", ValueError, ValidationError, reason=False):
        return PrivateKey(bytes.fromhex(read_private(path, 128).decode()))


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


def _decode(raw: bytes) -> SignedTransactionAPI:
    """A well-formed transaction, its signature checked. Raises RpcRefusal."""
    try:
        tx = PragueTransactionBuilder.decode(raw)
        if tx.encode() != raw:
            raise RLPException("not the canonical encoding")
        if not 0 < tx.s <= SECPK1_N // 2 or not 0 < tx.r < SECPK1_N:
            raise BadSignature("out of range")
        if tx.type_id == SET_CODE_TRANSACTION_TYPE:
            cast(Any, tx)._inner.validate()
        _ = tx.sender  # recovered once and kept
    except (UnrecognizedTransactionType, ValidationError, RLPException, RecursionError, BadSignature) as error:
        reason = " ".join(str(error).split())[:200]
        raise RpcRefusal(REFUSED, f"not a signed transaction: {type(error).__name__}: {reason}") from error
    return tx


def _fail(done: ComputationAPI) -> NoReturn:
    """Raises RpcRefusal: the contract's with its bytes, or what went wrong inside."""
    if not isinstance(done.error, Revert):
        name = type(done.error).__name__
        text = "out of gas" if name == "OutOfGas" else f"execution failed: {name}: {done.error}"
        raise RpcRefusal(REFUSED, text[:300])
    output, reason = bytes(done.output), ""
    if output[:4] == ERROR_STRING and len(output) >= 68:  # its words, which other nodes put into the message
        length = min(int.from_bytes(output[36:68], "big"), 1024)
        reason = f": {output[68 : 68 + length].decode('utf-8', 'replace')}"
    raise RpcRefusal(REVERTED, f"execution reverted{reason}", f"0x{output.hex()}")
