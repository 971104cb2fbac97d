"""A game of the market: is this attempt right? What peers say of it, as it travels, and what it pays.

It is announced in round r. Reports are taken in four steps, one in each of the rounds r+1 to r+4, and each node settles
it by itself once it is over. A game is known by the hash of its bytes, so nobody can change it or open it twice.
Whatever decodes is well-formed.

From reports to a price, by what each peer was worth: each node has its own. It is a log pool (Genest & Zidek 1986) with
weights by record, as the wealth of Kelly bettors (Beygelzimer et al. 2012)."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

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
FLOOR = -3.0  # nats: the most that one game takes from a record
# games before a vote counts; and the newest ones, which alone can lose it: a long record would hide a turn
NEWCOMER = 20
FRIENDS = 0.2  # most of a record that may come from one opener, who may tell friends its answers
RATE, SPREAD, CAP = 0.05, 8.0, 2.0  # weights: their exponent a nat, most nats between two, most equal shares of one
LEAST = 0.003  # probabilities count for no less: one certain error must not outweigh everything

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
    loses more than the stake. After Hanson, "Combinatorial information market design", 2003."""
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


class Score(NamedTuple):
    """A peer's gains in one settled game, in nats."""

    opener: str
    first: float  # of the report of step 0
    last: float  # of the last report, which prices are made of


@dataclass(frozen=True, slots=True)
class Record:
    """A peer's worth in settled games."""

    games: float = 0.0  # those of one opener count less than 1 where they would be more than FRIENDS
    gain: float = 0.0  # nats, of the first or of the last reports, whichever are worth less
    one_opener: float = 0.0  # the most that came from one opener other than the reader
    lost: bool = False  # worse than a peer that knows nothing

    @property
    def vote(self) -> bool:
        """Does its report count in prices?"""
        return self.games >= NEWCOMER and self.gain > self.one_opener and not self.lost


def gain(q: int | None, right: bool) -> float:
    """Nats above an even guess: max(FLOOR, ln 2 q_y); None: 0. Against the price itself all honest peers would lose
    their vote, since a crowd beats each of them."""
    if q is None:
        return 0.0
    share = (q if right else ONE - q) / ONE
    return max(FLOOR, math.log(2 * share)) if share else FLOOR


def record(scores: Sequence[Score], reader: str = "") -> Record:
    """scores: oldest first. reader: whose own games always count whole."""
    openers = Counter(score.opener for score in scores if score.opener != reader)
    most = ceiling(openers.values(), FRIENDS, len(scores) - openers.total())
    whole = {opener: min(1.0, most / count) for opener, count in openers.items()}
    weights = [whole.get(score.opener, 1.0) for score in scores]
    first = sum(weight * score.first for weight, score in zip(weights, scores, strict=True))
    single = [whole[opener] * sum(score.first for score in scores if score.opener == opener) for opener in openers]
    rows = [(weight, score.last) for weight, score in zip(weights, scores, strict=True)]
    lost = doubtful(rows) or doubtful(rows[-NEWCOMER:])
    return Record(sum(weights), min(first, sum(weight * last for weight, last in rows)), max([0.0, *single]), lost)


def doubtful(rows: Sequence[tuple[float, float]]) -> bool:
    """Is the sum of (weight, gain) below -3 nats and two standard errors?"""
    squares = sum(weight * gain**2 for weight, gain in rows)
    return sum(weight * gain for weight, gain in rows) < min(-3, -2 * math.sqrt(squares + 1))


def ceiling(sizes: Iterable[float], share: float, beside: float = 0.0) -> float:
    """The c = share * (beside + sum(min(size, c))) that leaves none above its share; at least the largest: no cut."""
    most, left = 0.0, [*sorted(sizes, reverse=True), 0.0]
    for cut, size in enumerate(left):
        if share * cut > 1 - 1e-9:
            break
        most = share * (beside + sum(left[cut:])) / (1 - share * cut)
        if most >= size:
            break
    return most


class PriceRow(msgspec.Struct, frozen=True):
    """Probabilities that a game's attempt is right, after each step."""

    steps: list[float]
    voters: int  # peers with a vote in the newest


def price(reports: Mapping[str, int], records: Mapping[str, Record]) -> tuple[float, int]:
    """Pool the standing reports of the peers that have a vote: the probability, 1/2 without any, and their number."""
    voters = sorted(peer for peer in reports if peer in records and records[peer].vote)
    weights = shares([records[peer].gain for peer in voters]) if voters else []
    pooled = math.fsum(weight * odds(reports[peer] / ONE) for weight, peer in zip(weights, voters, strict=True))
    return probability(pooled), len(voters)


def price_row(game: Game, reports: Mapping[str, Reports], records: Mapping[str, Record], steps: int) -> PriceRow:
    """Prices after each of the first steps."""
    row, voters, inside = list[float](), 0, players(game, reports)
    for step in range(steps):
        held = {peer: q for peer, of in inside.items() if (q := standing(of, step)) is not None}
        pooled, voters = price(held, records)
        row.append(pooled)
    return PriceRow(row, voters)


def without(peer: str, reports: Mapping[str, Reports]) -> dict[str, Reports]:
    return {other: steps for other, steps in reports.items() if other != peer}


def brier_scores(reader: str, reports: Mapping[str, Reports], price: float, right: bool) -> dict[str, float]:
    """Scores, 0 best and 2 worst, of a game that the reader and others reported on."""
    own = standing(reports.get(reader, ()))
    others = [q for steps in without(reader, reports).values() if (q := standing(steps)) is not None]
    if own is None or not others:
        return {}
    probabilities = {"own": own / ONE, "mean": sum(others) / (ONE * len(others)), "price": price}
    return {name: 2 * (p - right) ** 2 for name, p in probabilities.items()}


def shares(gains: Sequence[float]) -> list[float]:
    """Weights of a price, which sum to 1: exponential in the record, none more than CAP equal shares."""
    weights = [math.exp(max(RATE * (each - max(gains)), -SPREAD)) for each in gains]
    most = ceiling(weights, CAP / len(weights))
    cut = [min(weight, most) for weight in weights]
    return [weight / sum(cut) for weight in cut]


def odds(p: float) -> float:
    """Log-odds of a probability, which counts for no less than LEAST."""
    p = min(1 - LEAST, max(LEAST, p))
    return math.log(p / (1 - p))


def probability(log_odds: float) -> float:
    return 1 / (1 + math.exp(-log_odds))
