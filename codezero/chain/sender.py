"""One transaction, from a request to a receipt, so that it takes effect at most once whatever is lost on the way.

What an endpoint says of a sent transaction is not believed: the chain is read instead. What was signed is recorded
before it leaves and the same bytes are sent again. A new one is signed only when the account has used the old one's
nonce, so that it can never be mined, or under the nonce of a stuck one.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from eth_typing import ChecksumAddress
from eth_utils.crypto import keccak
from web3.exceptions import TransactionNotFound
from web3.types import TxReceipt

from codezero.chain import errors
from codezero.chain.errors import ChainUnreachableError, RpcError, WrongChainError
from codezero.chain.outbox_db import SignedTransaction
from codezero.chain.provider import ChainClient
from codezero.chain.wallet import Wallet, transaction_fields
from codezero.errors import ChainError
from codezero.system.signals import backoff

logger = logging.getLogger(__name__)

SECONDS = 60.0
"""For one transaction, from the simulation to the receipt."""
HEADROOM = 1.25
"""The state can change between the estimate and the block."""
MAX_GAS = 15_000_000
MAX_FEE = 2_000 * 10**9
"""wei for each unit of gas. An endpoint's lie costs at most MAX_GAS * MAX_FEE a transaction."""
DEFAULT_TIP = 10**9
PAUSES = 0.05, 2.0
"""Seconds between two polls for a transaction that was sent, at first and at most."""
AGAIN_SECONDS = 5.0
"""The same bytes are sent again when they have not been mined for this long."""
GONE_SECONDS = 0.5
"""A node may count a transaction before it shows its receipt; only after this long is it believed gone."""
STUCK_SECONDS = 60.0
"""Then another one under the same nonce offers a quarter more."""
MAX_SIGNED = 8
"""Transactions signed for one purpose in one go; more means that something else is wrong."""
Record = Callable[[SignedTransaction], None]


@dataclass(frozen=True, slots=True)
class TransactionState:
    """What the chain shows of some transactions with one purpose."""

    receipt: TxReceipt | None = None
    """Of the one that took effect."""
    waiting: SignedTransaction | None = None
    """One that may still be mined."""
    count: int = 0
    """Transactions of the account that were mined: the nonce of the next."""


