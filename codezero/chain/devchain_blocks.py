"""Which signed transactions the embedded chain accepts, and a mined one as a block: its hashes, and its JSON.

The messages of refusals are those of other nodes, because clients match on them.
"""

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import rlp
from eth.abc import ComputationAPI, SignedTransactionAPI
from eth.constants import SECPK1_N, ZERO_ADDRESS
from eth.db.trie import make_trie_root_and_nodes
from eth.exceptions import Revert, UnrecognizedTransactionType
from eth.vm.forks.prague.blocks import PragueBlockHeader
from eth.vm.forks.prague.state import PragueTransactionExecutor
from eth.vm.forks.prague.transactions import PragueTransactionBuilder
from eth.vm.forks.shanghai.constants import MAX_INITCODE_SIZE
from eth_hash.auto import keccak
from eth_keys.exceptions import BadSignature
from eth_typing import BlockNumber, Hash32
from eth_utils.exceptions import ValidationError
from rlp.exceptions import RLPException

from codezero.chain.devchain_store import EventRow, Head, MinedBlock
from codezero.errors import ChainError

BLOCK_GAS = 30_000_000
"""Gas of a block, and so of its one transaction."""
BASE_FEE = 1_000_000
"""wei per gas, for ever: a transaction of 100,000 gas costs 2e-7 ETH with the tip."""
BLOB, SET_CODE = 3, 4
"""Transaction types of EIP-4844 and EIP-7702."""
REFUSED, REVERTED = -32000, 3
"""JSON-RPC's codes for a transaction or call that cannot be, and for one that the contract refused."""
HEADER_FIELDS = {
    "number": "block_number", "hash": "hash", "parentHash": "parent_hash", "timestamp": "timestamp",
    "gasLimit": "gas_limit", "gasUsed": "gas_used", "baseFeePerGas": "base_fee_per_gas", "stateRoot": "state_root",
    "transactionsRoot": "transaction_root", "receiptsRoot": "receipt_root", "miner": "coinbase",
    "extraData": "extra_data", "nonce": "nonce", "mixHash": "mix_hash", "sha3Uncles": "uncles_hash",
    "withdrawalsRoot": "withdrawals_root", "parentBeaconBlockRoot": "parent_beacon_block_root",
    "requestsHash": "requests_hash",
}  # fmt: skip
ERROR_STRING = bytes.fromhex("08c379a0")
ZERO_FIELDS = dict.fromkeys(("difficulty", "totalDifficulty", "blobGasUsed", "excessBlobGas"), "0x0")


