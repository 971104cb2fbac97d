"""What a player posts in a round, and what of a stranger's post is believed to be well-formed."""

from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.code.assertions import parse_tests
from codezero.errors import MarketError, ProblemError, translated
from codezero.market.games import Digest, Game, GameKind, Opening, StepReport

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
