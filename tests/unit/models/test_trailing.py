"""The sampler of attempts that are made ahead without a server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from builders.models import random_rows, saved, tiny_policy

from codezero.config import SolverConfig
from codezero.models.generation import Sampler, TrailingSampler
from codezero.models.load import LoadedModel, add_adapter, load_model
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner
from codezero.types import Completion

HOW: Any = {"group_size": 3, "max_new_tokens": 6, "temperature": 1.0, "generator_seed": 5}


def whole(_: Path) -> LoadedModel:
    return tiny_policy()


def adapted(folder: Path) -> LoadedModel:
    return add_adapter(load_model(str(saved(tiny_policy(), folder)), device="cpu", role="solver"), rank=4, alpha=8.0)


def drawn(groups: list[list[Completion]]) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
    return [(each.token_ids, each.logprobs) for group in groups for each in group]


def in_half(_: Path) -> LoadedModel:
    return replace(tiny_policy(), sampled_in=torch.bfloat16)


@pytest.mark.parametrize("make", [whole, adapted, in_half])
def test_it_samples_as_before_an_update_until_it_catches_up(make: Callable[[Path], LoadedModel], tmp_path: Path):
    policy = make(tmp_path)
    trailing, learner = TrailingSampler(policy), TrlLearner(policy, SolverConfig(learning_rate=0.05))
    trailing.catch_up(learner.updates)
    before = trailing.sample(["ab", "c"], **HOW)
    assert drawn(before) == drawn(Sampler(policy).sample(["ab", "c"], **HOW))
    learner.update(Batch(tuple(random_rows(8))))
    assert drawn(trailing.sample(["ab", "c"], **HOW)) == drawn(before)
    trailing.catch_up(learner.updates)
    after = trailing.sample(["ab", "c"], **HOW)
    assert drawn(after) == drawn(Sampler(policy).sample(["ab", "c"], **HOW)) != drawn(before)
    assert {each.version for group in before for each in group} == {0}
    assert {each.version for group in after for each in group} == {1}


def test_what_is_frozen_is_there_once(tmp_path: Path) -> None:
    policy = adapted(tmp_path)
    trailing = TrailingSampler(policy)
    models = policy.model, trailing.loaded.model
    own, theirs = ({id(each) for each in model.parameters()} for model in models)
    shared = own & theirs
    assert len(shared) == sum(not each.requires_grad for each in policy.model.parameters()) > 0
    assert all(isinstance(each, torch.nn.Parameter) and not each.requires_grad for each in trailing._copies)
