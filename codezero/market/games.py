"""Games of the market, reports on them and what players post, as they travel; and what is open in which round.

Whatever decodes is well-formed. A game is known by the hash of its bytes, so nobody can change it or open it twice.
"""

import hashlib
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.assertions import parse_tests
from codezero.errors import MarketError, ProblemError, translated

ONE = 10_000
"""Sum of a report: basis points."""
STEPS = 4
BALLOTS, OVER = STEPS + 2, STEPS + 5
"""Rounds from the announcement to the jury's ballots and to the settlement."""
VERDICTS, NONE = ("right", "wrong"), ""
"""The answers of a `program` game, and the last one of any other: none of these."""

Digest = Annotated[bytes, Meta(min_length=32, max_length=32)]
PeerId = Annotated[str, Meta(pattern=r"\A[1-9A-HJ-NP-Za-km-z]{32,64}\Z")]
Text = Annotated[str, Meta(max_length=64 << 10)]
Probabilities = Annotated[tuple[Annotated[int, Meta(ge=0, le=ONE)], ...], Meta(min_length=2, max_length=8)]
"""[K] whole basis points that sum to ONE."""


class GameKind(StrEnum):
    """What is asked. PROGRAM: does this attempt pass the tests? OUTPUT: what does this program return for this call?
    Both are settled by execution. VALUE: what should this call return, by the question? Settled by the execution of a
    reference where the game is a sentinel, else by a jury."""

    PROGRAM = "program"
    OUTPUT = "output"
    VALUE = "value"