class RpcRefusal(ChainError):
    """A JSON-RPC error. `data` is a 0x string, never an object: web3 reads custom errors from it."""

    def __init__(self, code: int, message: str, data: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def decode_transaction(raw: bytes) -> SignedTransactionAPI:
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
        for authorization in tx.authorization_list:
            authorization.validate_for_transaction()  # type: ignore[attr-defined]


def check_size(to: bytes, data: bytes, gas: int, least: int) -> None:
    """Raises RpcRefusal."""
    if not to and len(data) > MAX_INITCODE_SIZE:
        raise RpcRefusal(REFUSED, f"max initcode size exceeded: {len(data)} > {MAX_INITCODE_SIZE}")
    if gas < least:
        raise RpcRefusal(REFUSED, f"intrinsic gas too low: gas {gas}, minimum needed {least}")


def check_transaction(tx: SignedTransactionAPI, chain_id: int) -> None:
    """What can be told without looking at the state. Raises RpcRefusal."""
    if tx.chain_id is None:
        raise RpcRefusal(REFUSED, "only replay-protected (EIP-155) transactions allowed over RPC")
    if tx.chain_id != chain_id:
        raise RpcRefusal(REFUSED, f"invalid chain id for signer: have {tx.chain_id} want {chain_id}")
    if tx.gas > BLOCK_GAS:
        raise RpcRefusal(REFUSED, f"exceeds block gas limit: {tx.gas} > {BLOCK_GAS}")
    check_size(tx.to, tx.data, tx.gas, least_gas(tx))
    if tx.max_priority_fee_per_gas > tx.max_fee_per_gas:
        raise RpcRefusal(REFUSED, "max priority fee per gas higher than max fee per gas")
    if tx.max_fee_per_gas < BASE_FEE:
        raise RpcRefusal(
            REFUSED,
            f"transaction underpriced: max fee per gas less than block base fee: "
            f"maxFeePerGas: {tx.max_fee_per_gas}, baseFee: {BASE_FEE}",
        )


def least_gas(tx: Any) -> int:
    """Gas without which a transaction is refused: intrinsic, and EIP-7623's floor for its data."""
    return max(tx.intrinsic_gas, PragueTransactionExecutor.calc_data_floor_gas(tx, 0, 0))


def failure(done: ComputationAPI) -> RpcRefusal:
    """The contract's refusal with its bytes, or what went wrong inside."""
    if isinstance(done.error, Revert):
        output = bytes(done.output)
        return RpcRefusal(REVERTED, f"execution reverted{_reason(output)}", f"0x{output.hex()}")
    name = type(done.error).__name__
    text = "out of gas" if name == "OutOfGas" else f"execution failed: {name}: {done.error}"
    return RpcRefusal(REFUSED, text[:300])


def _reason(output: bytes) -> str:
    """`: reason` of Solidity's Error(string), which other nodes put into the message."""
    if output[:4] != ERROR_STRING or len(output) < 68:
        return ""
    length = int.from_bytes(output[36:68], "big")
    reason = output[68 : 68 + min(length, 1024)].decode("utf-8", "replace")
    return f": {''.join(letter if letter.isprintable() else ' ' for letter in reason)}"


def next_header(parent: Head | None, timestamp: int, mix_hash: bytes, **fields: Any) -> Any:
    """A PragueBlockHeader, whose class py-evm declares abstract and whose later fields it does not type."""
    return cast(Any, PragueBlockHeader)(
        difficulty=0,
        block_number=BlockNumber(0 if parent is None else parent.number + 1),
        gas_limit=BLOCK_GAS,
        timestamp=timestamp,
        coinbase=ZERO_ADDRESS,
        parent_hash=Hash32(b"\0" * 32 if parent is None else parent.hash),
        mix_hash=Hash32(mix_hash),
        nonce=b"\0" * 8,
        base_fee_per_gas=BASE_FEE,
        **fields,
    )


def first_block(timestamp: int, mix_hash: bytes, state_root: bytes) -> MinedBlock:
    """The block before all transactions."""
    header = next_header(None, timestamp, mix_hash, state_root=state_root)
    return MinedBlock(_head(header), _encode(_block_json(header, 0, None)))


def mined_block(header: Any, tx: SignedTransactionAPI, done: ComputationAPI, price: int) -> MinedBlock:
    """The block with the one transaction. header: with its gas and state root. price: wei per gas."""
    entries = done.get_log_entries()
    receipt = tx.make_receipt(b"" if done.is_error else b"\1", header.gas_used, entries)
    header = header.copy(
        transaction_root=make_trie_root_and_nodes((tx,))[0],
        receipt_root=make_trie_root_and_nodes((receipt,))[0],
        bloom=receipt.bloom,
    )
    raw = tx.encode()
    tx_hash = keccak(raw)
    place = {"blockHash": _hex(header.hash), "blockNumber": _hex(header.block_number), "transactionIndex": "0x0"}
    logs = [_log_json(number, entry, tx_hash) | place for number, entry in enumerate(entries)]
    return MinedBlock(
        _head(header),
        _encode(_block_json(header, len(raw), tx_hash)),
        tx_hash,
        _encode(_transaction_json(tx, tx_hash, price) | place),
        _encode(_receipt_json(header, tx, tx_hash, done, price) | place | {"logs": logs}),
        tuple(
            EventRow(entry[0], tuple(topic.to_bytes(32, "big") for topic in entry[1]), _encode(json))
            for entry, json in zip(entries, logs, strict=True)
        ),
    )


def _head(header: Any) -> Head:
    return Head(header.block_number, header.hash, header.timestamp, header.mix_hash, header.state_root)


def _block_json(header: Any, transaction_size: int, tx_hash: bytes | None) -> dict[str, Any]:
    return (
        {name: _hex(getattr(header, field)) for name, field in HEADER_FIELDS.items()}
        | ZERO_FIELDS
        | {
            "logsBloom": f"0x{header.bloom:0512x}",
            "size": _hex(len(cast(Any, rlp).encode(header)) + transaction_size),
            "uncles": [],
            "withdrawals": [],
            "transactions": [] if tx_hash is None else [_hex(tx_hash)],
        }
    )


def _transaction_json(tx: SignedTransactionAPI, tx_hash: bytes, price: int) -> dict[str, Any]:
    kind = tx.type_id or 0
    json: dict[str, Any] = {
        "hash": _hex(tx_hash),
        "type": _hex(kind),
        "chainId": _hex(tx.chain_id or 0),
        "nonce": _hex(tx.nonce),
        "from": _hex(tx.sender),
        "to": _hex(tx.to) if tx.to else None,
        "value": _hex(tx.value),
        "gas": _hex(tx.gas),
        "gasPrice": _hex(price),
        "input": _hex(tx.data),
        "r": _hex(tx.r),
        "s": _hex(tx.s),
    }
    if kind == 0:
        return json | {"v": _hex(tx.v)}  # type: ignore[attr-defined]
    json |= {"v": _hex(tx.y_parity), "yParity": _hex(tx.y_parity)}
    json["accessList"] = [
        {"address": _hex(address), "storageKeys": [f"0x{slot:064x}" for slot in slots]}
        for address, slots in tx.access_list
    ]
    if kind >= 2:
        json["maxFeePerGas"] = _hex(tx.max_fee_per_gas)
        json["maxPriorityFeePerGas"] = _hex(tx.max_priority_fee_per_gas)
    if kind == 4:
        fields = {
            "chainId": "chain_id",
            "address": "address",
            "nonce": "nonce",
            "yParity": "y_parity",
            "r": "r",
            "s": "s",
        }
        json["authorizationList"] = [
            {name: _hex(getattr(authorization, field)) for name, field in fields.items()}
            for authorization in tx.authorization_list
        ]
    return json


def _receipt_json(
    header: Any, tx: SignedTransactionAPI, tx_hash: bytes, done: ComputationAPI, price: int
) -> dict[str, Any]:
    return {
        "transactionHash": _hex(tx_hash),
        "type": _hex(tx.type_id or 0),
        "status": "0x0" if done.is_error else "0x1",
        "from": _hex(tx.sender),
        "to": _hex(tx.to) if tx.to else None,
        "contractAddress": None if tx.to else _hex(done.msg.storage_address),
        "gasUsed": _hex(header.gas_used),
        "cumulativeGasUsed": _hex(header.gas_used),
        "effectiveGasPrice": _hex(price),
        "logsBloom": f"0x{header.bloom:0512x}",
    }


def _log_json(number: int, log: tuple[bytes, Sequence[int], bytes], tx_hash: bytes) -> dict[str, Any]:
    address, topics, data = log
    return {
        "address": _hex(address),
        "topics": [f"0x{topic:064x}" for topic in topics],
        "data": _hex(data),
        "transactionHash": _hex(tx_hash),
        "logIndex": _hex(number),
        "removed": False,
    }


def _hex(value: int | bytes) -> str:
    return hex(value) if isinstance(value, int) else f"0x{value.hex()}"


def _encode(json: dict[str, Any]) -> bytes:
    return msgspec.json.encode(json)
