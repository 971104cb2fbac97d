"""The sampler as its users know it: a model in this process, rollout servers, or an endpoint."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from codezero.types import Completion


class GroupSampler(ABC):
    """Completes user texts; the model's side applies the chat template."""

    @abstractmethod
    def sample(
        self,
        prompts: Sequence[str],
        *,
        group_size: int,
        max_new_tokens: int,
        temperature: float,
        generator_seed: int,
        max_prompt_tokens: int | None = None,
        ended: Callable[[int, list[Completion]], object] | None = None,
    ) -> list[list[Completion]]:
        """`group_size` completions for each prompt, in order; the same for the same seed and weights. ended: called
        with a prompt's number and its completions while others are sampled, perhaps from another thread."""
