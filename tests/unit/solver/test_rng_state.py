"""Process-wide randomness and the swarm's memory go on after a restart as if there had been none."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec import json

from codezero.errors import CheckpointError
from codezero.problems.synthetic.tasks import make_task
from codezero.solver.policy_files import GlobalGenerators
from codezero.swarm.proposals import LocalSwarm


def drawn() -> list[float]:
    return [random.gauss(0, 1), random.random(), np.random.normal(), np.random.random(), *torch.randn(3).tolist()]


def test_every_library_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    drawn()  # an odd number of gaussians: each library holds one back
    GlobalGenerators().save(tmp_path)
    wanted = drawn()
    assert drawn() != wanted
    GlobalGenerators().load(tmp_path)
    assert drawn() == wanted


def shorten(state: dict[str, object]) -> None:
    state["torch"] = "AAAA"


def empty(state: dict[str, object]) -> None:
    state["python_words"] = []


def negative(state: dict[str, object]) -> None:
    state["numpy_words"] = [-1] * 624


@pytest.mark.parametrize("harm", [shorten, empty, negative])
def test_a_state_that_is_none_is_refused(tmp_path: Path, harm: Callable[[dict[str, object]], None]) -> None:
    GlobalGenerators().save(tmp_path)
    path = tmp_path / "generators.json"
    state = json.decode(path.read_bytes())
    harm(state)
    path.write_bytes(json.encode(state))
    with pytest.raises(CheckpointError, match=r"generators\.json cannot be read"):
        GlobalGenerators().load(tmp_path)


def test_states_of_other_devices_are_left_alone(tmp_path: Path) -> None:
    GlobalGenerators().save(tmp_path)
    wanted = drawn()
    path = tmp_path / "generators.json"
    path.write_bytes(json.encode(json.decode(path.read_bytes()) | {"cuda": ["AAAA", "AAAA"]}))
    GlobalGenerators().load(tmp_path)
    assert drawn() == wanted


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
