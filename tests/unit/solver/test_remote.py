"""A trainer of real processes that shard the policy: the same gradients as one process, and nothing lost with a rank.

On the CPU by gloo. Does not show NCCL, computing in bfloat16, nor how much faster several cards are."""

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from builders.models import random_rows, tiny_policy
from builders.models import saved as saved_policy
from builders.users import wait_until
from e2e.test_run import command, newest_checkpoint, rows
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from codezero.config import NodeConfig, SolverConfig, TrainerConfig
from codezero.config.learning import ModelConfig
from codezero.errors import CheckpointError, ConfigError, RankError, RankMemoryError, RolloutError
from codezero.models.hardware import SPARE
from codezero.models.load import LoadedModel
from codezero.settings import compose
from codezero.solver import build, remote
from codezero.solver import trainer as trainer_module
from codezero.solver.batch import Batch, TrainingRow, packed, split
from codezero.solver.build import RANK, build_policy, deal_cards, load_policy
from codezero.solver.learner import TrlLearner
from codezero.solver.policy_files import MOMENTS
from codezero.solver.remote import Begin, Progress, Ranks, RemoteLearner
from codezero.system.child import is_there
from codezero.weights.versions import PolicyVersion, VersionSource, read_manifest

SECONDS = 120.0
"""By then a dead rank has to be noticed, on a busy machine."""


@dataclasses.dataclass
class Trainer:
    """A learner, and the policy that follows its versions."""

    learner: RemoteLearner
    policy: LoadedModel
    versions: Path

    def pid(self, rank: int) -> int:
        assert self.learner.ranks is not None
        return self.learner.ranks.children[rank].pid


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> NodeConfig:
    folder = saved_policy(tiny_policy(), tmp_path_factory.mktemp("tiny"))
    solver = SolverConfig(minibatches=2, micro_batch_rows=3, max_new_tokens=10, kl_beta=0.01, learning_rate=1e-3)
    trainer = TrainerConfig(ranks=2, tokens_per_pass=60)
    return NodeConfig(model=ModelConfig(solver=str(folder), device="cpu"), solver=solver, trainer=trainer)


@contextlib.contextmanager
def started(config: NodeConfig, folder: Path) -> Generator[Trainer]:
    with contextlib.ExitStack() as stack:
        learner, _ = build_policy(config, deal_cards(config), folder, lambda _: None, stack)
        assert isinstance(learner, RemoteLearner)
        yield Trainer(learner, learner.policy, folder)


@pytest.fixture(scope="module")
def living(config: NodeConfig, tmp_path_factory: pytest.TempPathFactory) -> Generator[Trainer]:
    """One for all tests: to start another takes seconds."""
    with started(config, tmp_path_factory.mktemp("versions")) as trainer:
        trainer.learner.save(tmp_path_factory.mktemp("beginning"))
        yield trainer


