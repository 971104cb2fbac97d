"""What the chain shows of an account's user operations: asked of its own endpoints, never of who sends them."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.crypto import keccak
from msgspec import Meta

from codezero.chain.errors import ChainUnreachableError, RpcError
from codezero.chain.rpc import Hash, Log, Quantity, Question, Receipt, Rpc, read_bytes, read_logs, read_quantity
from codezero.chain.user_operation import ENTRY_POINT, selector

RAN = "0x" + keccak(text="UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)").hex()
"""Topic of what the entry point says of each operation that it ran."""
FIRST_SPAN = 1000
"""Blocks searched at once; many endpoints refuse much more, and some refuse even this."""
MAX_PAGES = 200


class _Bundle(msgspec.Struct, frozen=True, rename="camel"):
    """Receipt of a transaction with operations in it."""

    transaction_hash: Hash
    block_number: Quantity
    gas_used: Quantity
    status: Quantity
    logs: Annotated[list[Log], Meta(max_length=4096)]


class EntryPoint:
    """Questions about one account. Each raises ChainUnreachableError, WrongChainError, RpcError."""

    def __init__(self, rpc: Rpc, account: str) -> None:
        self._rpc, self._account = rpc, account

    def account(self) -> tuple[bytes, int, int]:
        """Its code, its transaction count, and the newest block."""
        code = self._rpc.ask(Question("eth_getCode", [self._account, "latest"], read_bytes))
        count, head = self._rpc.batch(
            [
                Question("eth_getTransactionCount", [self._account, "latest"], read_quantity),
                Question("eth_blockNumber", [], read_quantity),
            ]
        )
        return code, count, head

    def next_nonce(self, key: int) -> int:
        """Of the account's next operation with this key, the key included."""
        data = selector("getNonce(address,uint192)") + encode(["address", "uint192"], [self._account, key])
        call = {"to": ENTRY_POINT, "data": "0x" + data.hex()}
        raw = self._rpc.ask(Question("eth_call", [call, "latest"], read_bytes))
        if len(raw) != 32:
            raise ChainUnreachableError(f"this chain has no entry point for operations at {ENTRY_POINT}")
        return int.from_bytes(raw)

    def ran(self, hash: str, transaction: str) -> Receipt | None:
        """The transaction's receipt, if the operation ran in it with success."""
        bundle = self._rpc.ask(Question("eth_getTransactionReceipt", [transaction], _read_bundle))
        if bundle is None or bundle.transaction_hash.lower() != transaction.lower() or int(bundle.status, 16) != 1:
            return None
        if not any(_tells_success(log, hash) for log in bundle.logs):
            return None
        return Receipt(bundle.transaction_hash, bundle.block_number, bundle.gas_used, bundle.status)

    def mentions(self, hash: str, since: int) -> Iterator[str]:
        """Transactions from block `since` on in which the entry point speaks of the operation."""
        head = self._rpc.ask(Question("eth_blockNumber", [], read_quantity))
        span, cursor = FIRST_SPAN, since
        for _ in range(MAX_PAGES):
            if cursor > head:
                return
            last = min(cursor + span - 1, head)
            wanted = {"address": ENTRY_POINT, "topics": [RAN, hash], "fromBlock": hex(cursor), "toBlock": hex(last)}
            try:
                logs = self._rpc.ask(Question("eth_getLogs", [wanted], read_logs))
            except RpcError:
                if span == 1:
                    raise
                span = max(1, span // 4)
                continue
            yield from (log.transaction_hash for log in logs[:4])
            cursor = last + 1


def _tells_success(log: Log, hash: str) -> bool:
    if log.address.lower() != ENTRY_POINT.lower() or [topic.lower() for topic in log.topics[:2]] != [RAN, hash]:
        return False
    try:
        return bool(decode(["uint256", "bool", "uint256", "uint256"], bytes.fromhex(log.data[2:]))[1])
    except (DecodingError, OverflowError):
        return False


def _read_bundle(raw: msgspec.Raw) -> _Bundle | None:
    return msgspec.json.decode(raw, type=_Bundle | None)
