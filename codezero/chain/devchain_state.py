"""py-evm's Prague rules as the embedded chain runs them: within a time, and with the refusals that clients know.

The messages are those of other nodes, because clients match on them. Importing this takes a second.
"""

import time
import warnings
from collections.abc import Iterator
from typing import Any, NoReturn, cast

from eth.abc import ComputationAPI, MessageAPI, SignedTransactionAPI
from eth.constants import SECPK1_N
from eth.exceptions import Revert, UnrecognizedTransactionType
from eth.vm.code_stream import CodeStream
from eth.vm.forks.cancun.constants import BLOB_TX_TYPE
from eth.vm.forks.prague.computation import PragueComputation
from eth.vm.forks.prague.constants import SET_CODE_TRANSACTION_TYPE
from eth.vm.forks.prague.state import PragueState, PragueTransactionExecutor
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException

from codezero.errors import ChainError

BLOCK_GAS = 30_000_000
"""Gas of a block, and so of its one transaction."""
RUN_SECONDS = 20.0
"""The longest that one call, estimate or transaction may run."""
CLOCK_EVERY = 1024
"""Instructions between two looks at the clock."""
REFUSED, REVERTED = -32000, 3
"""JSON-RPC's codes for a transaction or call that cannot be, and for one that the contract refused."""
ERROR_STRING = bytes.fromhex("08c379a0")
"""Solidity's Error(string)."""

# Given each time that a contract destroys itself; where warnings are errors it would break the contract's execution.
warnings.filterwarnings("ignore", "SELFDESTRUCT opcode", DeprecationWarning)


class RpcRefusal(ChainError):
    """A JSON-RPC error. `data` is a 0x string, never an object: web3 reads custom errors from it."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class TimedCode(CodeStream):
    """Bytecode that is refused after a deadline (monotonic seconds)."""

    def __init__(self, code: bytes, deadline: float) -> None:
        super().__init__(code)
        self._deadline = deadline

    def __iter__(self) -> Iterator[int]:
        for number, opcode in enumerate(super().__iter__()):
            if number % CLOCK_EVERY == 0:
                check_time(self._deadline)
            yield opcode


class TimedComputation(PragueComputation):
    """Prague's rules, within the time that the state allows."""

    def __init__(self, state: "TimedState", message: MessageAPI, transaction_context: Any) -> None:
        check_time(state.deadline)
        super().__init__(state, message, transaction_context)
        self.code = TimedCode(message.code, state.deadline)


class CheckingExecutor(PragueTransactionExecutor):
    """Prague's, which refuses in the words that clients know, and by the rules that py-evm leaves to others."""

    def validate_transaction(self, transaction: SignedTransactionAPI) -> None:
        """Raises RpcRefusal."""
        tx, state, sender = transaction, self.vm_state, transaction.sender
        chain_id = state.execution_context.chain_id
        have, want = state.get_balance(sender), tx.gas * tx.max_fee_per_gas + tx.value
        nonce, least = state.get_nonce(sender), max(tx.intrinsic_gas, self.calc_data_floor_gas(tx, 0, 0))
        fees = f"maxFeePerGas: {tx.max_fee_per_gas}, maxPriorityFeePerGas: {tx.max_priority_fee_per_gas}"
        who = f"address 0x{sender.hex()}, tx: {tx.nonce} state: {nonce}"
        for wrong, message in (
            (tx.type_id == BLOB_TX_TYPE, "transaction type not supported: blobs"),
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
    """Prague's state after a block, for as long as all that is run on it may take."""

    computation_class = TimedComputation
    transaction_executor_class = CheckingExecutor

    def __init__(self, *arguments: Any) -> None:
        self.deadline = time.monotonic() + RUN_SECONDS
        super().__init__(*arguments)

    def set_system_contracts(self) -> None:
        """None: they are for beacon blocks, which this chain has not."""


def check_time(deadline: float) -> None:
    """Raises RpcRefusal. Not a VMError, which py-evm would swallow."""
    if time.monotonic() > deadline:
        raise RpcRefusal(REFUSED, f"execution aborted (timeout = {RUN_SECONDS:g}s)")


def decode(raw: bytes) -> SignedTransactionAPI:
    """A well-formed transaction, its signature checked. Raises RpcRefusal."""
    try:
        tx = PragueTransactionBuilder.decode(raw)
        if not 0 < tx.s <= SECPK1_N // 2 or not 0 < tx.r < SECPK1_N:
            raise BadSignature("out of range")
        if tx.type_id == SET_CODE_TRANSACTION_TYPE:
            cast(Any, tx)._inner.validate()
        _ = tx.sender  # recovered once and kept
    except (UnrecognizedTransactionType, ValidationError, RLPException, RecursionError, BadSignature) as error:
        reason = " ".join(str(error).split())[:200]
        raise RpcRefusal(REFUSED, f"not a signed transaction: {type(error).__name__}: {reason}") from error
    return tx


def fail(done: ComputationAPI) -> NoReturn:
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
