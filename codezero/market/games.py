"""A game of the market: is this attempt right? What peers say of it, as it travels, and what it pays.

It is announced in round r. Reports are taken in four steps, one in each of the rounds r+1 to r+4, and each node settles
it by itself once it is over. A game is known by the hash of its bytes, so nobody can change it or open it twice.
Whatever decodes is well-formed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.assertions import parse_tests
from codezero.errors import MarketError, ProblemError, translated
from codezero.system.files import PeerId

ONE = 10_000  # basis points of a certain report
STEPS, OVER = 4, 6  # rounds of reports; rounds from the announcement to the settlement
SLACK = 1  # rounds by which a post may come late or early: nodes do not see a round open at once
MOST_GAMES, MOST_REPORTS = 8, 256  # opened by a peer in a round; reports in a post
MOST_TEXT = 16 << 10  # bytes of a whole game
WEIGHTS = (8 / 15, 4 / 15, 2 / 15, 1 / 15)  # of the steps: the first weighs more than all later ones together
POINT = 1000  # amounts are whole milli-points
START, MOST, STAKE = 100 * POINT, 1000 * POINT, 10 * POINT  # first and greatest balance of a peer; stake on a game

Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Tests = Annotated[tuple[Text, ...], Meta(min_length=1, max_length=64)]
Outcomes = Annotated[tuple[bool | None, ...], Meta(max_length=64)]
Reports = Sequence[int | None]  # [STEPS] of one peer: basis points that the attempt is right; None: none at this step


class Game(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    swarm: Annotated[str, Meta(min_length=1, max_length=128)]
    opener: PeerId
    round: Annotated[int, Meta(ge=0, lt=2**53)]
    question: Text
    code: Annotated[str, Meta(min_length=1, max_length=MOST_TEXT)]
    tests: Tests
    proposer: PeerId | None = None  # of the problem

    @property
    def id(self) -> bytes:
        """[32] sha256 of the canonical MessagePack."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).digest()


class GameReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A probability that a game's attempt is right, in basis points. The round of the post says at which step."""

    game: Digest
    q: Annotated[int, Meta(ge=0, le=ONE)]


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Outcomes of a game's first tests, as its opener executed them; None: it could not be decided."""

    game: Digest
    outcomes: Outcomes


class MarketPost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a peer says to the market in a round. Its games are of this round or of the one before."""

    games: Annotated[tuple[Game, ...], Meta(max_length=2 * MOST_GAMES)] = ()
    reports: Annotated[tuple[GameReport, ...], Meta(max_length=MOST_REPORTS)] = ()
    evidence: Annotated[tuple[Evidence, ...], Meta(max_length=2 * MOST_GAMES)] = ()


def parse_post(payload: bytes, *, peer: str, round: int, swarm: str) -> MarketPost:
    """Raises MarketError for what no honest node of this swarm would send."""
    try:
        post = msgspec.msgpack.decode(payload, type=MarketPost)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MarketError(f"not a post: {error}") from None
    for game in post.games:
        check_game(game, peer=peer, round=round, swarm=swarm)
    if len({report.game for report in post.reports}) < len(post.reports):
        raise MarketError("two reports on one game")
    return post


def check_game(game: Game, *, peer: str, round: int, swarm: str) -> None:
    """Raises MarketError."""
    if (game.opener, game.swarm) != (peer, swarm) or not round - 1 <= game.round <= round:
        raise MarketError("a game of another peer, of another swarm or of another round")
    if len(msgspec.msgpack.encode(game)) > MOST_TEXT:
        raise MarketError(f"a game of more than {MOST_TEXT} bytes")
    with translated(MarketError, "a game that cannot be read", ProblemError):
        parse_tests(game.tests)


def step_of(game: Game, round: int) -> int | None:
    """The step whose reports are made in this round; None: none."""
    step = round - game.round - 1
    return step if 0 <= step < STEPS else None


def standing(reports: Reports, step: int = STEPS - 1) -> int | None:
    """The report that stands after a step: the last one up to it."""
    return next((q for q in reversed(reports[: step + 1]) if q is not None), None)


def players(game: Game, reports: Mapping[str, Reports]) -> dict[str, Reports]:
    """Those who are paid and recorded: not the opener and the proposer, who may know the answer."""
    return {peer: steps for peer, steps in reports.items() if peer not in (game.opener, game.proposer)}


def pay(reports: Mapping[str, Reports], right: bool) -> dict[str, int]:
    """Milli-points that each peer wins, negative for a loss: Hanson's market scoring rule in batches.

        win_i = STAKE sum_s WEIGHTS_s ((p_i,s - y)^2 - (q_i,s - y)^2)

    q_i,s is the report that stands after step s, y is 1 for a right attempt, and p_i,s is the mean of the others'
    standing reports after the step before, 1/2 without any. The score is strictly proper (Brier 1950) and p_i,s does
    not depend on own reports, so the own belief is the best report, whoever repeats the price wins nothing, and nobody
    loses more than the stake. After Hanson, "Combinatorial information market design", 2003.
    """
    wins = dict.fromkeys(reports, 0.0)
    before: dict[str, int] = {}
    for step, weight in enumerate(WEIGHTS):
        now = {peer: q for peer, steps in reports.items() if (q := standing(steps, step)) is not None}
        for peer, q in now.items():
            others = [value for other, value in before.items() if other != peer]
            price = sum(others) / (ONE * len(others)) if others else 0.5
            wins[peer] += STAKE * weight * ((price - right) ** 2 - (q / ONE - right) ** 2)
        before = now
    return {peer: round(win) for peer, win in wins.items()}