@pytest.fixture
def trainer(living: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """As it began, whatever a test has done to it."""
    living.learner.load(next(tmp_path_factory.getbasetemp().glob("beginning*")))
    return living


def alone(config: NodeConfig) -> TrlLearner:
    return TrlLearner(load_policy(config, lambda _: None), config.solver)


def uneven(seed: int) -> Batch:
    """Groups of 7, 1, 4, 2 and 1 rows."""
    several: list[TrainingRow] = []
    for i, size in enumerate((7, 1, 4, 2, 1)):
        several += random_rows(size, group_size=size, seed=10 * seed + i)
    return Batch(tuple(several), idle_tokens=11)


def saved(learner: Any, folder: Path) -> Path:
    folder.mkdir()
    learner.save(folder)
    return folder


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def furthest(these: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> float:
    """Relative to the largest number of a tensor where that is above 1: sums come in another order."""
    assert these.keys() == others.keys()
    return max(float((these[n] - others[n]).abs().max() / max(1.0, float(others[n].abs().max()))) for n in these)


@pytest.mark.slow
def test_five_updates_are_those_of_one_process(config: NodeConfig, trainer: Trainer, tmp_path: Path) -> None:
    single = alone(config)
    for seed in range(5):
        expected, update = single.update(uneven(seed)), trainer.learner.update(uneven(seed))
        assert dataclasses.astuple(update)[:-1] == pytest.approx(dataclasses.astuple(expected)[:-1], rel=1e-5, abs=1e-6)
    assert (trainer.learner.steps, trainer.learner.updates) == (single.steps, single.updates) == (10, 5)
    weights = weights_in(saved(trainer.learner, tmp_path / "two"))
    assert furthest(weights, weights_in(saved(single, tmp_path / "one"))) < 1e-5
    for name, weight in trainer.policy.model.named_parameters():  # what the node samples from
        assert torch.equal(weight, weights[name].bfloat16().float())


@pytest.mark.slow
def test_log_probabilities_are_those_of_one_process(config: NodeConfig, trainer: Trainer) -> None:
    several = uneven(3).rows
    given = [row.prompt_ids for row in several], [row.completion_ids for row in several]
    for own, expected in zip(trainer.learner.logprobs(*given), alone(config).logprobs(*given), strict=True):
        assert own == pytest.approx(expected, abs=1e-5)
    assert trainer.learner.logprobs([(1,)], [()]) == [()]


@pytest.mark.slow
def test_a_step_that_is_not_finite_is_left_out_by_all(trainer: Trainer) -> None:
    broken = [dataclasses.replace(row, advantage=float("inf")) for row in uneven(0).rows]
    before, left_out = trainer.learner.steps, trainer.learner.skipped
    trainer.learner.update(Batch(tuple(broken)))
    assert (trainer.learner.steps, trainer.learner.skipped) == (before, left_out + 2)
    trainer.learner.update(uneven(1))
    assert trainer.learner.skipped == left_out + 2


@pytest.mark.slow
def test_a_killed_rank_is_replaced_and_nothing_differs(trainer: Trainer, tmp_path: Path) -> None:
    """It stands still first, so that the others are in the middle of waiting for it."""
    trainer.learner.update(uneven(0))
    folder = saved(trainer.learner, tmp_path / "saved")
    trainer.learner.update(uneven(1))
    expected = weights_in(saved(trainer.learner, tmp_path / "expected"))
    pid = trainer.pid(1)
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(RankError, match=r"^rank 1 of 2 was ended by SIGKILL$"):
        trainer.learner.update(uneven(2))
    with pytest.raises(RankError, match="has ended"):
        trainer.learner.update(uneven(2))
    trainer.learner.load(folder)
    trainer.learner.update(uneven(1))
    weights = weights_in(saved(trainer.learner, tmp_path / "again"))
    assert all(torch.equal(weights[name], weight) for name, weight in expected.items())
    assert trainer.learner.updates == 2 == read_manifest(VersionSource(trainer.versions)).versions[-1].number


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 3])
def test_any_number_of_ranks_reads_a_checkpoint(
    config: NodeConfig, trainer: Trainer, tmp_path: Path, ranks: int
) -> None:
    trainer.learner.update(uneven(0))
    folder = saved(trainer.learner, tmp_path / "two")
    trainer.learner.update(uneven(1))
    expected = weights_in(saved(trainer.learner, tmp_path / "expected"))
    other = dataclasses.replace(config, trainer=TrainerConfig(ranks=ranks, tokens_per_pass=60))
    with started(other, tmp_path / "versions") as few:
        few.learner.load(folder)
        few.learner.update(uneven(1))
        assert furthest(weights_in(saved(few.learner, tmp_path / "few")), expected) < 1e-6


@pytest.mark.slow
def test_a_rank_that_fails_says_why(config: NodeConfig, trainer: Trainer, tmp_path: Path) -> None:
    broken = dataclasses.replace(config, model=dataclasses.replace(config.model, solver="/nowhere"))
    begin, start = Begin(broken, str(tmp_path), 60), partial(Ranks, RANK, deal_cards(config), "gloo")
    with pytest.raises(RankError, match=r"ended with code 1: solver: /nowhere is not"):
        RemoteLearner(trainer.policy, start, begin, lambda _: None)


@pytest.mark.slow
def test_ranks_end_with_their_node() -> None:
    program = (
        "import time; from codezero.solver.remote import Ranks; from codezero.solver.build import RANK; "
        "print(*(child.pid for child in Ranks(RANK, [{}, {}], 'gloo').children), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        pids = [int(word) for word in node.stdout.readline().split()]
        time.sleep(0.5)
        assert len(pids) == 2 and all(map(is_there, pids))
        node.kill()
    deadline = time.monotonic() + SECONDS
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.1)


