"""Work of a node on the chain beside training: it opens rounds, and lists the registered peers."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.errors import ChainError, translated
from codezero.system.files import write_atomic

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator

logger = logging.getLogger(__name__)

MEMBERS_SECONDS = 5.0  # between two readings of the registered peers
MAX_MEMBERS = 20_000  # registered peers that are read, at most
SHORTEST = 0.25  # of a round's length: it never lasts less, however quick everybody is
BASE58 = frozenset("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")


class StageManager:
    """Opens rounds, if the contract lets this account: when one has lasted long enough, or everybody has submitted.

    `tick` is one look, for `Repeating`. A round that is open when the node starts counts from then.
    turn: is it this process that opens rounds, of those with the same account?
    """

    def __init__(
        self,
        coordinator: "ContractCoordinator",
        round_seconds: float,
        *,
        turn: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._coordinator, self._round_seconds, self._turn, self._clock = coordinator, round_seconds, turn, clock
        self._allowed, self._round, self._since, self._cursor = False, -1, 0.0, 0
        self._submitted: dict[int, set[str]] = defaultdict(set)

    def tick(self) -> None:
        """Raises ChainError."""
        role, account = "STAGE_MANAGER_ROLE", self._coordinator.account
        self._allowed = self._turn() and (self._allowed or self._coordinator.has_role(role, account))
        if not self._allowed:
            return
        now = self._coordinator.read_round()
        if now != self._round:
            self._round, self._since = now, self._clock()
        lasted = (self._clock() - self._since) / self._round_seconds
        if lasted >= 1 or (lasted >= SHORTEST and self._everybody_submitted(now)):
            for _ in range(4):  # three stages make a round
                if self._coordinator.read_round() != now:  # perhaps opened by another manager
                    logger.info("round %d is open", now + 1)
                    return
                self._coordinator.send("updateStageAndRound")

    def _everybody_submitted(self, round_number: int) -> bool:
        for page in self._coordinator.history(self._cursor, ["RewardSubmitted"]):
            for event in page.events:
                self._submitted[event["args"]["roundNumber"]].add(event["args"]["peerId"])
            self._cursor = page.cursor
        for old in [number for number in self._submitted if number < round_number - 1]:
            del self._submitted[old]
        active, done = self._submitted.get(round_number - 1, set()), self._submitted.get(round_number, set())
        return bool(active) and active <= done


class Registry:
    """Keeps the registered peers in a file that the gossip reads: who registers has paid in gas.

    `tick` is one reading, for `Repeating`. The list begins with `peer`, only grows and is bounded.
    """

    def __init__(self, coordinator: "ContractCoordinator", path: Path, peer: str) -> None:
        self._coordinator, self._path = coordinator, path
        self._members, self._cursor = {peer: None}, 0

    def tick(self) -> None:
        """Raises ChainError."""
        before = len(self._members)
        for page in self._coordinator.history(self._cursor, ["PeerRegistered"]):
            for event in page.events:
                peer = event["args"]["peerId"]
                if len(self._members) < MAX_MEMBERS and 32 <= len(peer) <= 64 and BASE58.issuperset(peer):
                    self._members[peer] = None
            self._cursor = page.cursor
        if len(self._members) > before:
            with translated(ChainError, f"{self._path} cannot be written", OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(self._path, "".join(f"{member}\n" for member in self._members))
