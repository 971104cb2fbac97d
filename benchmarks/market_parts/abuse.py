"""What attackers gain: when a vote is lost, what bluffs and friends are worth, how often a jury is held.

Also how exact the pay is, against the formula in fractions (`tests/oracles/step_scoring.py`).
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
from oracles import step_scoring

from codezero.market.games import ONE, STEPS, VERDICTS, Game, GameKind
from codezero.market.jury import Ballot, decide, seats
from codezero.market.payout import FEWEST, Position, pay
from codezero.market.pricing import NEWCOMER, Score, gain, record
from codezero.stats import wilson
from market_parts.value_games import names, points
from market_parts.worth import Play, Q, scored, sure

AFTER, WITHIN = 100, 150
"""Honest games before a peer turns, and games in which it may be found out."""
BIG = 10**9
"""A stake at which a milli-point is nothing."""
HABITS: dict[str, Callable[[Random, int, int], Q | None]] = {
    "liar": lambda _, __, answers: sure(answers),
    "coin": lambda random, _, answers: sure(answers, random.randrange(answers)),
    "half liar": lambda random, _, answers: sure(answers) if random.random() < 0.5 else None,
    "sleeper in one of ten": lambda random, _, answers: sure(answers) if random.random() < 0.1 else None,
    "turned": lambda _, count, answers: sure(answers) if count >= AFTER else None,
    "honest": lambda *_: None,
}
"""What each reports instead of its belief (None); by chance, its games so far, and how many answers there are."""


def detection(of: Play, orders: int) -> dict[str, Any]:
    """After how many executed games is a vote lost? Of `turned` peers, after how many lies; `by the whole record`: when
    its gain has come down to 0. Of the honest, every peer; else the last."""
    outs: dict[str, list[int | None]] = {}
    votes: dict[str, list[bool]] = {}
    for name, habit in HABITS.items():
        for order in range(orders):
            for peer in of.peers if name == "honest" else of.peers[-1:]:
                scores = history(of, peer, habit, Random(f"{name} {order} {peer}"))
                start = AFTER if name == "turned" else 0
                counts = range(start + 1, min(len(scores), start + WITHIN) + 1)
                lost = (count - start for count in counts if record(scores[:count]).lost)
                outs.setdefault(name, []).append(next(lost, None))
                votes.setdefault(name, []).append(record(scores[: start + NEWCOMER]).vote)
                if name == "turned":
                    spent = (count - start for count in counts if record(scores[:count]).gain <= 0)
                    outs.setdefault("turned, by the whole record", []).append(next(spent, None))
    shares = {name: {"has_a_vote_after_20": round(sum(found) / len(found), 4)} for name, found in votes.items()}
    return {name: quantiles(found) | shares.get(name, {}) for name, found in outs.items()}


def history(of: Play, peer: str, habit: Callable[[Random, int, int], Q | None], random: Random) -> list[Score]:
    """Of games in random order."""
    scores: list[Score] = []
    for at in random.sample(range(len(of.games)), len(of.games)):
        each = of.games[at]
        if each.game.opener != peer:
            lies = habit(random, len(scores), len(each.game.answers))
            first, last = (of.steps[step][at][peer] if lies is None else lies for step in (0, -1))
            scores.append(scored(each, first, last))
    return scores[: AFTER + WITHIN]


def quantiles(outs: Sequence[int | None]) -> dict[str, Any]:
    found = [out for out in outs if out is not None]
    share = len(found) / len(outs)
    return {
        "runs": len(outs),
        f"lost_within_{WITHIN}": round(share, 4),
        "interval": [round(end, 4) for end in wilson(share, len(outs))],
        "lost_within_15": round(sum(out <= 15 for out in found) / len(outs), 4),
        "median": float(np.median(found)) if found else None,
        "nine_in_ten": float(np.percentile(found, 90)) if found else None,
    }


def friends(telling: int, openers: int, games: int, orders: int) -> dict[str, Any]:
    """A peer that knows nothing but what `telling` of the openers tell it, and reports the opening price elsewhere."""
    votes = shares = 0.0
    for order in range(orders):
        random = Random(order)
        told = [random.randrange(openers) for _ in range(games)]
        scores = [Score(str(opener), *[gain(sure(4), 0) if opener < telling else 0.0] * 2) for opener in told]
        found = record(scores)
        votes, shares = votes + found.vote, shares + found.gain
    return {"has_a_vote": round(votes / orders, 3), "gain_nats": round(shares / orders, 1)}


def capture(share: float, juries: int, accounts: int = 300) -> dict[str, Any]:
    """How often colluding accounts, of a share of all, decide a game by the seats they draw."""
    bad, all_of = round(share * accounts), {f"peer {number}": str(number) for number in range(accounts)}
    opener = names(1)[0]
    held = 0
    for number in range(juries):
        game = Game(GameKind.PROGRAM, "benchmark", opener, number, "", "x", ("x",), VERDICTS)
        seated = seats(game, b"r" * 32, all_of)
        ballots = [Ballot(game.id, peer, int(int(all_of[peer]) < bad)) for peer in seated]
        held += decide(game, seated, ballots, {}).answer == 1
    return {"held": round(held / juries, 4), "interval": [round(end, 4) for end in wilson(held / juries, juries)]}


def coalition(share: float, games: int, seed: int = 0) -> dict[str, float]:
    """Most that accounts with a share of all stakes gain, of their stakes, when some bluff at step 0 to spoil the base
    of the others at step 1; against telling their belief."""
    chance = np.random.default_rng(seed)
    best: list[float] = []
    for _ in range(games):
        answers = int(chance.integers(2, 5))
        belief, other = points(chance.dirichlet(np.full(answers, 0.7))), points(chance.dirichlet(np.full(answers, 2.0)))
        top = 0.0
        for part in (0.25, 0.5, 0.75):
            stakes = [share * part, share * (1 - part), *[(1 - share) / 3] * 3]

            def worth(bluff: Q, stakes: list[float] = stakes, belief: Q = belief, other: Q = other) -> float:
                plans = [(bluff, belief, belief, belief), (belief,) * STEPS, *[(other,) * STEPS] * 3]
                rows = [
                    Position(str(at), round(BIG * s), plan)
                    for at, (s, plan) in enumerate(zip(stakes, plans, strict=True))
                ]
                wins = [pay(rows, answer) for answer in range(len(belief))]
                return sum(p * (won["0"] + won["1"]) for p, won in zip(belief, wins, strict=True)) / ONE / BIG / share

            honest = worth(belief)
            ends = [*np.eye(answers), np.array(other) / ONE]
            lines = [(1 - t) * np.array(belief) / ONE + t * end for end in ends for t in (0.25, 0.5, 0.75, 1.0)]
            top = max(top, *(worth(points(bluff)) - honest for bluff in lines))
        best.append(top)
    return {"best": round(max(best), 4), "mean": round(float(np.mean(best)), 4)}


def exactness(games: int, seed: int = 1) -> dict[str, Any]:
    """A1: random games against the formula; the worst loss in parts of a stake; what copies of the price win."""
    random = Random(seed)
    different, worst, minted, copies = 0, Fraction(0), Fraction(0), 0
    for _ in range(games):
        answers, peers = random.randint(2, 8), random.randint(FEWEST, 20)
        rows = [Position(str(at), random.randint(1, 100_000), plan(random, answers)) for at in range(peers)]
        stakes, answer = {row.peer: row.stake for row in rows}, random.randrange(answers)
        wins = pay(rows, answer)
        different += wins != step_scoring.wins(stakes, {row.peer: row.reports for row in rows}, answer, answers)
        worst = max([worst, *(Fraction(-win - 1, stakes[peer]) for peer, win in wins.items())])
        minted = max(minted, Fraction(sum(wins.values()), sum(stakes.values())))
        same = Position("copier", 1000, (None, *[rows[0].standing()] * 3))
        crowd = [Position(row.peer, row.stake, (rows[0].standing(), None, None, None)) for row in rows]
        copies += pay([same, *crowd], answer)["copier"] != 0
    return {
        "games": games,
        "different": different,
        "worst_loss_of_a_stake": round(float(worst), 4),
        "most_minted_of_the_stakes": round(float(minted), 4),
        "bound": 15 / 16,
        "copies_that_won_or_lost": copies,
    }


def plan(random: Random, answers: int) -> tuple[Q | None, ...]:
    """Reports at random steps, at least one, from vague to certain."""
    first = 0 if random.random() < 0.7 else random.randrange(STEPS)
    sharp = random.choice([1, 4, 30])
    steps = [step == first or (step > first and random.random() < 0.6) for step in range(STEPS)]
    drawn = (np.array([random.random() ** sharp + 1e-9 for _ in range(answers)]) for _ in steps)
    return tuple(points(row / row.sum()) if yes else None for yes, row in zip(steps, drawn, strict=True))
