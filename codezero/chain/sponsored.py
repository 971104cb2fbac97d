"""Calls of an account for which somebody else pays: signed here as user operations, brought to the chain by Alchemy.

The account is the same as without (EIP-7702): its address follows a contract, and that contract calls in its name.
As in `sender.py`, what was signed is recorded before it leaves, the same bytes are sent again, and only the chain is
believed about what became of them: a new operation is signed only when the old one can never be run, or under its
nonce, so that one of the two is run at most.
"""

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
from eth_utils.address import to_checksum_address

from codezero.chain.alchemy import Alchemy, UnsponsoredError
from codezero.chain.alchemy_check import Asked, ToSign, UnaskedError, checked
from codezero.chain.alchemy_wire import Signature, SignedAuthorization, SignedOperation, Status
from codezero.chain.entry_point import EntryPoint
from codezero.chain.errors import ChainUnreachableError, RpcError, UnknownOutcomeError, WrongChainError
from codezero.chain.rpc import UNDECODABLE, Receipt, Rpc
from codezero.chain.sender import AGAIN_SECONDS, GONE_SECONDS, MAX_SIGNED, STUCK_SECONDS, Sender
from codezero.chain.signed import Signed
from codezero.chain.user_operation import UserOperation
from codezero.chain.wallet import Wallet
from codezero.errors import ChainError

logger = logging.getLogger(__name__)

SECONDS = 15.0
"""For one question to the service."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 4.0
"""Seconds between two looks at an operation that was sent; the service counts its questions."""
HOPELESS = (UnaskedError, UnsponsoredError)
"""Asking again would not help."""
OPERATION = -1
"""In the place of a transaction's nonce: what was signed is an operation."""


class OperationWallet(Wallet, Protocol):
    """An account that signs operations too."""

    def sign_operation(self, chain_id: int, operation: UserOperation) -> bytes:
        """[65] bytes: an EIP-191 signature of its hash. Raises WalletError."""
        ...

    def sign_authorization(self, chain_id: int, delegate: str, nonce: int) -> bytes:
        """[65] bytes, EIP-7702: the account follows `delegate`, checksummed. Raises WalletError."""
        ...


class _Kept(msgspec.Struct, frozen=True):
    """A signed operation as it is recorded."""

    hash: str
    operation: SignedOperation
    since: int
    """The block after which it can have been run."""

    @property
    def nonce(self) -> int:
        return int(self.operation.data.nonce, 16)

    def signed(self) -> Signed:
        return Signed(self.hash, OPERATION, msgspec.json.encode(self))


@dataclass(slots=True)
class _Sending:
    """What this process did with an operation. time.monotonic()."""

    first: float
    last: float
    id: str | None = None
    """That the service gave it."""


@dataclass(slots=True)
class _Purpose:
    """One call that is wanted, and all that was signed for it."""

    to: str
    data: bytes
    plain: list[Signed]
    """Transactions of earlier, when the account paid for itself."""
    kept: list[_Kept]
    record: Callable[[Signed], None] | None
    room: int = MAX_SIGNED
    """How many more may be signed in one go."""


@dataclass(frozen=True, slots=True)
class _Found:
    receipt: Receipt | None = None
    transaction: Signed | None = None
    """A plain one of earlier, which may still be mined."""
    operation: _Kept | None = None
    """One that may still be run."""


