"""Calls of an account for which somebody else pays: signed here as user operations, brought to the chain by Alchemy.

The account is the same as without (EIP-7702): its address follows a contract, and that contract calls in its name.
As in `sender.py`, what was signed is recorded before it leaves, the same bytes are sent again, and only the chain is
believed about what became of them: a new operation is signed only when the old one can never be run, or under its
nonce, so that one of the two is run at most.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from eth_abi.abi import decode, encode
from eth_abi.exceptions import DecodingError
from eth_utils.abi import function_signature_to_4byte_selector as selector
from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak
from hexbytes import HexBytes
from web3.exceptions import TransactionNotFound
from web3.types import LogReceipt, TxReceipt

from codezero.chain.alchemy import (
    ENTRY_POINT,
    Alchemy,
    CallsStatus,
    UnrequestedError,
    UnsponsoredError,
    WantedCall,
    checked,
)
from codezero.chain.bounded_http import UNDECODABLE
from codezero.chain.errors import ChainUnreachableError, RpcError, UnknownOutcomeError, WrongChainError
from codezero.chain.outbox_db import SignedTransaction
from codezero.chain.provider import ChainClient
from codezero.chain.sender import (
    AGAIN_SECONDS,
    GONE_SECONDS,
    MAX_SIGNED,
    STUCK_SECONDS,
    Record,
    Sender,
)
from codezero.chain.wallet import KeystoreWallet
from codezero.errors import ChainError
from codezero.system.backoff import backoff

SECONDS = 15.0
"""For one request to the service."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0
"""Seconds between two polls for an operation that was sent; the service counts its requests."""
FIRST_SPAN, MAX_PAGES = 1000, 200
"""Blocks searched at once, and how often; many endpoints refuse much more, and some refuse even this."""
RAN = "0x" + keccak(text="UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)").hex()
"""Topic of the event that the entry point emits for each operation that it ran."""
HOPELESS = (UnrequestedError, UnsponsoredError)
"""Another try would not help."""
OPERATION = -1
"""In the place of a transaction's nonce: what was signed is an operation."""


class _Recorded(msgspec.Struct, frozen=True):
    """A signed operation as it is recorded."""

    hash: str
    operation: dict[str, Any]
    """As it was prepared, with a signature; beside it the signed `authorization`, None for none."""
    since: int
    """The block after which it can have been run."""

    @property
    def nonce(self) -> int:
        """Nonces of one key, its upper bits, are used in order."""
        return int(self.operation["data"]["nonce"], 16)


_Waiting = SignedTransaction | _Recorded | None


@dataclass(slots=True)
class _Sending:
    """What this process did with an operation. time.monotonic()."""

    first: float
    last: float
    id: str | None = None
    """That the service gave it."""


