"""What a game pays: Hanson's market scoring rule in batches, exact, so that every node pays the same.

    S(q, y)  = ONE^2 - 1/2 sum_k (q_k - ONE [k = y])^2             quadratic (Brier 1950): strictly proper
    B_i,0    = the opening price, uniform
    B_i,s    = sum_{j != i} w_j q_j,s-1 / sum_{j != i} w_j          the others' standing reports after the step before
    win_i    = floor(sum_s WEIGHTS_s / 16  w_i  (S(q_i,s, y) - S(B_i,s, y)) / ONE^2)

after Hanson, "Combinatorial information market design", 2003: a report is paid its score less that of the price before.
B does not depend on own reports, so the truth is best at every step; who repeats B wins 0; nobody loses more than 15/16
of a stake, and the mint pays at most 15/16 of all stakes. Amounts are whole milli-points.

Reports are sealed: a peer anchors one root a round over all of its own, and shows them in the next. A root counts in
the round of its block alone, so nothing is dated back; a report names game and step: no replay.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from codezero.market.games import ONE, STEPS, Game, StepReport

WEIGHTS, WHOLE = (8, 4, 2, 1), 16
"""Of the steps: halving, so that the first weighs more than all later ones together."""
POINT = 1000
START, MOST, STAKE = 100 * POINT, 1000 * POINT, 10 * POINT
"""A peer's first balance, its greatest, and its stake on one game: the same for all, as a node that joins late cannot
know the balances by which all would have to settle alike."""
FEWEST = 5
"""Peers with a stake, without whom a game pays nothing."""


@dataclass(frozen=True, slots=True)
class Position:
    """One peer in one game."""

    peer: str
    stake: int
    """The same for all steps."""
    reports: tuple[tuple[int, ...] | None, ...]
    """[STEPS][K] basis points; None: the one before stands."""
    hidden: frozenset[int] = frozenset()
    """Steps that were sealed and never shown."""

    def standing(self, step: int = STEPS - 1) -> tuple[int, ...] | None:
        """[K] The report that stands after a step."""
        return next((q for q in reversed(self.reports[: step + 1]) if q is not None), None)


def opening(answers: int) -> tuple[int, ...]:
    """[K] The uniform price; what is left of ONE is on the first answers."""
    return tuple(ONE // answers + (k < ONE % answers) for k in range(answers))


def pay(positions: Iterable[Position], answer: int, share: Fraction = Fraction(1)) -> dict[str, int]:
    """What each peer wins, negative for a loss. share: of the full amount that the game pays.

    A step that a peer hides is not scored, and costs a quarter of the most that it could lose there.
    """
    inside = [each for each in positions if each.stake > 0 and each.standing() is not None]
    wins = {each.peer: Fraction(0) for each in inside}
    if len(inside) < FEWEST:
        return dict.fromkeys(wins, 0)
    answers = range(len(inside[0].standing() or ()))
    before: dict[str, tuple[int, ...]] = {}
    for step, weight in enumerate(WEIGHTS):
        now = {each.peer: q for each in inside if (q := each.standing(step)) is not None}
        stakes = {each.peer: each.stake for each in inside if each.peer in before}
        total, sums = sum(stakes.values()), [sum(w * before[peer][k] for peer, w in stakes.items()) for k in answers]
        for each in inside:
            at_stake, own = weight * each.stake, stakes.get(each.peer, 0)
            if step in each.hidden:
                wins[each.peer] -= at_stake * ONE**2 // 2
            elif each.peer in now:
                base = [whole - own * before[each.peer][k] for k, whole in enumerate(sums)] if own else sums
                base, scale = (base, total - own) if total > own else (opening(len(answers)), 1)
                ahead = _error(base, answer, scale) - scale**2 * _error(now[each.peer], answer)
                wins[each.peer] += Fraction(at_stake * ahead, scale**2)
        before = now
    return {peer: int(win * share // (2 * WHOLE * ONE**2)) for peer, win in wins.items()}


def _error(report: Sequence[int], answer: int, scale: int = 1) -> int:
    """2 (ONE^2 - S) of a report, times scale^2 where its numbers are times scale."""
    return sum((q - scale * ONE * (k == answer)) ** 2 for k, q in enumerate(report))


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
    that its peer takes part in pays for it."""
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