class Scripted:
    """Ranks that have no memory for more than `room` tokens a pass."""

    def __init__(self, room: int) -> None:
        self.room, self.tokens, self.tried = room, 0, list[int]()

    def ask(self, word: str, body: Any, kind: Any) -> Any:
        if isinstance(body, Begin):
            self.tokens = body.tokens_per_pass
        elif word == "learn":
            self.tried.append(self.tokens)
            if self.tokens > self.room:
                raise RankMemoryError("rank 0 of 2 ended with code 75: out of memory")
        return Progress(0, 0, 0, PolicyVersion(0, "0" * 64, None, delta=1))

    def close(self) -> None: ...


def test_memory_that_runs_out_halves_what_a_pass_may_hold(tmp_path: Path) -> None:
    ranks: Any = Scripted(100)
    begin = Begin(NodeConfig(), str(tmp_path), 300)
    learner = RemoteLearner(tiny_policy(), lambda: ranks, begin, lambda _: None)
    for _ in range(2):
        with pytest.raises(RankMemoryError):
            learner.update(Batch(()))
        learner.load(tmp_path)
    with pytest.raises(AssertionError):  # the script says nothing of an update
        learner.update(Batch(()))
    assert ranks.tried == [300, 150, 75]


@pytest.mark.slow
def test_checkpoints_of_the_two_kinds_are_told_apart(config: NodeConfig, trainer: Trainer, tmp_path: Path) -> None:
    single = alone(config)
    single.update(uneven(0))
    with pytest.raises(CheckpointError, match=r"set trainer\.ranks=0"):
        trainer.learner.load(saved(single, tmp_path / "one"))
    trainer.learner.update(uneven(0))
    with pytest.raises(CheckpointError, match=r"set trainer\.ranks"):
        single.load(saved(trainer.learner, tmp_path / "two"))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=30), st.integers(1, 60), st.booleans())
def test_passes_hold_every_row_once_and_no_more_than_fits(
    sizes: list[tuple[int, int]], tokens: int, shared: bool
) -> None:
    given_rows = [TrainingRow((1,) * p, (2,) * c, (0.0,) * c, 1.0) for p, c in sizes]
    parts = packed(given_rows, tokens, shared=shared)
    assert sorted(id(row) for part in parts for row in part) == sorted(map(id, given_rows))
    for part in parts:
        longest = max(len(row.prompt_ids) for row in part) + max(len(row.completion_ids) for row in part)
        once = sum({row.prompt_ids: len(row.prompt_ids) for row in part}.values())
        takes = once + sum(len(row.completion_ids) for row in part) if shared else len(part) * longest
        assert len(part) == 1 or takes <= tokens


def test_rows_are_dealt_by_whole_groups_and_evenly() -> None:
    batch = uneven(0)
    shares = split(batch.rows, 3)
    assert sorted(map(id, batch.rows)) == sorted(id(row) for share in shares for row in share)
    prompts = [{row.prompt_ids for row in share} for share in shares]
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == 5
    assert len(shares[0]) == 7 and all(prompts)
    assert split(batch.rows[:7], 2)[1] == []


@pytest.mark.parametrize(
    ("ranks", "cards", "visible", "trainer", "own"),
    [
        (0, [], ["0", "1"], [], None),
        (2, [], ["4", "GPU-b", "6"], ["GPU-b", "6"], "4"),
        (1, ["6"], ["4", "5", "6"], ["6"], "4"),
        (2, [], [], [None, None], None),
    ],
)
def test_the_trainer_takes_the_last_cards(
    ranks: int, cards: list[str], visible: list[str], trainer: Sequence[str | None], own: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(build, "find_cards", lambda _: visible)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environments = deal_cards(NodeConfig(trainer=TrainerConfig(ranks=ranks, cards=cards)))
    assert [environment.get("CUDA_VISIBLE_DEVICES") for environment in environments] == trainer
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == own


def test_without_ranks_the_freest_of_several_cards_is_taken_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "find_cards", lambda _: ["4", "5"])
    monkeypatch.setattr(build, "freest_card", lambda cards: cards[-1])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    monkeypatch.setenv(SPARE, "")
    assert deal_cards(NodeConfig()) == [] and os.environ["CUDA_VISIBLE_DEVICES"] == "4,5"  # embedded models need none
    assert deal_cards(NodeConfig(model=ModelConfig(solver="Qwen/Qwen2.5-Coder-0.5B-Instruct"))) == []
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ[SPARE]) == ("5", "4")
    assert capsys.readouterr().out.startswith("codezero: card 5 of 2, the freest")


