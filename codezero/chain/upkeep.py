"""What is done with a chain beside training: a node opens its rounds, and lists who is registered.

Nothing heavy is imported here.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from codezero.chain.rounds import MAX_MEMBERS
from codezero.errors import ChainError, translated
from codezero.protocols import Coordinator, Outbox
from codezero.system.files import write_atomic

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator

logger = logging.getLogger(__name__)

MEMBERS_SECONDS = 5.0
"""Between two readings of the registered peers."""
SHORTEST = 0.25
"""Of a round's length: it never lasts less, however quick everybody is."""
STEPS = 4
"""Stages opened in one go, at most: three make a round."""
BASE58 = frozenset("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")


class ChainParts(NamedTuple):
    """What a chain gives to the round loop."""

    coordinator: Coordinator
    outbox: Outbox


class StageManager:
    """Opens rounds, if the contract lets this account: when one has lasted long enough, or everybody has submitted.

    `tick` is one look, for `Repeating`. A round that is open when the node starts counts from then.
    """

    def __init__(
        self,
        coordinator: "ContractCoordinator",
        round_seconds: float,
        *,
        turn: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """turn: is it this process that opens rounds, of those with the same account?"""
        self._coordinator, self._round_seconds, self._turn, self._clock = coordinator, round_seconds, turn, clock
        self._allowed = False
        self._round, self._since = -1, 0.0
        self._cursor = 0
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
        lasted = self._clock() - self._since
        early = lasted >= SHORTEST * self._round_seconds
        if lasted >= self._round_seconds or (early and self._everybody_submitted(now)):
            for _ in range(STEPS):
                if self._coordinator.read_round() != now:  # perhaps opened by another manager
                    logger.info("round %d is open", now + 1)
                    return
                self._coordinator.send("updateStageAndRound")

    def _everybody_submitted(self, round_number: int) -> bool:
        """Has every peer that submitted in the round before submitted in this one too?"""
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

    `tick` is one reading, for `Repeating`. The list begins with `me`, only grows and is bounded.
    """

    def __init__(self, coordinator: "ContractCoordinator", path: Path, me: str) -> None:
        self._coordinator, self._path = coordinator, path
        self._members, self._cursor = {me: None}, 0

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
            write_members(self._path, list(self._members))


def write_members(path: Path, members: list[str]) -> None:
    """One a line, all or nothing. Raises ChainError."""
    with translated(ChainError, f"{path} cannot be written", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(f"{member}\n" for member in members))
