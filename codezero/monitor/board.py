"""The leaderboard for the page: read from the chain in a thread of its own, now and then, one read at a time."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from codezero.errors import CodeZeroError
from codezero.monitor.run_types import MAX_PEERS, BoardLine, Leaderboard
from codezero.monitor.text import readable_name

logger = logging.getLogger(__name__)

EVERY_SECONDS = 30.0
WAIT_SECONDS = 5.0
"""That a request waits for the first read; a long chain takes longer, and is shown at a later request."""
BEING_READ = "the chain is being read; look again in a moment"
FAILED = "the chain could not be read; see the log"
MOST = 2**53 - 1
"""Points beyond are shown as this: a peer may claim any number of points."""


class Standing(Protocol):
    """One peer."""

    owner: str
    points: int
    rounds: int
    votes: int
    last_round: int


class Board(Protocol):
    """What the chain says."""

    @property
    def chain_id(self) -> int: ...
    @property
    def contract(self) -> str: ...
    @property
    def round(self) -> int: ...
    @property
    def peers(self) -> Mapping[str, Standing]: ...


class Boards:
    """`read` may take as long as it likes, and raises CodeZeroError when the chain cannot be read."""

    def __init__(
        self, read: Callable[[], Board], *, clock: Callable[[], float] = time.monotonic, wait: float = WAIT_SECONDS
    ) -> None:
        self._read, self._clock, self._wait = read, clock, wait
        self._turn = threading.Lock()
        self._board: Board | None = None
        self._problem = ""
        self._asked = -EVERY_SECONDS
        self._done = threading.Event()
        """Nothing is being read."""
        self._done.set()

    def leaderboard(self, mine: str) -> Leaderboard:
        """As it was read last, at most EVERY_SECONDS ago or while the next read lasts. `mine`: own peer id."""
        with self._turn:
            if self._done.is_set() and self._clock() - self._asked >= EVERY_SECONDS:
                self._asked = self._clock()
                self._done.clear()
                threading.Thread(target=self._work, name="leaderboard", daemon=True).start()
        if self._board is None:
            self._done.wait(self._wait)
        return made(self._board, mine, self._problem if self._board or self._problem else BEING_READ)

    def _work(self) -> None:
        problem = FAILED
        try:
            self._board, problem = self._read(), ""
        except CodeZeroError as error:
            problem = " ".join(str(error).split())
            logger.info("leaderboard: %s", problem)
        finally:
            self._problem = problem
            self._done.set()


def made(board: Board | None, mine: str, problem: str) -> Leaderboard:
    """As the page shows it; without a board only the problem."""
    if board is None:
        return Leaderboard(chain_id=None, contract="", round=None, peers=[], problem=problem)
    ranked = sorted(board.peers.items(), key=lambda entry: (-entry[1].points, -entry[1].votes, entry[0]))
    return Leaderboard(
        chain_id=board.chain_id,
        contract=board.contract,
        round=min(board.round, MOST),
        peers=[
            BoardLine(
                peer_id=peer,
                name=readable_name(peer),
                owner=one.owner,
                points=max(-MOST, min(one.points, MOST)),
                rounds=one.rounds,
                votes=one.votes,
                last_round=min(one.last_round, MOST),
                mine=peer == mine,
            )
            for peer, one in ranked[:MAX_PEERS]
        ],
        problem=problem,
    )
