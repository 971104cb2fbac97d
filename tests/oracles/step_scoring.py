"""What a game of the market pays, peer by peer and step by step as the formula is written, in fractions; slow."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor

Reports = Sequence[Sequence[int] | None]


def score(report: Sequence[Fraction], answer: int) -> Fraction:
    """S(q, y) = 1 - 1/2 sum_k (q_k - [k = y])^2 of probabilities."""
    return 1 - Fraction(1, 2) * sum(((q - (k == answer)) ** 2 for k, q in enumerate(report)), Fraction(0))


def latest(reports: Reports, step: int) -> Sequence[int] | None:
    for at in range(step, -1, -1):
        if reports[at] is not None:
            return reports[at]
    return None


def base_price(
    own: str, stakes: Mapping[str, int], reports: Mapping[str, Reports], step: int, answers: int
) -> list[Fraction]:
    """B: the others' mean standing report before `step`, by stake; with none, whole numbers nearest to uniform."""
    others = {peer: q for peer in stakes if peer != own and step and (q := latest(reports[peer], step - 1)) is not None}
    total = sum(stakes[peer] for peer in others)
    if not total:
        return [Fraction(10_000 // answers + (k < 10_000 % answers), 10_000) for k in range(answers)]
    return [
        sum((Fraction(stakes[peer] * q[k], 10_000 * total) for peer, q in others.items()), Fraction(0))
        for k in range(answers)
    ]


def exact(stakes: Mapping[str, int], reports: Mapping[str, Reports], answer: int, answers: int) -> dict[str, Fraction]:
    """What each wins before it is floored. stakes: milli-points, above 0."""
    wins = dict.fromkeys(stakes, Fraction(0))
    for step, weight in enumerate((8, 4, 2, 1)):
        for peer, stake in stakes.items():
            own = latest(reports[peer], step)
            if own is not None:
                base = base_price(peer, stakes, reports, step, answers)
                gained = score([Fraction(q, 10_000) for q in own], answer) - score(base, answer)
                wins[peer] += Fraction(weight, 16) * stake * gained
    return wins


def wins(stakes: Mapping[str, int], reports: Mapping[str, Reports], answer: int, answers: int) -> dict[str, int]:
    return {peer: floor(win) for peer, win in exact(stakes, reports, answer, answers).items()}
