"""One transaction, from a question to a receipt, so that it takes effect at most once whatever is lost on the way.

Nothing an endpoint says about a transaction that was sent is believed, neither yes nor no: the chain is looked at.
What was signed is recorded before it leaves and the same bytes are sent again. A new one is signed only when the old
one can never be mined, because the account has used its nonce, or takes the place of a stuck one under its nonce.
"""

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eth_utils.crypto import keccak

from codezero.chain.errors import (
    ChainUnreachableError,
    ContractError,
    InsufficientFundsError,
    RpcError,
    UnknownOutcomeError,
    WrongChainError,
)
from codezero.chain.rpc import (
    Block,
    Question,
    Receipt,
    Rpc,
    read_block,
    read_bytes,
    read_quantity,
    read_receipt,
)
from codezero.chain.signed import Signed
from codezero.chain.wallet import Transaction, Wallet
from codezero.errors import ChainError

logger = logging.getLogger(__name__)
_dice = random.Random()  # the shared one is seeded for training, and is not to be drawn from in other threads

HEADROOM = 1.25
"""The state can change between the estimate and the block."""
MAX_GAS = 15_000_000
MAX_FEE = 2_000 * 10**9
"""wei for each unit of gas. An endpoint's lie costs at most MAX_GAS * MAX_FEE a transaction."""
DEFAULT_TIP = 10**9
FIRST_LOOK, LONGEST_PAUSE = 0.05, 2.0
"""Seconds between two looks at a transaction that was sent."""
AGAIN_SECONDS = 5.0
"""The same bytes are sent again when they have not been mined for this long."""
GONE_SECONDS = 0.5
"""A node may count a transaction before it shows its receipt; only after this long is it believed gone."""
STUCK_SECONDS = 60.0
"""Then another one under the same nonce offers a quarter more."""
MAX_SIGNED = 8
"""Transactions signed for one purpose in one go; more means that something else is wrong."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What the chain shows of some transactions with one purpose."""

    receipt: Receipt | None = None
    """Of the one that took effect."""
    waiting: Signed | None = None
    """One that may still be mined."""
    count: int = 0
    """Transactions of the account that were mined: the nonce of the next."""


