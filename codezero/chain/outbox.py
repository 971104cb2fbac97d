"""Points on their way to the chain: kept on disk at once, sent in the background, each submission accepted once.

A round is sealed when it is over and training has moved on (or `settle_seconds` have passed), or `submit_after` seconds
after its first points; then its mean reward and its vote are tried until they are accepted or refused for good. Points
that come for a sealed round count in the next one that is not.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections import deque
from pathlib import Path
from typing import Literal

from codezero.chain.contract import ContractCoordinator
from codezero.chain.errors import BLOCKING, UnknownOutcomeError
from codezero.chain.outbox_db import PROBLEM, OutboxStore
from codezero.chain.submitter import Submitter
from codezero.errors import ChainError
from codezero.system.signals import Backoff

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
"""Seconds before another try."""
CLOSE_SECONDS = 5.0
MAX_UNSAVED = 1024
"""Iterations kept in memory while the file cannot be written; the oldest are dropped."""
STANDSTILL = 3.0
"""Round lengths after which an open round is taken for the last one."""
PATIENCE = 3
"""Tries after which it is worth a complaint that a transaction is not in a block yet."""


Topic = Literal["chain", "file", "standstill"]


class ChainOutbox:
    """Of one peer on one contract. Raises ChainError when the file is another peer's or in use.

    submit_after: seconds after its first points at which a round is submitted though it is still open; None: never.
    round_seconds: how long rounds last, to notice that nobody opens them any more; None: not known.
    settle_seconds: for the points of an iteration that began before its round was over. every: between two looks.
    """

    def __init__(
        self,
        path: Path,
        coordinator: ContractCoordinator,
        peer: str,
        *,
        submit_after: float | None = None,
        round_seconds: float | None = None,
        settle_seconds: float = 60.0,
        every: float = 1.0,
    ) -> None:
        self.path = path
        self._coordinator, self._peer, self._every = coordinator, peer, every
        self._submit_after, self._round_seconds, self._settle_seconds = submit_after, round_seconds, settle_seconds
        self._open_since = (-1, 0.0)
        """The open round, and when this process first saw it. time.monotonic()."""
        self._since: dict[tuple[int, bool], float] = {}
        """By round being collected, and whether it is over: when this process first saw that. time.monotonic()."""
        self._newest = -1
        """The latest round that training has added to."""
        self._adding = threading.Lock()
        self._unsaved: deque[tuple[int, int, float, str | None]] = deque(maxlen=MAX_UNSAVED)
        self._problems: dict[Topic, str] = {}
        self._pause = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._until = float("inf")
        self._done = False
        self._died: BaseException | None = None
        chain, account = str(coordinator.client.chain_id), coordinator.account
        owner = {"chain": chain, "contract": coordinator.contract, "account": account, "peer": peer}
        self._store = OutboxStore(path, owner)
        self._submitter = Submitter(self._store, coordinator, peer)
        self._thread = threading.Thread(target=self._work, name="chain-outbox", daemon=True)
        self._thread.start()

    def add(self, iteration: int, round_number: int, reward: float, vote: str | None) -> None:
        """Count one iteration's reward and its vote, once however often it is repeated; an own vote is dropped.

        Takes no longer than a write to the file; while the file cannot be written, points wait in memory.
        """
        if self._died is not None:
            raise ChainError(f"the outbox broke down ({self._died!r})") from self._died
        with self._adding:
            self._unsaved.append((iteration, round_number, reward, None if vote == self._peer else vote))
            self._newest = max(self._newest, round_number)
            self._save()
        self._wake.set()

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Submit what can be, the open round too, for at most `seconds`; then stop. Is nothing left?

        What is left is sent after the next start. A try under way may outlast this by some seconds.
        """
        self._until = min(self._until, time.monotonic() + seconds)
        self._closing.set()
        self._wake.set()
        self._thread.join(max(0.0, self._until - time.monotonic()) + 1.0)
        if self._thread.is_alive():
            return False
        self._store.close()
        return self._done

    def _save(self) -> None:
        """Called with the lock. What cannot be written stays in memory and is tried again."""
        try:
            while self._unsaved:
                self._store.add(*self._unsaved[0])
                self._unsaved.popleft()
        except sqlite3.Error as error:
            self._report("file", f"{self.path} cannot be written ({error})")
        else:
            self._report("file", "")

    def _report(self, topic: Topic, problem: str) -> None:
        """Log and publish a problem that is new or has changed; an empty one is over."""
        if self._problems.get(topic, "") == problem:
            return
        self._problems[topic] = problem
        if problem:
            logger.error("points are kept back: %s", problem)
        else:
            logger.info("points reach the chain again")
        with contextlib.suppress(sqlite3.Error):  # it has been logged
            self._store.note(PROBLEM, "; ".join(dict.fromkeys(filter(None, self._problems.values()))))

    def _work(self) -> None:
        try:
            while not self._closing.is_set():
                self._poll()
                self._wake.wait(self._every)
                self._wake.clear()
            while time.monotonic() < self._until and self._left():
                self._poll()
                time.sleep(min(0.1, max(0.0, self._until - time.monotonic())))
            self._done = not (self._left() or self._unsaved)
        except BaseException as error:  # a bug: raised by the next `add`, or training would go on uncounted
            self._died = error
            raise

    def _left(self) -> bool:
        return bool(self._store.unsettled() or self._store.collecting())

    def _poll(self) -> None:
        """Do whatever is due now."""
        if self._pause.left:
            return
        try:
            with self._adding:
                self._save()
            self._seal()
            if self._deliver():
                self._pause.succeeded()
                return
        except ChainError as error:
            self._report("chain", str(error))
        except sqlite3.Error as error:
            self._report("file", f"{self.path} cannot be used ({error})")
        self._pause.failed()

    def _seal(self) -> None:
        """Seal what is ready. Raises ChainError when the chain does not say which round is open, and sqlite3.Error."""
        if collecting := self._store.collecting():
            current, now = self._coordinator.current_round(), time.monotonic()
            self._notice_standstill(current, now)
            if ready := [number for number in collecting if self._is_ready(number, current, now)]:
                self._store.seal(ready[-1])
                self._since = {key: at for key, at in self._since.items() if key[0] > ready[-1]}

    def _notice_standstill(self, current: int, now: float) -> None:
        """Say so when the swarm is in its last round, as whoever opened rounds is gone."""
        number, since = self._open_since
        if number != current:
            self._open_since = (current, now)
            self._report("standstill", "")
        elif self._round_seconds is not None and now - since > STANDSTILL * self._round_seconds:
            self._report(
                "standstill",
                f"round {current} stays open, though rounds last {self._round_seconds:g} s: nobody opens the next one. "
                "Training goes on in this one, and later points wait",
            )

    def _is_ready(self, number: int, current: int, now: float) -> bool:
        over = number < current
        lasted = now - self._since.setdefault((number, over), now)
        if number > current or self._closing.is_set():
            return number <= current
        if over:
            return self._newest > number or lasted >= self._settle_seconds
        return self._submit_after is not None and lasted >= self._submit_after

    def _deliver(self) -> bool:
        """Try what is sealed, oldest first, while there is time. Is none of it left? Raises sqlite3.Error."""
        problem, fine = "", True
        unsettled = self._store.unsettled()
        for submission in unsettled:
            if time.monotonic() >= self._until:
                return fine
            try:
                reason = self._submitter.settle(submission)
                self._pause.succeeded()
            except ChainError as error:
                fine, reason = False, str(error)
                if isinstance(error, UnknownOutcomeError) and self._pause.failures + 1 < PATIENCE:
                    break
                if isinstance(error, BLOCKING):
                    self._report("chain", reason)
                    break
            if problem := problem or reason:
                self._report("chain", problem)
        if unsettled and fine and not problem:
            self._report("chain", "")
        return fine
