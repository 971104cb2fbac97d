"""Points on their way to the chain: kept on disk at once, sent in the background, each submission accepted once.

A round is collected while it is open. It is sealed when it is over and training has moved on (or `settle_seconds` have
passed), or `submit_after` seconds after its first points; then its mean reward and its vote are submitted. Points that
come for a sealed round count in the next one that is not. Back-off and waiting go by the monotonic clock, order by
round numbers: the wall clock decides nothing.
"""

import os
import sqlite3
import threading
import time
from collections import deque
from pathlib import Path

from codezero.chain.contract import ContractCoordinator
from codezero.chain.delivery import FIRST_PAUSE, LONGEST_PAUSE, Delivery
from codezero.chain.outbox_db import OutboxStatus, OutboxStore, lock, read_status
from codezero.errors import ChainError
from codezero.system.signals import Backoff

SETTLE_SECONDS = 60.0
"""For the points of an iteration that began before its round was over."""
EVERY = 1.0
"""Seconds between two looks at what is due."""
CLOSE_SECONDS = 5.0
MAX_UNSAVED = 1024
"""Iterations kept in memory while the file cannot be written; the oldest are dropped."""
STANDSTILL = 3.0
"""Round lengths after which an open round is taken for the last one."""
MAX_PEER_ID = 128
"""Bytes, as the contract bounds it."""


class ChainOutbox:
    """Of one peer on one contract. Raises ChainError when the file is another peer's or in use.

    submit_after: seconds after its first points at which a round is submitted though it is still open; None: never.
    round_seconds: how long rounds last, to notice that nobody opens them any more; None: not known.
    """

    def __init__(
        self,
        path: Path,
        coordinator: ContractCoordinator,
        peer: str,
        *,
        submit_after: float | None = None,
        round_seconds: float | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        every: float = EVERY,
    ) -> None:
        self.path = path
        self._coordinator, self._peer = coordinator, peer
        self._submit_after, self._settle_seconds, self._every = submit_after, settle_seconds, every
        self._round_seconds = round_seconds
        self._open_since = (-1, 0.0)
        """The open round, and when this process first saw it. time.monotonic()."""
        self._adding = threading.Lock()
        self._unsaved: deque[tuple[int, float, str | None]] = deque(maxlen=MAX_UNSAVED)
        self._newest = -1
        """The latest round that training has added to."""
        self._seen: dict[int, float] = {}
        """By round being collected: when this process first saw points for it. time.monotonic()."""
        self._over: dict[int, float] = {}
        """By round being collected: when this process first saw that it is over."""
        self._wake, self._closing = threading.Event(), threading.Event()
        self._until = float("inf")
        self._done = False
        self._died: BaseException | None = None
        self._open(path)
        self._delivery = Delivery(self._store, coordinator, peer)
        self._file = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._thread = threading.Thread(target=self._work, name="chain-outbox", daemon=True)
        self._thread.start()

    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        """Count one iteration's reward and whom it votes for; an own vote, or one for no possible id, is dropped.

        Takes no longer than a write to the file; while the file cannot be written, points wait in memory.
        """
        if self._died is not None:
            raise ChainError(f"the outbox broke down ({self._died!r})") from self._died
        if vote is not None and (vote == self._peer or not 0 < len(vote.encode("utf-8", "replace")) <= MAX_PEER_ID):
            vote = None
        with self._adding:
            self._unsaved.append((round_number, reward, vote))
            self._newest = max(self._newest, round_number)
            self._save()
        self._wake.set()

    def status(self) -> OutboxStatus:
        return read_status(self.path)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Submit what can be, the open round too, for at most `seconds`; then stop. Is nothing left?

        What is left is sent after the next start. A try under way may outlast this by some seconds.
        """
        if not self._closing.is_set():
            self._until = time.monotonic() + seconds
            self._closing.set()
            self._wake.set()
        self._thread.join(max(0.0, self._until - time.monotonic()) + 1.0)
        if self._thread.is_alive():
            return False
        if self._lock is not None:
            self._done = not self._left() and not self._unsaved
            self._inbox.close()
            self._store.close()
            os.close(self._lock)
            self._lock = None
        return self._done

    def _open(self, path: Path) -> None:
        self._lock: int | None = lock(path)
        owner = {
            "chain": str(self._coordinator.client.chain_id),
            "contract": self._coordinator.contract,
            "account": self._coordinator.account,
            "peer": self._peer,
        }
        try:
            self._inbox, self._store = OutboxStore(path, durable=False), OutboxStore(path, durable=True)
            self._store.claim(owner)
        except (sqlite3.Error, ChainError) as error:
            os.close(self._lock)
            if isinstance(error, ChainError):
                raise
            raise ChainError(f"the outbox {path} cannot be used ({error}); move it away") from error

    def _save(self) -> None:
        """Called with the lock. What cannot be written stays in memory and is tried again."""
        try:
            while self._unsaved:
                self._inbox.add(*self._unsaved[0])
                self._unsaved.popleft()
        except sqlite3.Error as error:
            self._delivery.complaints.report("file", f"{self.path} cannot be written ({error})")
        else:
            self._delivery.complaints.over("file")

    def _work(self) -> None:
        try:
            while not self._closing.is_set():
                self._round()
                self._wake.wait(self._every)
                self._wake.clear()
            while time.monotonic() < self._until and self._left():
                self._round()
                time.sleep(min(0.1, max(0.0, self._until - time.monotonic())))
        except BaseException as error:  # a bug: told by the next `add`, or training would go on uncounted
            self._died = error
            raise

    def _left(self) -> bool:
        return bool(self._store.unsettled() or self._store.collecting())

    def _round(self) -> None:
        """Whatever is due now."""
        if self._file.left or self._delivery.everything.left:
            return
        try:
            with self._adding:
                self._save()
            if self._seal():
                self._delivery.deliver(self._until)
            self._file.succeeded()
        except sqlite3.Error as error:
            self._file.failed()
            self._delivery.complaints.report("file", f"{self.path} cannot be used ({error})")

    def _seal(self) -> bool:
        """Seal what is ready. False: the chain does not say which round is open. Raises sqlite3.Error."""
        collecting = self._store.collecting()
        if not collecting:
            return True
        try:
            current = self._coordinator.current_round()
        except ChainError as error:
            self._delivery.failed(error)
            return False
        now = time.monotonic()
        self._notice_standstill(current, now)
        for number in collecting:
            self._seen.setdefault(number, now)
            if number < current:
                self._over.setdefault(number, now)
            if self._ready(number, current, now):
                self._store.seal(number)
                self._seen.pop(number)
                self._over.pop(number, None)
        return True

    def _notice_standstill(self, current: int, now: float) -> None:
        """Say so when the swarm is in its last round, as whoever opened rounds is gone."""
        number, since = self._open_since
        if number != current:
            self._open_since = (current, now)
            self._delivery.complaints.over("standstill")
        elif self._round_seconds is not None and now - since > STANDSTILL * self._round_seconds:
            self._delivery.complaints.report(
                "standstill",
                f"round {current} stays open, though rounds last {self._round_seconds:g} s: nobody opens the next one. "
                "Training goes on in this one, and later points wait",
            )

    def _ready(self, number: int, current: int, now: float) -> bool:
        if number > current:
            return False
        if self._closing.is_set():
            return True
        if number == current:
            return self._submit_after is not None and now - self._seen[number] >= self._submit_after
        return self._newest > number or now - self._over[number] >= self._settle_seconds
