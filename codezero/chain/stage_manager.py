"""Opens rounds, for whoever the contract lets: when a round has lasted long enough, or everybody has submitted.

A swarm whose stage manager is gone goes on training in the last round. One that comes back counts from its start, so
that no round is ever shorter than it should be because of that.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from codezero.chain.rounds import RoundStage

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator

logger = logging.getLogger(__name__)

EVERY = 2.0
"""Seconds between two readings."""
SHORTEST = 0.25
"""Of a round's length: less it never lasts, however quick everybody is."""
STEPS = 4
"""Stages opened in one go, at most: three make a round."""


class StageManager:
    """`tick` is one reading; `rounds.Repeating` calls it."""

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
        if not self._turn():
            return
        if not self._allowed:
            self._allowed = self._coordinator.is_stage_manager(self._coordinator.account)
            if not self._allowed:
                return
        now = self._coordinator.round_and_stage()
        if now.round != self._round:
            self._round, self._since = now.round, self._clock()
        lasted = self._clock() - self._since
        due = lasted >= self._round_seconds
        if due or (lasted >= SHORTEST * self._round_seconds and self._everybody_submitted(now.round)):
            self._open_next(now)

    def _open_next(self, now: RoundStage) -> None:
        """Step by step, unless another manager has moved on meanwhile."""
        for _ in range(STEPS):
            if self._coordinator.round_and_stage().round != now.round:
                return
            if self._coordinator.advance().round > now.round:
                logger.info("round %d is open", now.round + 1)
                return

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
