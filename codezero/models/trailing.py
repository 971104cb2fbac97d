"""A sampler whose policy stays as it was while the learner takes its step: attempts ahead without a server."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch

from codezero.models.generation import Drawn, Sampler
from codezero.models.load import LoadedModel
from codezero.types import Completion


class TrailingSampler(Sampler):
    """Samples from a copy of all that learns; frozen weights are shared. Its completions name the copy's version."""

    @torch.no_grad()
    def __init__(self, policy: LoadedModel) -> None:
        self._learned = [*policy.model.parameters()]
        if any(each.requires_grad for each in self._learned):
            self._learned = [each for each in self._learned if each.requires_grad]
        own = {id(each): torch.nn.Parameter(each.detach().clone(), requires_grad=False) for each in self._learned}
        shared = {id(each): each for each in policy.model.parameters()}
        model = copy.deepcopy(policy.model, shared | own)
        model.__dict__.pop("forward", None)  # as a learner has wrapped it
        self._copies, self.version = [own[id(each)] for each in self._learned], 0
        super().__init__(replace(policy, model=model))

    @torch.no_grad()
    def catch_up(self, version: int) -> None:
        """Take the policy's present weights, while nobody samples or learns."""
        self.version = version
        for own, learned in zip(self._copies, self._learned, strict=True):
            own.copy_(learned)

    def _completions(self, drawn: Sequence[Drawn]) -> list[Completion]:
        return super()._completions([each._replace(version=self.version) for each in drawn])
