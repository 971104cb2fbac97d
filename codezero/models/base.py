"""The sampler as its users know it: a model in this process, rollout servers, or an endpoint."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict, Unpack

from codezero.types import Completion

Prompts = Sequence[Sequence[int]]  # as ids
Progress = Callable[[int, int], object]  # called with how many are done, and how many there are


class How(TypedDict):
    group_size: int
    max_new_tokens: int
    temperature: float
    generator_seed: int
    max_prompt_tokens: NotRequired[int]
    ended: NotRequired[Callable[[int, list[Completion]], object] | None]


class GroupSampler(ABC):
    """Completes user texts; the model's side applies the chat template."""

    @abstractmethod
    def sample(self, prompts: Sequence[str], **how: Unpack[How]) -> list[list[Completion]]:
        """`group_size` completions for each prompt, in order; the same for the same seed and weights. ended: called
        with a prompt's number and its completions while others are sampled, perhaps from another thread."""