class AlchemySender(Sender):
    """As Sender, sponsored. Threads take turns. Deploys nothing."""

    def __init__(self, rpc: Rpc, wallet: OperationWallet, alchemy: Alchemy) -> None:
        super().__init__(rpc, wallet)
        self._signer, self._alchemy = wallet, alchemy
        self._entry = EntryPoint(rpc, wallet.address)
        self._sendings: dict[str, _Sending] = {}
        self._until = 0.0
        """Of the call whose turn it is: when it has to be over. time.monotonic()."""

    def _settle(
        self, to: str | None, data: bytes, until: float, signed: list[Signed], record: Callable[[Signed], None] | None
    ) -> Receipt:
        if to is None:
            raise ChainError("a sponsored account deploys nothing; deploy with an account that pays for itself")
        plain = [one for one in signed if one.nonce != OPERATION]
        kept = [_read(one) for one in signed if one.nonce == OPERATION]
        purpose = _Purpose(to, data, plain, kept, record)
        self._until = until
        why, pauses = "", _pauses()
        while True:
            try:
                if (receipt := self._step(purpose)) is not None:
                    return receipt
            except (ChainUnreachableError, WrongChainError, RpcError, *HOPELESS) as error:
                if not (plain or kept) and (isinstance(error, HOPELESS) or time.monotonic() >= until):
                    raise
                why = f" ({error})"
            if time.monotonic() >= until:
                last = kept[-1].hash if kept else plain[-1].hash
                raise UnknownOutcomeError(f"an operation was sent and has not been seen in a block yet{why}", last)
            time.sleep(min(next(pauses), max(0.0, until - time.monotonic())))

    def _step(self, purpose: _Purpose) -> Receipt | None:
        """Look once at what became of it, and do what that calls for."""
        found = self._search(purpose.plain, purpose.kept)
        if found.transaction is not None:
            if self._overdue(found.transaction):
                self._send(found.transaction)
        elif found.receipt is None and (found.operation is None or self._given_up(found.operation)):
            if not purpose.room:
                raise ChainError("operations keep failing although the contract accepts them in advance")
            purpose.room -= 1
            new = self._signed_anew(purpose, found.operation)
            purpose.kept.append(new)
            if purpose.record is not None:
                purpose.record(new.signed())
            self._submit(new)
        elif found.operation is not None and self._unsent(found.operation):
            self._submit(found.operation)
        return found.receipt

    # ---- what the chain shows

    def _search(self, plain: Sequence[Signed], kept: Sequence[_Kept]) -> _Found:
        """A node may count a nonce before it shows what used it: one that seems gone is looked for twice."""
        fate = self._look_twice(plain)
        if fate.receipt is not None or fate.waiting is not None:
            return _Found(fate.receipt, fate.waiting)
        found = self._search_once(kept)
        if kept and found == _Found():
            time.sleep(GONE_SECONDS)
            found = self._search_once(kept)
        return found

    def _search_once(self, kept: Sequence[_Kept]) -> _Found:
        waiting: _Kept | None = None
        for one in kept:
            if self._entry.next_nonce(one.operation.data.key) <= one.nonce:
                waiting = one
            elif (receipt := self._run(one)) is not None:
                return _Found(receipt)
        return _Found(operation=waiting)

    def _run(self, one: _Kept) -> Receipt | None:
        """The receipt of the transaction that ran it with success; where to look first, the service may say."""
        status = self._status(one)
        for mined in (status.receipts or [])[:4] if status else []:
            if (receipt := self._entry.ran(one.hash, mined.transaction_hash)) is not None:
                return receipt
        for transaction in self._entry.mentions(one.hash, one.since):
            if (receipt := self._entry.ran(one.hash, transaction)) is not None:
                return receipt
        return None

    # ---- what is signed and sent

    def _signed_anew(self, purpose: _Purpose, old: _Kept | None) -> _Kept:
        """Asks the contract first. Raises ContractError, UnaskedError; `old` is replaced under its nonce."""
        self.simulate(purpose.to, purpose.data)
        code, count, head = self._entry.account()
        asked = Asked(self.address, self.rpc.chain_id, purpose.to, purpose.data, self._alchemy.delegates, code, count)
        prepared = self._alchemy.prepare(asked.account, asked.to, asked.data, asked.chain_id, self._left())
        ready = checked(prepared, asked)
        nonce = int(ready.operation.nonce, 16)
        if old is not None and nonce != old.nonce:
            raise UnaskedError("a second operation beside one that may still be run")
        if nonce != self._entry.next_nonce(ready.operation.key):
            raise UnaskedError("an operation for another time: its nonce is not the account's next")
        return _Kept("0x" + ready.hash.hex(), self._sign_all(ready), head)

    def _sign_all(self, ready: ToSign) -> SignedOperation:
        chain_id, authorization = self.rpc.chain_id, None
        if ready.authorization is not None:
            asked = ready.authorization
            delegate, nonce = to_checksum_address(asked.data.address), int(asked.data.nonce, 16)
            raw = self._signer.sign_authorization(chain_id, delegate, nonce)
            authorization = SignedAuthorization(asked.data, hex(chain_id), Signature("0x" + raw.hex()))
        raw = self._signer.sign_operation(chain_id, ready.operation)
        return SignedOperation(ready.operation, hex(chain_id), Signature("0x" + raw.hex()), authorization)

    def _submit(self, one: _Kept) -> None:
        now = time.monotonic()
        sending = self._sendings.setdefault(one.hash, _Sending(now, now))
        sending.last = now
        for hash in list(itertools.islice(self._sendings, max(0, len(self._sendings) - 256))):
            del self._sendings[hash]
        sending.id = self._alchemy.send(one.operation, self._left())

    def _unsent(self, one: _Kept) -> bool:
        sending = self._sendings.get(one.hash)
        return sending is None or (sending.id is None and time.monotonic() - sending.last >= AGAIN_SECONDS)

    def _given_up(self, one: _Kept) -> bool:
        """By the service, or by time. Before it was sent by this process there is nothing to ask about."""
        sending = self._sendings.get(one.hash)
        if sending is None:
            return False
        status = self._status(one)
        return (status is not None and status.fate == "refused") or time.monotonic() - sending.first >= STUCK_SECONDS

    def _left(self) -> float:
        """Seconds for one question."""
        return min(SECONDS, max(1.0, self._until - time.monotonic()))

    def _status(self, one: _Kept) -> Status | None:
        """None: the service does not say."""
        sending = self._sendings.get(one.hash)
        id = sending.id if sending else None
        with contextlib.suppress(ChainUnreachableError, UnsponsoredError, RpcError):
            return self._alchemy.status(id or f"0x{self.rpc.chain_id:064x}{one.hash[2:]}", self._left())
        return None


def _read(signed: Signed) -> _Kept:
    try:
        return msgspec.json.decode(signed.raw, type=_Kept)
    except UNDECODABLE as error:
        raise ChainError(f"the record of operation {signed.hash} is damaged; restore a copy of the outbox") from error


def _pauses() -> Iterator[float]:
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(LONGEST_PAUSE, 1.5 * pause)