def test_more_ranks_than_cards_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "find_cards", lambda _: ["0", "1"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ConfigError, match=r"^trainer\.ranks=3, but there are 2 cards"):
        deal_cards(NodeConfig(trainer=TrainerConfig(ranks=3)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["trainer.ranks=2", "model.train=lora"], "the ranks shard all weights"),
        (["trainer.ranks=2", "solver.optimizer=adamw_8bit"], "cannot be sharded"),
        (["rollout.in_flight=8", "rollout.max_staleness=0"], "one version old; set it to 1"),
        (["rollout.servers=[ftp://x]"], r"rollout\.servers has ftp://x, which is no address"),
    ],
)
def test_settings_that_contradict_are_refused(settings: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose(settings)


@pytest.mark.long
def test_a_node_whose_rank_is_killed_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    settings = ["trainer.ranks=2", "model.device=cpu", "evals.every=0", "monitor.view=off", "run.max_iterations=4"]
    states: list[Path] = []
    for name in ("whole", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        if states:  # the same node: problems are drawn by its identity too
            shutil.copy(tmp_path / "whole" / "swarm.pem", folder)
        with subprocess.Popen(command(folder, *settings), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as node:
            if name == "killed":
                wait_until("iteration 1", lambda folder=folder: len(rows(folder)) > 1, node)
                ranks = [each for each in psutil.Process(node.pid).children() if build.RANK in each.cmdline()]
                assert len(ranks) == 2
                ranks[1].kill()
            _, errors = node.communicate(timeout=2 * SECONDS)
        assert node.returncode == 0, errors
        assert [row["iteration"] for row in rows(folder)] == [1, 2, 3, 4]
        states.append(newest_checkpoint(folder) / "solver")
        assert rows(folder)[-1].get("tolerated/RankError", 0) == (name == "killed")
    for file in ("model/model.safetensors", *(f"{MOMENTS}/{path.name}" for path in (states[0] / MOMENTS).iterdir())):
        whole, killed = (load_file(state / file) for state in states)
        assert whole.keys() == killed.keys() and all(torch.equal(whole[name], killed[name]) for name in whole), file


def test_what_was_started_is_ended_when_the_rest_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[Any] = []

    def spawn(command: Sequence[str], **options: Any) -> Any:
        if spawned:
            raise OSError("too many processes")
        spawned.append(remote.Child(["sleep", "600"], **options))
        return spawned[0], remote.Channel(socket.socket())

    monkeypatch.setattr(remote, "spawn", spawn)
    with pytest.raises(OSError, match="too many"):
        Ranks("a.module", [{}, {}], "gloo")
    assert spawned[0].poll() is not None


def test_ranks_whose_first_version_reaches_nobody_are_ended(tmp_path: Path) -> None:
    ranks: Any = Scripted(1000)
    closed: list[bool] = []
    ranks.close = lambda: closed.append(True)

    def follow(_: PolicyVersion) -> None:
        raise RolloutError("no server")

    with pytest.raises(RolloutError):
        RemoteLearner(tiny_policy(), lambda: ranks, Begin(NodeConfig(), str(tmp_path), 300), follow)
    assert closed


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("")])
def test_a_rank_ends_at_once_whatever_it_fails_by(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    codes: list[int] = []

    def serve(_: object) -> None:
        raise error

    monkeypatch.setattr(trainer_module, "serve", serve)
    monkeypatch.setattr(trainer_module, "parent_channel", lambda: None)
    monkeypatch.setattr(trainer_module.os, "_exit", codes.append)
    trainer_module.main()
    assert codes == [1] and str(error) in capsys.readouterr().err.splitlines()[-1]
