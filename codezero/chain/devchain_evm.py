"""The rules of the embedded chain: py-evm's Prague, in the words of refusal and the JSON that clients know."""

import re
import secrets
import sqlite3
import time
import warnings
from typing import Any, NoReturn, cast

import rlp
from eth.abc import ComputationAPI, SignedTransactionAPI
from eth.constants import SECPK1_N, ZERO_HASH32
from eth.exceptions import Revert, UnrecognizedTransactionType
from eth.vm.forks.cancun.constants import BLOB_TX_TYPE
from eth.vm.forks.prague.blocks import PragueBlockHeader
from eth.vm.forks.prague.constants import SET_CODE_TRANSACTION_TYPE
from eth.vm.forks.prague.state import PragueState, PragueTransactionExecutor
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from eth_hash.auto import keccak
from eth_keys.exceptions import BadSignature
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException

from codezero.chain.errors import ERROR_STRING
from codezero.errors import ChainError

BLOCK_GAS = 30_000_000  # of a block, and so of its one transaction
BASE_FEE, TIP = 1_000_000, 1_000_000  # wei per gas: a transaction of 100,000 gas costs 2e-7 ETH
REVERTED, REFUSED = 3, -32000  # codes of JSON-RPC
NAMES = {
    "account": "address", "block_number": "number", "bloom": "logsBloom", "coinbase": "miner",
    "receipt_root": "receiptsRoot", "transaction_root": "transactionsRoot", "uncles_hash": "sha3Uncles",
}  # fmt: skip  # JSON's names for fields of py-evm, where they differ by more than camel case
WIDTHS = {"bloom": 512, "storage_keys": 64, "topics": 64}  # digits of numbers that are written in full

Json = dict[str, Any]

# Given each time that a contract destroys itself; where warnings are errors it would break the contract's execution.
warnings.filterwarnings("ignore", "SELFDESTRUCT opcode", DeprecationWarning)


class RpcRefusal(ChainError):
    """A JSON-RPC error. `data` is a 0x string, never an object: web3 reads custom errors from it."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


class CheckingExecutor(PragueTransactionExecutor):
    """Prague's, which refuses in the words that clients know, and by the rules that py-evm leaves to others."""

    def validate_transaction(self, transaction: SignedTransactionAPI) -> None:
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


class ChainState(PragueState):
    transaction_executor_class = CheckingExecutor

    def set_system_contracts(self) -> None:
        """None: they are for beacon blocks, which this chain has not."""


def new_header(parent: sqlite3.Row | None, base_fee: int = BASE_FEE) -> Any:
    """Any: py-evm declares the class abstract and does not type its fields."""
    now = int(time.time())
    return cast(Any, PragueBlockHeader)(
        difficulty=0,
        block_number=0 if parent is None else parent["number"] + 1,
        gas_limit=BLOCK_GAS,
        timestamp=now if parent is None else max(now, parent["timestamp"]),
        parent_hash=ZERO_HASH32 if parent is None else parent["hash"],
        mix_hash=secrets.token_bytes(32),
        nonce=bytes(8),
        base_fee_per_gas=base_fee,
    )


def decode_transaction(raw: bytes) -> SignedTransactionAPI:
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


def fail(done: ComputationAPI) -> NoReturn:
    """Raises RpcRefusal: the contract's with its bytes, or what went wrong inside."""
    if not isinstance(done.error, Revert):
        name = type(done.error).__name__
        text = "out of gas" if name == "OutOfGas" else f"execution failed: {name}: {done.error}"
        raise RpcRefusal(REFUSED, text[:300])
    output, reason = bytes(done.output), ""
    if output[:4] == ERROR_STRING and len(output) >= 68:  # its words, which other nodes put into the message
        length = min(int.from_bytes(output[36:68]), 1024)
        reason = f": {output[68 : 68 + length].decode('utf-8', 'replace')}"
    raise RpcRefusal(REVERTED, f"execution reverted{reason}", f"0x{output.hex()}")


def mined_json(header: Any, tx: Any, receipt: Any, created: bytes | None, price: int) -> tuple[Json, Json]:
    """The transaction and its receipt. created: the address of a new contract. price: wei per gas."""
    number, gas, tx_hash = to_json(header.block_number), to_json(header.gas_used), to_json(keccak(tx.encode()))
    place = {"blockHash": to_json(header.hash), "blockNumber": number, "transactionIndex": "0x0"}
    to = to_json(tx.to) if tx.to else None
    both = place | {"type": to_json(tx.type_id or 0), "from": to_json(tx.sender), "to": to}
    transaction = to_json(getattr(tx, "_inner", tx)) | both
    transaction |= {"hash": tx_hash, "chainId": to_json(tx.chain_id), "gasPrice": to_json(price)}
    transaction["input"] = transaction.pop("data")
    transaction.setdefault("v", transaction.get("yParity"))
    named = place | {"transactionHash": tx_hash}
    logs = [to_json(log) | named | {"logIndex": hex(at), "removed": False} for at, log in enumerate(receipt.logs)]
    return transaction, both | {
        "transactionHash": tx_hash,
        "status": to_json(len(receipt.state_root)),
        "contractAddress": None if created is None else to_json(created),
        "gasUsed": gas,
        "cumulativeGasUsed": gas,
        "effectiveGasPrice": to_json(price),
        "logsBloom": to_json(header.bloom, WIDTHS["bloom"]),
        "logs": logs,
    }


def to_json(value: Any, width: int = 0) -> Any:
    """Write a value as JSON-RPC does. width: least digits of a number."""
    if isinstance(value, int):
        return f"{value:#0{width + 2}x}"
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, rlp.Serializable):
        fields: Json = cast(Any, value).as_dict()
        camel = {name: re.sub("_(.)", lambda letter: letter[1].upper(), name) for name in fields} | NAMES
        return {camel[name]: to_json(field, WIDTHS.get(name, 0)) for name, field in fields.items()}
    return [to_json(item, width) for item in value]
