"""A sampler whose policy stays as it was while the learner takes its step: attempts ahead without a server."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from codezero.models.base import GroupSampler
from codezero.models.generation import Progress, Sampler
from codezero.models.load import LoadedModel
from codezero.types import Completion


class TrailingSampler(GroupSampler):
    """Samples from a copy of all that learns; frozen weights are shared. Its completions name the copy's version."""

    @torch.no_grad()
    def __init__(self, policy: LoadedModel, *, progress: Progress | None = None) -> None:
        self._learned = [*policy.model.parameters()]
        if any(each.requires_grad for each in self._learned):
            self._learned = [each for each in self._learned if each.requires_grad]
        own = {id(each): torch.nn.Parameter(each.detach().clone(), requires_grad=False) for each in self._learned}
        shared = {id(each): each for each in policy.model.parameters()}
        model = copy.deepcopy(policy.model, shared | own)
        model.__dict__.pop("forward", None)  # as a learner has wrapped it
        self._copies, self.version = [own[id(each)] for each in self._learned], 0
        self._sampler = Sampler(replace(policy, model=model), progress=progress)

    @torch.no_grad()
    def catch_up(self, version: int) -> None:
        """Take the policy's present weights, while nobody samples or learns."""
        self.version = version
        for own, learned in zip(self._copies, self._learned, strict=True):
            own.copy_(learned)

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
        """Sample as `Sampler` does. ended: called with completions that name no version."""
        groups = self._sampler.sample(
            prompts,
            group_size=group_size,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            generator_seed=generator_seed,
            max_prompt_tokens=max_prompt_tokens,
            ended=ended,
        )
        return [[replace(each, version=self.version) for each in group] for group in groups]
