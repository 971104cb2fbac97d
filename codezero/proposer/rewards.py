"""What a proposal earns: validity x novelty x learnability, in [0, 1]. Pure functions.

A problem that every attempt solves, or none, teaches a solver that learns by GRPO nothing. Learnability is the variance
of success, p(1 - p) (Rutherford et al. 2024, "No Regrets"), which bounds from below how much one step can gain (Bae et
al. 2025, arXiv 2504.03380); times 4 it is 1 at one half.
"""

from collections.abc import Sequence

from codezero.types import BELIEF, ScoredGroup, Screened


def learnability(successes: int, attempts: int) -> float:
    """4p(1 - p) of p shrunk by Beta(1, 1), p = (successes + 1) / (attempts + 2) (Laplace's rule of succession).

    Shrunk because few attempts prove little: one of two is no better evidence of one half than four of eight, but
    none of two is far weaker evidence of zero.
    """
    success = (successes + 1) / (attempts + 2)
    return 4 * success * (1 - success)


def judged_learnability(groups: Sequence[ScoredGroup]) -> float | None:
    """Of all attempts at one problem that the judge could score; None when there is none.

    An attempt counts whole, by whether the judge believes it. The mean of its probabilities would not do: a judge that
    cannot tell says one half of everything, and a proposer could earn the most by writing what cannot be judged.
    """
    judged = [verdict for group in groups for verdict in group.verdicts if verdict.trainable]
    if not judged:
        return None
    return learnability(sum(verdict.correctness >= BELIEF for verdict in judged), len(judged))


def reward(screened: Screened, learnable: float | None) -> float | None:
    """0 for what is broken or repeated; else the learnability, None while nobody attempted it."""
    if screened in (Screened.BROKEN, Screened.REPEATED):
        return 0.0
    return learnable if screened is Screened.USABLE else None
