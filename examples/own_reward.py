"""A reward of your own: right answers earn more the shorter they are.

    codezero run reward.function=examples/own_reward.py:short_answers run.max_iterations=3

What a function needs to know besides can be given by name, here to the class below:

    codezero run 'reward.function={_target_: examples/own_reward.py:Shorter, half_length: 20}' run.max_iterations=3
"""

from dataclasses import dataclass

from codezero.types import ScoredGroup


def short_answers(scored: ScoredGroup) -> list[float | None]:
    return Shorter()(scored)


@dataclass(frozen=True)
class Shorter:
    half_length: int = 40
    """Tokens of an answer that earns half as much as an empty one would."""

    def __call__(self, scored: ScoredGroup) -> list[float | None]:
        """A reward from 0 to 1 for each attempt; None leaves one out."""
        attempts = zip(scored.group.completions, scored.verdicts, strict=True)
        return [judged.correctness / (1 + len(done.token_ids) / self.half_length) for done, judged in attempts]
