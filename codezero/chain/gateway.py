"""The contract for who asks over HTTP: one call, one receipt, one hash; what is asked twice is refused by name.

The node's own points go through the outbox, which keeps what it signed. Here nothing is kept: a caller whose
connection broke asks again, and the contract takes one reward and one vote for each round, whoever repeats himself.
"""

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from codezero.chain.contract import ContractCoordinator
from codezero.chain.errors import REGISTERED, ChainUnreachableError, ContractError, ForeignOwnerError

SECONDS = 60.0
"""For one call, from waiting for its turn to the receipt."""


class ContractGateway:
    """Blocks; threads take turns. Each call returns the hash of the transaction that took effect.

    Raises ContractError when refused, ForeignOwnerError, UnknownOutcomeError, WalletError, and other ChainErrors when
    nothing was done.
    """

    def __init__(self, coordinator: ContractCoordinator, *, seconds: float = SECONDS) -> None:
        self._coordinator, self._seconds = coordinator, seconds
        self._turn = threading.Lock()

    def register(self, peer: str) -> str:
        """Raises ContractError when it is this account's, ForeignOwnerError when it is another's."""
        with self._taking_turns() as until:
            self._refuse_registered(peer)
            try:
                return self._transact(until, "registerPeer", peer)
            except ContractError as error:
                if error.name == REGISTERED:  # another process was faster
                    self._refuse_registered(peer)
                raise

    def submit_reward(self, round_number: int, stage: int, reward: int, peer: str) -> str:
        with self._taking_turns() as until:
            return self._transact(until, "submitReward", round_number, stage, reward, peer)

    def submit_winners(self, round_number: int, winners: Sequence[str], peer: str) -> str:
        with self._taking_turns() as until:
            return self._transact(until, "submitWinners", round_number, list(winners), peer)

    def _refuse_registered(self, peer: str) -> None:
        owner = self._coordinator.owners([peer])[peer]
        if owner == self._coordinator.account:
            raise ContractError(REGISTERED)
        if owner is not None:
            raise ForeignOwnerError(peer, owner, self._coordinator.account)

    def _transact(self, until: float, name: str, *arguments: object) -> str:
        receipt = self._coordinator.send(name, *arguments, seconds=until - time.monotonic())
        return receipt["transactionHash"].to_0x_hex()

    @contextmanager
    def _taking_turns(self) -> Generator[float]:
        """When the call has to be over: time.monotonic()."""
        until = time.monotonic() + self._seconds
        if not self._turn.acquire(timeout=self._seconds):
            raise ChainUnreachableError("the calls before this one take too long; nothing was sent")
        try:
            if time.monotonic() >= until:
                raise ChainUnreachableError("the calls before this one took too long; nothing was sent")
            yield until
        finally:
            self._turn.release()
