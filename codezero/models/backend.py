"""What a sampler asks of whatever decodes for it."""

from collections.abc import Sequence
from typing import Protocol

Drawn = tuple[list[int], list[float]]
"""Ids of one completion, EOS included, and their log-probabilities in nats."""


class Backend(Protocol):
    """Draws from a model as it is at the time of the call."""

    def draw(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        """`repeats` draws after each prompt, those of one prompt beside each other; the same for the same seed and
        weights. A draw ends with EOS, which it keeps, or after `max_new_tokens`.
        """
        ...
