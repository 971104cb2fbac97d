"""Dropout and the swarm's memory go on after a restart as if there had been none."""

import random
from pathlib import Path

import pytest
from builders.models import bits, random_rows, tiny_policy

from codezero.config import SolverConfig
from codezero.errors import CheckpointError
from codezero.problems.synthetic.tasks import make_task
from codezero.solver.batch import Batch
from codezero.solver.learner import TrlLearner
from codezero.swarm.proposals import LocalSwarm


def forgetful() -> TrlLearner:
    """Of a model with dropout, which draws from torch's own generator."""
    policy = tiny_policy()
    policy.model.config.attention_dropout = 0.5
    for layer in policy.model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    return TrlLearner(policy, SolverConfig(minibatches=2, learning_rate=0.05))


def test_a_restarted_learner_drops_what_it_would_have_dropped(tmp_path: Path) -> None:
    whole, cut = forgetful(), forgetful()
    rows = Batch(tuple(random_rows(8)))
    losses = [whole.update(rows).loss, whole.update(rows).loss]
    whole.save(tmp_path)
    cut.load(tmp_path)
    assert cut.update(rows) == whole.update(rows) and bits(cut.policy) == bits(whole.policy)
    assert losses[0] != losses[1]


def test_proposals_and_what_was_said_of_them_survive(tmp_path: Path) -> None:
    first, second = LocalSwarm("me"), LocalSwarm("me")
    first.offer([make_task(random.Random(number)).problem for number in range(300)], 1)
    first.offer([make_task(random.Random(number)).problem for number in range(300, 303)], 1)
    first.save(tmp_path)
    second.load(tmp_path)
    assert second.proposals(1) == first.proposals(1) and second.metrics() == first.metrics()
    (tmp_path / "swarm.json").write_text('{"offers": 3}')
    with pytest.raises(CheckpointError, match=r"swarm\.json cannot be read"):
        second.load(tmp_path)
