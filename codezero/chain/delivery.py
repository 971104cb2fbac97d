"""What is sealed goes to the chain: tried until it is accepted or refused for good, each complaint logged once."""

import logging
import sqlite3
import time
from typing import Literal

from codezero.chain.contract import ContractCoordinator
from codezero.chain.errors import (
    REWARDED,
    VOTED,
    ChainUnreachableError,
    ContractError,
    ForeignOwnerError,
    InsufficientFundsError,
    UnknownOutcomeError,
    WrongChainError,
)
from codezero.chain.outbox_db import PROBLEM, OutboxStore, Submission
from codezero.chain.sender import SendOptions
from codezero.errors import ChainError
from codezero.system.signals import Backoff

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds between two tries."""
SECONDS = 15.0
"""For one try of one submission; what was sent by then is looked at again in the next."""
CONCERNS_ALL = (ChainUnreachableError, WrongChainError, ForeignOwnerError, InsufficientFundsError)
"""Failures that the next submission would meet as well."""
PATIENCE = 3
"""Tries after which it is worth a complaint that a transaction is not in a block yet."""

Topic = Literal["all", "reward", "vote", "file", "standstill"]


class Complaints:
    """ERROR when a reason is new or has changed, INFO when it is gone, nothing while it stays."""

    def __init__(self, store: OutboxStore) -> None:
        self._store = store
        self._current: dict[Topic, str] = {}
        self._publish()  # what an earlier process complained of may be over, and nobody else would say so

    def report(self, topic: Topic, reason: str) -> None:
        if self._current.get(topic) == reason:
            return
        self._current[topic] = reason
        logger.error("points are kept back: %s", reason)
        self._publish()

    def over(self, *topics: Topic) -> None:
        ended = [self._current.pop(topic, None) for topic in topics]
        if any(ended):
            logger.info("points reach the chain again")
            self._publish()

    def _publish(self) -> None:
        try:
            self._store.note(PROBLEM, "; ".join(dict.fromkeys(self._current.values())))
        except sqlite3.Error as error:
            logger.debug("the problem cannot be noted: %s", error)


class Delivery:
    """Used from the outbox's thread only."""

    def __init__(self, store: OutboxStore, coordinator: ContractCoordinator, peer: str) -> None:
        self.complaints = Complaints(store)
        self.everything = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        """For what no submission can get past."""
        self._store, self._coordinator, self._peer = store, coordinator, peer
        self._registered = False
        self._each: dict[tuple[int, str], Backoff] = {}

    def deliver(self, until: float) -> None:
        """Try everything that is due, oldest first, while time.monotonic() is before `until`. Raises sqlite3.Error."""
        for submission in self._store.unsettled():
            backoff = self._each.setdefault((submission.round, submission.kind), Backoff(FIRST_PAUSE, LONGEST_PAUSE))
            if backoff.left:
                continue
            if time.monotonic() >= until:
                return
            try:
                self._register()
                self._settle(submission)
            except UnknownOutcomeError as error:
                # Later ones have later nonces: they would have to wait for this one anyway.
                self._store.explain(submission, str(error))
                backoff.failed()
                if backoff.failures >= PATIENCE:
                    self.complaints.report("all", str(error))
                return
            except ChainError as error:
                self._store.explain(submission, str(error))
                backoff.failed()
                if isinstance(error, ContractError) and error.name == "InvalidVoterPeerId":
                    self._registered = False
                if isinstance(error, CONCERNS_ALL):
                    self.failed(error)
                    return
                self.complaints.report(submission.kind, str(error))
            else:
                del self._each[(submission.round, submission.kind)]
                self.everything.succeeded()
                self.complaints.over("all")

    def failed(self, error: ChainError) -> None:
        """Note what keeps everything back."""
        self.everything.failed()
        self.complaints.report("all", str(error))

    def _register(self) -> None:
        if not self._registered:
            self._coordinator.register(self._peer)
            self._registered = True

    def _settle(self, submission: Submission) -> None:
        """Raises ChainError when it is not settled yet."""
        try:
            hash = self._submit(submission)
        except ContractError as error:
            if error.name in (REWARDED, VOTED):
                # The peer is this account's, so an earlier process submitted it and was not answered.
                self._store.settle(submission, "accepted", reason=self._find(submission))
            elif error.final:
                logger.debug("round %d: %s refused: %s", submission.round, submission.kind, error)
                self._store.settle(submission, "refused", reason=str(error))
                self.complaints.report(submission.kind, f"{submission.kind} refused: {error}")
                return
            else:
                raise
        else:
            self._store.settle(submission, "accepted", hash=hash)
        self.complaints.over(submission.kind)

    def _find(self, submission: Submission) -> str:
        """How the chain shows a submission that is there already. Raises ChainUnreachableError when it does not."""
        if submission.kind == "reward":
            reward = self._coordinator.reward_of(submission.round, self._peer)
            values = [] if reward is None else [str(reward)]
        else:
            values = self._coordinator.ballot_of(submission.round, self._peer)
        if not values:
            raise ChainUnreachableError("the chain contradicts itself about what was submitted already")
        return "found on the chain" + ("" if values == [submission.value] else " with another value")

    def _submit(self, submission: Submission) -> str:
        """The hash of the transaction that took effect."""
        options: SendOptions = {
            "seconds": SECONDS,
            "earlier": self._store.signed_for(submission),
            "record": lambda signed: self._store.record(submission, signed),
        }
        if submission.kind == "reward":
            receipt = self._coordinator.submit_reward(submission.round, int(submission.value), self._peer, **options)
        else:
            receipt = self._coordinator.submit_winners(submission.round, [submission.value], self._peer, **options)
        return receipt["transactionHash"].to_0x_hex()
