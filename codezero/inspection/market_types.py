"""What `codezero market` and the page show of a run's market. Text of peers is as it came; amounts are play points."""

from typing import Literal

import msgspec

from codezero.market.ledger import PriceRow

OFF = "this run plays no market: market.enabled=false"


class GameLine(msgspec.Struct, frozen=True, kw_only=True):
    """One game, its texts cut."""

    id: str
    round: int
    kind: str
    state: Literal["open", "pending", "settled", "void", "disputed"]
    """pending: over, and not settled here yet. disputed: this node executed something else than the jury says."""
    phase: str
    rounds_left: int | None
    """To the end of the phase; None: it is over."""
    opener: str
    question: str
    call: str
    """Whose value is asked for; empty: the question is whether a program is right."""
    answers: list[str]
    """[K] An empty one is none of these."""
    own: list[list[int] | None]
    """[STEPS][K] Own reports as sealed, in basis points."""
    stake: int
    win: float | None
    price: PriceRow | None
    answer: int | None
    """By the jury."""
    truth: int | None
    """By what this node's records go."""
    void: str
    """Why no points are paid."""
    evidence: list[bool | None]
    """Of the first tests."""


class MarketPeer(msgspec.Struct, frozen=True):
    peer_id: str
    name: str
    own: bool
    games: float
    gain: float
    """Nats above knowing nothing."""
    no_vote: str
    """Why its reports do not count in prices; empty: they do."""
    balance: float


class Worth(msgspec.Struct, frozen=True):
    """Brier scores, 0 best and 2 worst, over the games whose truth is known and that this node reported on."""

    verdict: str = ""
    games: int = 0
    brier: dict[str, float] = {}
    difference: float | None = None
    """Of the skilled price less the own judge, paired by game: below 0 the price is better. low, high: 95 %."""
    low: float | None = None
    high: float | None = None


class ReliabilityBin(msgspec.Struct, frozen=True):
    """Games whose likeliest answer had a price in one tenth of [0, 1], and the share of them where it was true."""

    games: int
    price: float
    right: float
    low: float
    high: float


class MarketView(msgspec.Struct, frozen=True, kw_only=True):
    why: str = OFF
    """Why there are no bets; empty: there are."""
    round: int | None = None
    balance: float | None = None
    confirming: bool = False
    open: list[GameLine] = []
    bets: list[GameLine] = []
    settled: list[GameLine] = []
    peers: list[MarketPeer] = []
    """Greatest gain first."""
    worth: Worth = Worth()
    reliability: list[ReliabilityBin] = []
    counts: dict[str, int] = {}
    """Since the node's start."""


class GamesPage(msgspec.Struct, frozen=True):
    games: list[GameLine] = []
    older: int | None = None
    """Ask with `before` this round for more; None: there are no more."""


class GamePage(msgspec.Struct, frozen=True, kw_only=True):
    """One game in full; what is by peer is by peer id."""

    line: GameLine
    question: str
    code: str
    tests: list[str]
    answers: list[str]
    names: dict[str, str]
    reports: dict[str, list[list[int] | None]]
    """[STEPS][K] basis points."""
    hidden: dict[str, list[int]]
    """Steps that were sealed and not shown in time."""
    wins: dict[str, float]
    ballots: dict[str, int | None]
    """None: the game should be void."""
    values: list[str]
    """What own attempts return."""
    reference: str | None
    """The solution that the opener kept; empty: it knows none; None: not opened."""
    confirmed: str | None
