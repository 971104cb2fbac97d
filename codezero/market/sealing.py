"""Commit and reveal: a peer anchors one root a round over all its reports, and shows them in the next.

A root counts in the round of its block alone, so nothing is dated back; a report names game and step: no replay.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from codezero.market.games import STEPS, Game, StepReport
from codezero.market.payout import Position

Place = tuple[str, int]
"""Peer id and round of a root."""
Sealed = tuple[bytes, tuple[StepReport, ...]]
"""[32] salt, and reports."""


def seal(salt: bytes, reports: Iterable[StepReport]) -> bytes:
    """Canonical MessagePack of `Sealed`, the same for any order of the reports."""
    return msgspec.msgpack.encode((salt, sorted(reports, key=lambda report: (report.game, report.step, report.q))))


def seal_root(peer: str, salt: bytes, reports: Iterable[StepReport]) -> bytes:
    """[32] What is anchored. It names its peer, so that who copies another's root can never open it."""
    return hashlib.sha256(msgspec.msgpack.encode(peer) + seal(salt, reports)).digest()


def positions(
    game: Game, stakes: Mapping[str, int], roots: Mapping[Place, bytes], reveals: Mapping[Place, Sealed]
) -> tuple[Position, ...]:
    """Everybody with a report that counts, by peer id. stakes: milli-points; the opener's and the proposer's are 0.

    roots: as anchored while their round was open; of a peer with two in a round, none. reveals: what each hides, as it
    was shown by the end of the next; whose `seal_root` is another is left out by the caller, once and not for every
    game. Two reports on one step are both void. Nobody knows what a root hides that is never opened, so every game
    that its peer takes part in pays for it.
    """
    found, name = list[Position](), game.id
    for peer in sorted({peer for peer, _ in roots}):
        shown = [_shown((peer, game.round + 1 + step), roots, reveals) for step in range(STEPS)]
        reports = tuple(_report(name, step, len(game.answers), of or ()) for step, of in enumerate(shown))
        if any(reports):
            staked = 0 if peer in (game.opener, game.proposer) else stakes.get(peer, 0)
            hidden = (step for step in range(STEPS) if shown[step] is None)
            found.append(Position(peer, staked, reports, frozenset(hidden)))
    return tuple(found)


def _shown(place: Place, roots: Mapping[Place, bytes], reveals: Mapping[Place, Sealed]) -> Sequence[StepReport] | None:
    """None: something was sealed and is hidden."""
    if place not in roots:
        return ()
    return reveals[place][1] if place in reveals else None


def _report(game: bytes, step: int, answers: int, shown: Iterable[StepReport]) -> tuple[int, ...] | None:
    """The report on one step of a game under one root."""
    own = [report.q for report in shown if report.step == step and report.game == game]
    return own[0] if len(own) == 1 and len(own[0]) == answers else None