class Sender:
    """Signs and sends for one account. Threads take turns; other processes with the same account are noticed."""

    def __init__(self, rpc: Rpc, wallet: Wallet) -> None:
        self.rpc, self.wallet = rpc, wallet
        self._turn = _turn_of(rpc.chain_id, wallet.address)
        self._since: dict[str, float] = {}
        """By hash: when this process first sent it. time.monotonic()."""

    @property
    def address(self) -> str:
        return self.wallet.address

    def transact(
        self,
        to: str | None,
        data: bytes,
        seconds: float,
        *,
        earlier: Sequence[Signed] = (),
        record: Callable[[Signed], None] | None = None,
    ) -> Receipt:
        """Bring about one call (or deployment) and wait until it is mined.

        earlier: what was signed for the same purpose before, perhaps by a process that was killed.
        record: called with each new one before it is sent; it has to be durable when this returns.
        Raises ContractError when the contract refuses it now; UnknownOutcomeError when time is over and one may still
        be mined; ChainUnreachableError, RpcError, InsufficientFundsError when none can be.
        """
        until = time.monotonic() + seconds
        with self._turn:
            return self._settle(to, data, until, list(earlier), record)

    def simulate(self, to: str | None, data: bytes) -> None:
        """Would the contract accept it now? Raises ContractError when not."""
        self.rpc.ask(self._simulation(to, data))

    def _settle(
        self, to: str | None, data: bytes, until: float, signed: list[Signed], record: Callable[[Signed], None] | None
    ) -> Receipt:
        pauses, new = _pauses(), 0
        while True:
            try:
                fate = self._look_twice(signed)
                if fate.receipt is not None:
                    return fate.receipt
                if fate.waiting is None or self._stuck(fate.waiting):
                    if new == MAX_SIGNED:
                        raise ChainError("transactions keep failing although the contract accepts them in advance")
                    signed.append(self._sign(to, data, fate, raises=new + len(signed)))
                    new += 1
                    if record is not None:
                        record(signed[-1])
                    self._send(signed[-1])
                elif self._overdue(fate.waiting):
                    self._send(fate.waiting)
            except (ChainUnreachableError, WrongChainError, RpcError) as error:
                if time.monotonic() >= until:
                    raise _unknown(signed, error) if signed else error from error
            if time.monotonic() >= until:
                raise _unknown(signed, None)
            time.sleep(min(next(pauses), max(0.0, until - time.monotonic())))

    def _look_twice(self, signed: Sequence[Signed]) -> Fate:
        fate = self._look(signed)
        if signed and fate.receipt is None and fate.waiting is None:
            time.sleep(GONE_SECONDS)
            fate = self._look(signed)
        return fate

    def _look(self, signed: Sequence[Signed]) -> Fate:
        """The count is asked for first: what it has passed and has no receipt even afterwards is never mined."""
        if not signed:
            return Fate()
        count = self.rpc.ask(Question("eth_getTransactionCount", [self.address, "latest"], read_quantity))
        receipts = self.rpc.batch([Question("eth_getTransactionReceipt", [one.hash], read_receipt) for one in signed])
        for receipt, one in zip(receipts, signed, strict=True):
            if receipt is not None and receipt.transaction_hash.lower() == one.hash and int(receipt.status, 16) == 1:
                return Fate(receipt=receipt)
        waiting = [one for receipt, one in zip(receipts, signed, strict=True) if receipt is None and one.nonce >= count]
        return Fate(waiting=waiting[-1] if waiting else None, count=count)

    def _sign(self, to: str | None, data: bytes, fate: Fate, raises: int) -> Signed:
        """Asks the contract first, so that a refusal costs nothing. Raises ContractError, InsufficientFundsError."""
        call = self._call(to, data)
        questions: list[Question[object]] = [
            self._simulation(to, data),
            Question("eth_estimateGas", [call], read_quantity),
            Question("eth_getTransactionCount", [self.address, "pending"], read_quantity),
            Question("eth_getBalance", [self.address, "latest"], read_quantity),
            Question("eth_getBlockByNumber", ["latest", False], read_block),
            Question("eth_maxPriorityFeePerGas", [], read_quantity),
        ]
        *answers, tip = self.rpc.try_batch(questions)
        for answer in answers:
            if isinstance(answer, ChainError):
                raise answer
        _, estimate, pending, balance, block = answers
        assert isinstance(estimate, int) and isinstance(pending, int) and isinstance(balance, int)
        assert isinstance(block, Block)
        gas = min(int(estimate * HEADROOM), MAX_GAS)
        asked = tip if isinstance(tip, int) else DEFAULT_TIP  # not every chain has the method
        tip, fee = _fees(block, asked, 1.25**raises if fate.waiting else 1.0)
        if balance < gas * fee:
            raise InsufficientFundsError(self.address, balance, gas * fee)
        nonce = fate.count if fate.waiting else pending
        raw = self.wallet.sign_transaction(Transaction(self.rpc.chain_id, nonce, to, data, gas, fee, tip))
        return Signed("0x" + keccak(raw).hex(), nonce, raw)

    def _send(self, signed: Signed) -> None:
        self._since.setdefault(signed.hash, time.monotonic())
        self._since[f"last {signed.hash}"] = time.monotonic()
        while len(self._since) > 256:
            self._since.pop(next(iter(self._since)))
        try:
            self.rpc.send(signed.raw)
        except (ChainUnreachableError, WrongChainError, RpcError, ContractError) as error:
            logger.debug("sending %s: %s", signed.hash, error)

    def _overdue(self, signed: Signed) -> bool:
        last = self._since.get(f"last {signed.hash}")
        return last is None or time.monotonic() - last >= AGAIN_SECONDS

    def _stuck(self, signed: Signed) -> bool:
        first = self._since.get(signed.hash)
        return first is not None and time.monotonic() - first >= STUCK_SECONDS

    def _call(self, to: str | None, data: bytes) -> dict[str, str]:
        call = {"from": self.address, "data": "0x" + data.hex()}
        return call if to is None else call | {"to": to}

    def _simulation(self, to: str | None, data: bytes) -> Question[object]:
        return Question("eth_call", [self._call(to, data), "latest"], read_bytes)


def _fees(block: Block, tip: int, factor: float) -> tuple[int, int]:
    """Tip and highest fee. Raises ChainUnreachableError for fees that nobody should pay."""
    if block.base_fee_per_gas is None:
        raise ChainUnreachableError("the chain has no base fee (EIP-1559), which this version needs")
    tip = int(tip * factor)
    fee = int(2 * int(block.base_fee_per_gas, 16) * factor) + tip
    if fee > MAX_FEE:
        raise ChainUnreachableError(f"the chain asks for more than {MAX_FEE // 10**9} gwei for a unit of gas")
    return tip, fee


def _unknown(signed: Sequence[Signed], why: ChainError | None) -> UnknownOutcomeError:
    text = f"a transaction was sent and has not been seen in a block yet{f' ({why})' if why else ''}"
    return UnknownOutcomeError(text, signed[-1].hash)


def _pauses() -> Iterator[float]:
    pause = FIRST_LOOK
    while True:
        yield _dice.uniform(0.75, 1) * pause
        pause = min(LONGEST_PAUSE, 1.5 * pause)


_turns: dict[tuple[int, str], threading.RLock] = {}
_turns_lock = threading.Lock()


def _turn_of(chain_id: int, address: str) -> contextlib.AbstractContextManager[bool]:
    """Shared by all senders of an account in this process: two at a time would sign the same nonce."""
    with _turns_lock:
        return _turns.setdefault((chain_id, address), threading.RLock())
