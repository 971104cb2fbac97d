"""Beginning from a peer's policy: the exam decides, and whatever is wrong with the peer is one line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from builders.api_server import monitor

from codezero.config import NodeConfig
from codezero.errors import ChainError, SwarmError, WeightsError
from codezero.settings import compose
from codezero.weights import MANIFEST
from codezero.weights.state import of_tensors, read_weights
from codezero.weights.transfer import FolderSource
from codezero.weights.versions import Publisher
from codezero.wiring import following
from codezero.wiring.following import begin_from_peer, share_versions
from codezero.wiring.models import load, published

PEER = "12D3KooWA4Xop1JaT3MHxwYMkCepYsv4iPVopMXwCz5iHYdBfeSB"


class Begin:
    """A run that is about to begin, and a peer's versions in a folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self.versions = folder / "run", folder / "versions"
        self.run.mkdir()
        self.monitor = monitor(self.run)
        self.swarm = SimpleNamespace(play=lambda _: None, tokenizer_digest="")
        self.average = {True: 0.5, False: 0.4}
        """Of the peer's policy, and of the own."""
        self.config = compose(["network=peer", f"weights.follow={PEER}"])
        monkeypatch.setattr(following, "SwarmSource", self.source)
        monkeypatch.setattr(following, "examine", self.examine)

    def source(self, *_: object) -> Any:
        class Source(FolderSource):
            peer = PEER

        return Source(self.versions)

    def examine(self, config: NodeConfig, _: object) -> dict[str, float]:
        average = self.average[config.model.solver != "nano"]
        return {"eval/average_at_8": average, "eval/ci_low": average - 0.06}

    def publish(self) -> str:
        """The content of a version that differs from the own policy."""
        policy = load(self.config, "nano", "solver", lambda _: None)
        with torch.no_grad():
            next(iter(policy.model.parameters())).add_(0.01)
        Publisher(self.versions, keep=2, check_every=1).publish(7, published(policy))
        return of_tensors(published(policy)).content()

    def begin(self, chain: Any = None) -> NodeConfig:
        run: Any = SimpleNamespace(path=self.run, checkpoints=self.run / "checkpoints")
        parts: Any = SimpleNamespace(coordinator=SimpleNamespace(current_round=chain or (lambda: 3)))
        swarm: Any = self.swarm
        return begin_from_peer(self.config, run, swarm, lambda: parts, self.monitor)

    @property
    def fact(self) -> str:
        return self.monitor.state.facts["followed"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    return Begin(tmp_path, monkeypatch)


def test_the_better_policy_is_begun_from_and_both_figures_are_said(run: Begin) -> None:
    content = run.publish()
    solver = Path(run.begin().model.solver)
    assert read_weights(solver).content() == content
    assert run.fact == f"{PEER}, version 7, executed average@8 50.0% against 40.0% of the own policy: kept"
    (run.versions / MANIFEST).unlink()
    assert run.begin().model.solver == str(solver), "a restart begins where the run began"


@pytest.mark.parametrize("average", [0.45, 0.1])
def test_a_policy_that_is_not_better_by_its_interval_is_put_away(run: Begin, average: float) -> None:
    run.publish()
    run.average[True] = average
    assert run.begin().model.solver == "nano"
    assert run.fact.endswith("against 40.0% of the own policy: put away")
    assert [path.name for path in (run.run / following.FOLLOWED).iterdir()] == [following.ABOUT]


def test_without_an_exam_and_for_a_sampler_it_is_taken_unseen(run: Begin) -> None:
    content = run.publish()
    run.average.clear()
    run.config.role = "sampler"
    assert read_weights(Path(run.begin().model.solver)).content() == content


def test_whoever_is_wrong_costs_one_line_and_is_tried_again(run: Begin, caplog: pytest.LogCaptureFixture) -> None:
    def no_chain() -> int:
        raise ChainError("no chain")

    def no_swarm(_: int) -> None:
        raise SwarmError("no swarm")

    assert run.begin().model.solver == "nano" and "no folder of versions" in run.fact
    assert run.begin(no_chain).model.solver == "nano" and run.fact == "nobody: no chain"
    Publisher(run.versions, keep=2, check_every=1).publish(1, {"w": torch.ones(3)})
    assert run.begin().model.solver == "nano" and "another model" in run.fact
    run.swarm.play = no_swarm
    assert run.begin().model.solver == "nano" and run.fact == "nobody: no swarm"
    assert len([record for record in caplog.records if "own policy" in record.message]) == 4
    assert not (run.run / following.FOLLOWED).exists()


def test_a_run_with_a_checkpoint_follows_nobody(run: Begin) -> None:
    run.publish()
    (run.run / "checkpoints" / "00000003").mkdir(parents=True)
    assert run.begin().model.solver == "nano"


def test_what_is_shared_is_what_the_manifest_names(tmp_path: Path) -> None:
    publisher, weights, shared = Publisher(tmp_path, keep=2, check_every=3), torch.randn(200), list[Any]()
    for number in range(3):
        publisher.publish(number, {"w": weights + 1e-3 * number})
    swarm: Any = SimpleNamespace(share=lambda *given: shared.append(given))
    share_versions(swarm, tmp_path)
    ((manifest, files),) = shared
    assert manifest == (tmp_path / MANIFEST).read_bytes()
    assert {path.name for path in files} == {path.name for path in tmp_path.iterdir()} - {MANIFEST}
    (tmp_path / MANIFEST).write_bytes(b"{}")
    with pytest.raises(WeightsError):
        share_versions(swarm, tmp_path)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["weights.share=true"], "weights.share needs a swarm"),
        ([f"weights.follow={PEER}"], "weights.follow needs a swarm"),
        (["network=peer", "role=sampler"], "role=sampler needs the peer"),
        (["network=peer", "role=sampler", f"weights.follow={PEER}", "trainer.ranks=1"], "trains nothing"),
        (["network=peer", "weights.follow=../x"], "is no peer id"),
    ],
)
def test_settings_that_contradict_are_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compose(overrides)
