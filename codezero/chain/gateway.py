"""The contract for programs that call over HTTP: one call, one receipt, one hash; a repeated call is refused by name.

The node's own points go through the outbox, which keeps what it signed. Here nothing is kept: a caller whose
connection broke calls again, and the contract takes one reward and one vote of each peer for each round.
"""

import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from codezero.chain.errors import REGISTERED, ChainUnreachableError, ContractError, ForeignOwnerError

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator

SECONDS = 60.0
"""For one call, from waiting for its turn to the receipt."""


class ContractGateway:
    """Blocks; threads take turns. Each call returns the hash of the transaction that took effect.

    connect: makes the coordinator at the first call, as a page that is only looked at needs no chain.
    Raises ContractError when refused, ForeignOwnerError, UnknownOutcomeError, WalletError, and other ChainErrors when
    nothing was done.
    """

    def __init__(self, connect: "Callable[[], ContractCoordinator]", *, seconds: float = SECONDS) -> None:
        self._connect, self._seconds = connect, seconds
        self._connected: ContractCoordinator | None = None
        self._turn = threading.Lock()

    def register(self, peer: str) -> str:
        """Raises ContractError when it is this account's, ForeignOwnerError when it is another's."""
        with self._taking_turns() as (coordinator, until):
            _refuse_registered(coordinator, peer)
            try:
                return _transact(coordinator, until, "registerPeer", peer)
            except ContractError as error:
                if error.name == REGISTERED:  # another process was faster
                    _refuse_registered(coordinator, peer)
                raise

    def submit_reward(self, round_number: int, stage: int, reward: int, peer: str) -> str:
        with self._taking_turns() as (coordinator, until):
            return _transact(coordinator, until, "submitReward", round_number, stage, reward, peer)

    def submit_winners(self, round_number: int, winners: Sequence[str], peer: str) -> str:
        with self._taking_turns() as (coordinator, until):
            return _transact(coordinator, until, "submitWinners", round_number, list(winners), peer)

    @contextmanager
    def _taking_turns(self) -> "Generator[tuple[ContractCoordinator, float]]":
        """The coordinator, and when the call has to be over: time.monotonic()."""
        until = time.monotonic() + self._seconds
        if not self._turn.acquire(timeout=self._seconds):
            raise ChainUnreachableError("the calls before this one take too long; nothing was sent")
        try:
            if self._connected is None:
                self._connected = self._connect()
                until = time.monotonic() + self._seconds
            if time.monotonic() >= until:
                raise ChainUnreachableError("the calls before this one took too long; nothing was sent")
            yield self._connected, until
        finally:
            self._turn.release()


def _refuse_registered(coordinator: "ContractCoordinator", peer: str) -> None:
    owner = coordinator.owners([peer])[peer]
    if owner == coordinator.account:
        raise ContractError(REGISTERED)
    if owner is not None:
        raise ForeignOwnerError(peer, owner, coordinator.account)


def _transact(coordinator: "ContractCoordinator", until: float, name: str, *arguments: object) -> str:
    receipt = coordinator.send(name, *arguments, seconds=until - time.monotonic())
    return receipt["transactionHash"].to_0x_hex()