class Game(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question and its possible answers. Raises ValueError; decoded, msgspec.ValidationError."""

    kind: GameKind
    swarm: Annotated[str, Meta(min_length=1, max_length=128)]
    opener: PeerId
    round: Annotated[int, Meta(ge=0, lt=2**53)]
    """In which it is announced."""
    question: Text
    code: Text
    """The program asked about; empty in a `value` game."""
    tests: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=64)]
    """Of a `program` game; else the one call, as `f(1)`."""
    answers: Annotated[tuple[Annotated[str, Meta(max_length=1024)], ...], Meta(min_length=2, max_length=8)]
    """[K] VERDICTS; else texts of different values, as `repr` writes them, and NONE."""
    proposer: PeerId | None = None
    """Of the problem."""
    commitment: Digest | None = None
    """Of every `value` game, see `Opening`: were it of sentinels alone, liars would know where to be honest."""

    def __post_init__(self) -> None:
        if self.kind is GameKind.PROGRAM:
            fits = self.answers == VERDICTS
        else:
            fits = self.answers.index(NONE) == len(self.answers) - 1 if NONE in self.answers else False
            fits = fits and len(set(self.answers)) == len(self.answers) and len(self.tests) == 1
        value = self.kind is GameKind.VALUE
        if not fits or value == bool(self.code) or value != (self.commitment is not None):
            raise ValueError("answers, tests, code or commitment are not those of a game of this kind")

    @property
    def id(self) -> bytes:
        """[32] sha256 of the canonical MessagePack, which holds swarm, opener and round."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).digest()

    def index_of(self, value: str) -> int:
        """The number of the answer that is this value, or of NONE."""
        return self.answers.index(value if value in self.answers else NONE)

    @property
    def reporting(self) -> range:
        """Rounds in which reports on it are sealed."""
        return range(self.round + 1, self.round + 1 + STEPS)


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the commitment of a `value` game hides until the ballots."""

    game: Digest
    salt: Digest
    reference: Text
    """A solution, which makes the game a sentinel; empty: nobody knows one."""

    @property
    def commitment(self) -> bytes:
        """[32] sha256(salt, reference)."""
        return hashlib.sha256(self.salt + self.reference.encode("utf-8", "surrogatepass")).digest()


class StepReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a peer believes of a game's answers at one step. Raises as `Game` does."""

    game: Digest
    step: Annotated[int, Meta(ge=0, lt=STEPS)]
    q: Probabilities

    def __post_init__(self) -> None:
        if sum(self.q) != ONE or min(self.q) < 0:
            raise ValueError(f"a report is whole numbers, none below 0, that sum to {ONE}")


class Phase(StrEnum):
    """What a round is to a game. Seals are opened in the round after their step, the last in REVEALING; ballots are
    cast and commitments opened from BALLOTS to the end of APPEAL; it is settled or void when it is OVER."""

    AHEAD = "ahead"
    ANNOUNCED = "announced"
    STEP = "step"
    REVEALING = "revealing"
    BALLOTS = "ballots"
    APPEAL = "appeal"
    OVER = "over"


def phase(game: Game, round: int) -> tuple[Phase, int | None]:
    """What `round` is to the game, and the step whose reports are sealed in it."""
    age = round - game.round
    if 1 <= age <= STEPS:
        return Phase.STEP, age - 1
    end = {Phase.AHEAD: 0, Phase.ANNOUNCED: 1, Phase.REVEALING: BALLOTS, Phase.BALLOTS: BALLOTS + 1, Phase.APPEAL: OVER}
    return next((name for name, until in end.items() if age < until), Phase.OVER), None


MOST_GAMES, MOST_REPORTS, SHOWN_ROUNDS = 8, 64, 4
"""Opened by a peer in a round; in a seal; rounds whose seals a post shows."""
MOST_TEXT = 16 << 10
"""Bytes of a whole game."""

Round = Annotated[int, Meta(ge=0, lt=2**53)]


class Reveal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a root of the sender hides."""

    round: Round
    """Of the seal."""
    salt: Digest
    reports: Annotated[tuple[StepReport, ...], Meta(max_length=MOST_REPORTS)]


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the opener of a `program` game executed: does each of its first tests pass? None: that cannot be told."""

    game: Digest
    outcomes: Annotated[tuple[bool | None, ...], Meta(min_length=1, max_length=64)]


class MarketPost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All that a player says in one round. Whatever it repeats of earlier rounds is for who missed it."""

    root: Digest | None = None
    """Of this round's seal; it counts where there is no chain."""
    games: Annotated[tuple[Game, ...], Meta(max_length=2 * MOST_GAMES)] = ()
    reveals: Annotated[tuple[Reveal, ...], Meta(max_length=SHOWN_ROUNDS)] = ()
    openings: Annotated[tuple[Opening, ...], Meta(max_length=SHOWN_ROUNDS * MOST_GAMES)] = ()
    evidence: Annotated[tuple[Evidence, ...], Meta(max_length=2 * MOST_GAMES)] = ()


def parse_post(payload: bytes, *, peer: str, round: int, swarm: str) -> MarketPost:
    """A peer's post of a round. Raises MarketError for what no honest node of this swarm would send."""
    try:
        post = msgspec.msgpack.decode(payload, type=MarketPost)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise MarketError(f"not a post: {error}") from None
    past = [reveal.round for reveal in post.reveals]
    if len({*past}) < len(past) or any(not round - SHOWN_ROUNDS <= number < round for number in past):
        raise MarketError("a seal is shown twice, or not of the rounds before")
    for game in post.games:
        check_game(game, peer=peer, round=round, swarm=swarm)
    return post


def check_game(game: Game, *, peer: str, round: int, swarm: str) -> None:
    """Raises MarketError."""
    if (game.opener, game.swarm) != (peer, swarm) or not round - 1 <= game.round <= round:
        raise MarketError("a game of somebody else, of another swarm or of another round")
    if len(msgspec.msgpack.encode(game)) > MOST_TEXT:
        raise MarketError(f"a game of more than {MOST_TEXT} bytes")
    with translated(MarketError, "a game that cannot be read", ProblemError):
        if game.kind is GameKind.PROGRAM:
            parse_tests(game.tests)
        elif not is_call(game.tests[0]):
            raise MarketError("the question of a game is not one call with literal arguments")


def is_call(text: str) -> bool:
    """Is it `f(1, [2])` and nothing else? Raises ProblemError for what is no expression."""
    calls = parse_tests((f"assert ({text}) == 0",))[1]
    return len(calls) == 1 and calls[0].whole and None not in calls[0].args and calls[0].exact