class AlchemySender(Sender):
    """As Sender, sponsored. Threads take turns. Deploys nothing."""

    def __init__(self, client: ChainClient, wallet: KeystoreWallet, alchemy: Alchemy) -> None:
        super().__init__(client, wallet)
        self._signer, self._alchemy = wallet, alchemy
        self._sendings: dict[str, _Sending] = {}
        self._until = 0.0
        """Of the call whose turn it is: when it has to be over. time.monotonic()."""

    def _settle(
        self, to: str | None, data: bytes, until: float, signed: list[SignedTransaction], record: Record | None
    ) -> TxReceipt:
        if to is None:
            raise ChainError("a sponsored account deploys nothing; deploy with an account that pays for itself")
        paid = [transaction for transaction in signed if transaction.nonce != OPERATION]
        operations = [_parsed(operation) for operation in signed if operation.nonce == OPERATION]
        self._until, why = until, ""
        earlier, attempt = len(operations), 0
        while True:
            attempt += 1
            try:
                receipt, waiting = self._search(paid, operations)
                if receipt is not None:
                    return receipt
                if waiting is None and len(operations) - earlier == MAX_SIGNED:
                    raise ChainError("operations keep failing although the contract accepts them in advance")
                self._push(to, data, waiting, operations, record)
            except (ChainUnreachableError, WrongChainError, RpcError, *HOPELESS) as error:
                if not (paid or operations) and (isinstance(error, HOPELESS) or time.monotonic() >= until):
                    raise
                why = f" ({error})"
            if time.monotonic() >= until:
                last = operations[-1].hash if operations else paid[-1].hash
                raise UnknownOutcomeError(f"an operation was sent and has not been seen in a block yet{why}", last)
            time.sleep(min(backoff(attempt, FIRST_PAUSE, LONGEST_PAUSE), max(0.0, until - time.monotonic())))

    def _push(
        self, to: str, data: bytes, waiting: _Waiting, operations: list[_Recorded], record: Record | None
    ) -> None:
        """Send again what is overdue, and sign anew in the place of nothing or of what was given up."""
        if isinstance(waiting, SignedTransaction):
            if self._overdue(waiting):
                self._send(waiting)
        elif waiting is None or self._given_up(waiting):
            operations.append(new := self._sign_operation(to, data, waiting))
            if record is not None:
                record(SignedTransaction(new.hash, OPERATION, msgspec.json.encode(new)))
            self._submit(new)
        elif self._unsent(waiting):
            self._submit(waiting)

    # ---- what the chain shows: read from its own endpoints, never from the service

    def _search(
        self, paid: Sequence[SignedTransaction], operations: Sequence[_Recorded]
    ) -> tuple[TxReceipt | None, _Waiting]:
        """The receipt of what took effect, else one that may still be mined or run.

        paid: transactions of earlier, when the account paid for itself. A node may count a nonce before it shows what
        used it: an operation that seems gone is looked for twice.
        """
        state = self._state_of(paid)
        if state.receipt is not None or state.waiting is not None:
            return state.receipt, state.waiting
        fate = self._search_operations(operations)
        if operations and fate == (None, None):
            time.sleep(GONE_SECONDS)
            fate = self._search_operations(operations)
        return fate

    def _search_operations(self, operations: Sequence[_Recorded]) -> tuple[TxReceipt | None, _Recorded | None]:
        waiting: _Recorded | None = None
        for operation in operations:
            if self._next_nonce(operation.nonce >> 64) <= operation.nonce:
                waiting = operation
                continue
            for transaction in self._candidates(operation):
                if (receipt := self._ran(operation.hash, transaction)) is not None:
                    return receipt, None
        return None, waiting

    def _candidates(self, operation: _Recorded) -> Iterator[HexBytes]:
        """Transactions in which it may have run: those that the service names, then those of the entry point's logs."""
        status = self._status(operation)
        yield from (HexBytes(mined.transaction_hash) for mined in ((status.receipts if status else None) or [])[:4])
        head = self.client.eth.block_number
        span, cursor = FIRST_SPAN, operation.since
        for _ in range(MAX_PAGES):
            if cursor > head:
                return
            last = min(cursor + span - 1, head)
            topics: Any = [RAN, operation.hash]
            try:
                logs = self.client.eth.get_logs(
                    {"address": ENTRY_POINT, "topics": topics, "fromBlock": cursor, "toBlock": last}
                )
            except RpcError:
                if span == 1:
                    raise
                span = max(1, span // 4)
                continue
            yield from (log["transactionHash"] for log in logs[:4])
            cursor = last + 1

    def _ran(self, hash: str, transaction: HexBytes) -> TxReceipt | None:
        """The transaction's receipt, if the operation ran in it with success."""
        try:
            receipt = self.client.eth.get_transaction_receipt(transaction)  # pyright: ignore[reportArgumentType]
        except TransactionNotFound:
            return None
        right = receipt["transactionHash"] == transaction and receipt["status"] == 1
        return receipt if right and any(_shows_success(log, hash) for log in receipt["logs"]) else None

    def _next_nonce(self, key: int) -> int:
        """Of the account's next operation with this key, the key included."""
        data = selector("getNonce(address,uint192)") + encode(["address", "uint192"], [self.address, key])
        raw = self.client.eth.call({"to": ENTRY_POINT, "data": data})
        if len(raw) != 32:
            raise ChainUnreachableError(f"this chain has no entry point for operations at {ENTRY_POINT}")
        return int.from_bytes(raw)

    # ---- what is signed and sent

    def _sign_operation(self, to: str, data: bytes, old: _Recorded | None) -> _Recorded:
        """Simulates the call first. Raises ContractError, UnrequestedError; `old` is replaced under its nonce."""
        self.simulate(to, data)
        eth, chain_id = self.client.eth, self.client.chain_id
        code, count = bytes(eth.get_code(self._account)), eth.get_transaction_count(self._account)
        since = eth.block_number
        wanted = WantedCall(self.address, chain_id, to, data, self._alchemy.delegates, code, count)
        authorization, operation = checked(self._alchemy.prepare(wanted, self._left()), wanted)
        nonce = int(operation.data.nonce, 16)
        if old is not None and nonce != old.nonce:
            raise UnrequestedError("a second operation beside one that may still be run")
        if nonce != self._next_nonce(nonce >> 64):
            raise UnrequestedError("an operation for another time: its nonce is not the account's next")
        permit = None
        if authorization is not None:
            delegate = to_checksum_address(authorization.data.address)
            signature = self._signer.sign_authorization(chain_id, delegate, count)
            permit = _signed("authorization", authorization.data, chain_id, signature)
        hash = operation.data.hash(chain_id)
        signed = _signed("user-operation-v070", operation.data, chain_id, self._signer.sign_message(hash))
        return _Recorded("0x" + hash.hex(), signed | {"authorization": permit}, since)

    def _submit(self, operation: _Recorded) -> None:
        now = time.monotonic()
        sending = self._sendings.setdefault(operation.hash, _Sending(now, now))
        sending.last = now
        while len(self._sendings) > 256:
            del self._sendings[next(iter(self._sendings))]
        parts = dict(operation.operation)
        permit = parts.pop("authorization", None)
        sending.id = self._alchemy.send([permit, parts] if permit else [parts], self._left())

    def _unsent(self, operation: _Recorded) -> bool:
        sending = self._sendings.get(operation.hash)
        return sending is None or (sending.id is None and time.monotonic() - sending.last >= AGAIN_SECONDS)

    def _given_up(self, operation: _Recorded) -> bool:
        """By the service, or by time. Before it was sent by this process there is nothing to ask about."""
        sending = self._sendings.get(operation.hash)
        if sending is None:
            return False
        status = self._status(operation)
        return (status is not None and status.refused) or time.monotonic() - sending.first >= STUCK_SECONDS

    def _left(self) -> float:
        """Seconds for one request."""
        return min(SECONDS, max(1.0, self._until - time.monotonic()))

    def _status(self, operation: _Recorded) -> CallsStatus | None:
        """None: the service does not say."""
        sending = self._sendings.get(operation.hash)
        id = (sending.id if sending else None) or f"0x{self.client.chain_id:064x}{operation.hash[2:]}"
        with contextlib.suppress(ChainUnreachableError, UnsponsoredError, RpcError):
            return self._alchemy.status(id, self._left())
        return None


def _shows_success(log: LogReceipt, hash: str) -> bool:
    topics = [topic.to_0x_hex() for topic in log["topics"][:2]]
    if log["address"].lower() != ENTRY_POINT.lower() or topics != [RAN, hash]:
        return False
    try:
        return bool(decode(["uint256", "bool", "uint256", "uint256"], log["data"])[1])
    except (DecodingError, OverflowError):
        return False


def _signed(kind: str, data: msgspec.Struct, chain_id: int, signature: bytes) -> dict[str, Any]:
    """As it was prepared, with r, s and v as 65 bytes."""
    form = {"type": "secp256k1", "data": "0x" + signature.hex()}
    return {"type": kind, "data": msgspec.to_builtins(data), "chainId": hex(chain_id), "signature": form}


def _parsed(signed: SignedTransaction) -> _Recorded:
    try:
        return msgspec.json.decode(signed.raw, type=_Recorded)
    except UNDECODABLE as error:
        raise ChainError(f"the record of operation {signed.hash} is damaged; restore a copy of the outbox") from error