class Sender:
    """Signs and sends for one account. Threads take turns; other processes with the same account are noticed."""

    def __init__(self, client: ChainClient, wallet: Wallet) -> None:
        self.client, self.wallet = client, wallet
        self._turn = threading.RLock()
        self._sent: dict[str, tuple[float, float]] = {}
        """By hash, until its purpose is served: when this process sent it first and last. time.monotonic()."""

    @property
    def address(self) -> ChecksumAddress:
        return cast(ChecksumAddress, self.wallet.address)

    def transact(
        self,
        to: str | None,
        data: bytes,
        *,
        seconds: float = SECONDS,
        earlier: Sequence[SignedTransaction] = (),
        record: Record = lambda _: None,
    ) -> TxReceipt:
        """Bring about one call (or deployment) and wait until it is mined.

        earlier: what was signed for the same purpose before, perhaps by a process that was killed. record: called with
        each new one before it is sent; it has to be durable when this returns.

        Raises ContractError when the contract refuses it now; UnknownOutcomeError when time is over and one may still
        be mined; ChainUnreachableError, RpcError, InsufficientFundsError when none can be.
        """
        until, signed, most = time.monotonic() + seconds, list(earlier), len(earlier) + MAX_SIGNED
        why: ChainError | None = None
        with self._turn:
            attempt = 0
            while True:
                attempt += 1
                try:
                    if (receipt := self._step(to, data, signed, most, record)) is not None:
                        return receipt
                except (ChainUnreachableError, WrongChainError, RpcError) as error:
                    if not signed and time.monotonic() >= until:
                        raise
                    why = error
                left = until - time.monotonic()
                if signed and left <= 0:
                    text = f"a transaction was sent and has not been seen in a block yet{f' ({why})' if why else ''}"
                    raise errors.UnknownOutcomeError(text) from why
                time.sleep(max(0.0, min(backoff(attempt, *PAUSES), left)))

    def _step(
        self, to: str | None, data: bytes, signed: list[SignedTransaction], most: int, record: Record
    ) -> TxReceipt | None:
        """Look at what became of what was `signed`; sign and send what is missing. The receipt, once there is one."""
        state = self._read_state(signed)
        if signed and state.receipt is None and state.waiting is None:
            time.sleep(GONE_SECONDS)
            state = self._read_state(signed)
        if state.receipt is not None:
            for transaction in signed:
                self._sent.pop(transaction.hash, None)
            return state.receipt
        now = time.monotonic()
        first, last = self._sent.get(state.waiting.hash if state.waiting else "", (now, -math.inf))
        if state.waiting is None or now - first >= STUCK_SECONDS:
            if len(signed) == most:
                raise ChainError("transactions keep failing although the contract accepts them in advance")
            signed.append(self._sign(to, data, state, raises=len(signed)))
            record(signed[-1])
            self._send(signed[-1])
        elif now - last >= AGAIN_SECONDS:
            self._send(state.waiting)
        return None

    def _read_state(self, signed: Sequence[SignedTransaction]) -> TransactionState:
        """The count is read first: what it has passed and has no receipt even afterwards is never mined."""
        if not signed:
            return TransactionState()
        count = self.client.eth.get_transaction_count(self.address)
        waiting: SignedTransaction | None = None
        for transaction in signed:
            receipt = self._receipt_of(transaction.hash)
            if receipt is None and transaction.nonce >= count:
                waiting = transaction
            elif receipt is not None and receipt["status"] == 1:
                return TransactionState(receipt=receipt)
        return TransactionState(waiting=waiting, count=count)

    def _receipt_of(self, hash: str) -> TxReceipt | None:
        """Of this very transaction."""
        try:
            receipt = self.client.eth.get_transaction_receipt(hash)  # pyright: ignore[reportArgumentType]
        except TransactionNotFound:
            return None
        return receipt if receipt["transactionHash"].to_0x_hex() == hash else None

    def _sign(self, to: str | None, data: bytes, state: TransactionState, raises: int) -> SignedTransaction:
        """Simulates the call first, so that a refusal costs nothing. Raises ContractError, InsufficientFundsError."""
        eth = self.client.eth
        call: Any = {"from": self.address, "data": "0x" + data.hex()} | ({} if to is None else {"to": to})
        eth.call(call)
        gas = min(int(eth.estimate_gas(call) * HEADROOM), MAX_GAS)
        nonce = state.count if state.waiting else eth.get_transaction_count(self.address, "pending")
        tip, fee = self._fees(1.25**raises if state.waiting else 1.0)
        balance = eth.get_balance(self.address)
        if balance < gas * fee:
            raise errors.InsufficientFundsError(
                f"account {self.address} has {balance / 1e18:.6f} of the chain's coin, and a transaction may cost "
                f"{gas * fee / 1e18:.6f}; send it some"
            )
        fields = transaction_fields(self.client.chain_id, nonce, to, data, gas, fee, tip)
        raw = self.wallet.sign_transaction(fields)
        return SignedTransaction("0x" + keccak(raw).hex(), nonce, raw)

    def _fees(self, factor: float) -> tuple[int, int]:
        """Tip and highest fee. Raises ChainUnreachableError for fees that nobody should pay."""
        base = self.client.eth.get_block("latest").get("baseFeePerGas")
        if base is None:
            raise ChainUnreachableError("the chain has no base fee (EIP-1559), which this version needs")
        try:
            tip = int(self.client.eth.max_priority_fee * factor)
        except RpcError:  # not every chain has the method
            tip = int(DEFAULT_TIP * factor)
        fee = int(2 * base * factor) + tip
        if fee > MAX_FEE:
            raise ChainUnreachableError(f"the chain asks for more than {MAX_FEE // 10**9} gwei for a unit of gas")
        return tip, fee

    def _send(self, signed: SignedTransaction) -> None:
        now = time.monotonic()
        self._sent[signed.hash] = self._sent.get(signed.hash, (now, now))[0], now
        try:
            self.client.eth.send_raw_transaction(signed.raw)
        except (ChainUnreachableError, WrongChainError, RpcError, errors.ContractError) as error:
            logger.debug("sending %s: %s", signed.hash, error)
