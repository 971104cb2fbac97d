"""A learner that only follows: its policy is the source's, bit for bit, or stays what it was."""

from pathlib import Path

import pytest
import torch
from builders.models import tiny_policy

from codezero.errors import CheckpointError, SwarmError
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch
from codezero.solver.remote import FollowingLearner
from codezero.weights import MANIFEST
from codezero.weights.state import of_tensors
from codezero.weights.transfer import FolderSource
from codezero.weights.versions import Publisher
from codezero.wiring.models import published

NOTHING = Batch(())


class Trainer:
    """Publishes versions of a policy that moves."""

    def __init__(self, folder: Path) -> None:
        self.policy, self.number = tiny_policy(seed=5), 0
        self.publisher = Publisher(folder, keep=2, check_every=3)

    def step(self) -> None:
        with torch.no_grad():
            for weight in self.policy.model.parameters():
                weight += 1e-3 * torch.randn_like(weight)
        self.number += 1
        self.publisher.publish(self.number, published(self.policy))


def content(policy: LoadedModel) -> str:
    return of_tensors(published(policy)).content()


def test_an_update_brings_the_newest_version_bit_for_bit(tmp_path: Path) -> None:
    trainer, changes = Trainer(tmp_path), list[int]()
    learner = FollowingLearner(tiny_policy(), FolderSource(tmp_path))
    learner.changed = lambda: changes.append(learner.updates)
    for number in range(1, 6):
        trainer.step()
        assert learner.update(NOTHING).rows == 0
        assert content(learner.policy) == content(trainer.policy) and learner.steps == number
    learner.update(NOTHING)
    assert changes == [1, 2, 3, 4, 5], "a version that is there already changes nothing"


def test_whatever_is_wrong_the_policy_stays_and_goes_on_later(tmp_path: Path) -> None:
    trainer = Trainer(tmp_path)
    trainer.step()
    learner = FollowingLearner(tiny_policy(), FolderSource(tmp_path))
    learner.update(NOTHING)
    before = content(learner.policy)
    good = (tmp_path / MANIFEST).read_bytes()
    for broken in (b"", b"{}", good.replace(b'"layout":"', b'"layout":"0', 1), good[:-1]):
        (tmp_path / MANIFEST).write_bytes(broken)
        with pytest.raises(SwarmError, match="no newer version"):
            learner.update(NOTHING)
        assert content(learner.policy) == before
    (tmp_path / MANIFEST).write_bytes(good)
    trainer.step()
    for path in tmp_path.glob("*.delta"):
        path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with pytest.raises(SwarmError):
        learner.update(NOTHING)
    assert content(learner.policy) == before
    trainer.publisher.publish(3, published(trainer.policy), anchor=True)
    learner.update(NOTHING)
    assert content(learner.policy) == content(trainer.policy)


def test_versions_of_another_model_are_refused(tmp_path: Path) -> None:
    Publisher(tmp_path, keep=2, check_every=3).publish(1, {"w": torch.ones(3)})
    learner = FollowingLearner(tiny_policy(), FolderSource(tmp_path))
    with pytest.raises(SwarmError, match="another model"):
        learner.update(NOTHING)


def test_a_checkpoint_holds_the_version_that_was_reached(tmp_path: Path) -> None:
    trainer, saved = Trainer(tmp_path / "versions"), tmp_path / "saved"
    saved.mkdir()
    trainer.step()
    learner = FollowingLearner(tiny_policy(), FolderSource(tmp_path / "versions"))
    learner.update(NOTHING)
    learner.save(saved)
    again = FollowingLearner(tiny_policy(), FolderSource(tmp_path / "versions"))
    again.load(saved)
    assert (content(again.policy), again.steps) == (content(learner.policy), 1)
    trainer.step()
    again.update(NOTHING)
    assert content(again.policy) == content(trainer.policy)
    (saved / "learner.json").unlink()
    with pytest.raises(CheckpointError):
        again.load(saved)


def test_after_a_checkpoint_is_loaded_the_newest_version_is_reached_again(tmp_path: Path) -> None:
    trainer, saved = Trainer(tmp_path / "versions"), tmp_path / "saved"
    saved.mkdir()
    trainer.step()
    learner = FollowingLearner(tiny_policy(), FolderSource(tmp_path / "versions"))
    learner.save(saved)
    learner.update(NOTHING)
    learner.load(saved)
    learner.update(NOTHING)
    assert content(learner.policy) == content(trainer.policy)
