"""Which of the proposals on offer come into an iteration: no peer and no level takes all the places."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random

from codezero.types import Problem

PEER_SHARE = 0.5
"""Most of the proposals' places that one other peer may fill, and at least one place."""


def pick(
    offered: Sequence[Problem], places: int, *, own_peer_id: str, usable: Callable[[Problem], bool], random: Random
) -> list[Problem]:
    """At most `places` of what is `offered`, newest first. `usable` is asked once about each that has its turn.

    Peers take turns in random order; each gives the newest problem of a level drawn from those it has left. A stranger
    gets at most PEER_SHARE of the places, also when nobody else offers anything.
    """
    waiting = {peer: _by_level(mine) for peer, mine in _by_peer(offered).items()}
    left = dict.fromkeys(waiting, max(1, int(places * PEER_SHARE)))
    if own_peer_id in left:
        left[own_peer_id] = places
    turns = sorted(waiting)
    random.shuffle(turns)
    chosen: list[Problem] = []
    while turns and len(chosen) < places:
        peer = turns.pop(0)
        problem = next(filter(usable, _drawn(waiting[peer], random)), None)
        if problem is not None:
            chosen.append(problem)
            left[peer] -= 1
            if left[peer]:
                turns.append(peer)
    return chosen


def _by_peer(offered: Sequence[Problem]) -> dict[str, list[Problem]]:
    mine: defaultdict[str, list[Problem]] = defaultdict(list)
    for problem in offered:
        mine[problem.proposer or ""].append(problem)
    return dict(mine)


def _by_level(offered: Sequence[Problem]) -> dict[int, list[Problem]]:
    """Newest last, so that it is the first to be taken."""
    levels: defaultdict[int, list[Problem]] = defaultdict(list)
    for problem in reversed(offered):
        levels[problem.level or 0].append(problem)
    return dict(levels)


def _drawn(levels: dict[int, list[Problem]], random: Random) -> Iterator[Problem]:
    while levels:
        level = random.choice(sorted(levels))
        problem = levels[level].pop()
        if not levels[level]:
            del levels[level]
        yield problem
