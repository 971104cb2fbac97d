"""Two real processes that compute as one: the same gradients, the same weights, and no wait for who has died.

On the CPU by gloo. Does not show NCCL, nor how much faster several cards are.
"""

import contextlib
import copy
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed
from builders.models import random_rows, tiny_policy
from e2e.test_run import command, rows, run, wait_for_iteration

from codezero.config import NodeConfig, SolverConfig
from codezero.config_learning import ModelConfig
from codezero.errors import ConfigError, RankError
from codezero.models import distributed
from codezero.models.distributed import Workers
from codezero.models.distributed import split as split_prompts
from codezero.models.generation import Sampler
from codezero.models.load import LoadedModel
from codezero.solver.batch import Batch, TrainingRow, split
from codezero.solver.learner import TrlLearner
from codezero.wiring import models as wiring_models
from codezero.wiring.models import build_learner, build_sampler, join_ranks, load_policy, start_workers

SECONDS = 120.0
"""A dead rank has to be noticed by then, on a busy machine."""
PROMPTS = ["a", "what is two and two", "b " * 12, "write f", "five"]


@dataclasses.dataclass
class Pair:
    """Rank 0, with one further rank."""

    config: NodeConfig
    workers: Workers
    policy: LoadedModel
    learner: TrlLearner

    def sampler(self) -> Sampler:
        with contextlib.ExitStack() as stack:
            return build_sampler(self.config, self.policy, lambda _: None, stack, group=self.learner.group)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> NodeConfig:
    folder = tmp_path_factory.mktemp("tiny")
    tiny = tiny_policy()
    tiny.model.save_pretrained(folder)
    tiny.tokenizer.save_pretrained(folder)
    solver = SolverConfig(minibatches=2, micro_batch_rows=3, max_new_tokens=10, kl_beta=0.01, learning_rate=1e-3)
    return NodeConfig(model=ModelConfig(solver=str(folder), device="cpu", gpus=2), solver=solver)


class Keeper:
    """One living pair at a time: to start another takes seconds."""

    pair: Pair | None = None

    def start(self, config: NodeConfig) -> Pair:
        workers = Workers([{"OMP_NUM_THREADS": "1"}])
        group = join_ranks(config, workers)
        policy = load_policy(config, lambda _: None)
        self.pair = Pair(config, workers, policy, build_learner(config, policy, group=group))
        return self.pair

    def close(self) -> None:
        if self.pair is not None:
            self.pair.workers.close()
            if torch.distributed.is_initialized():  # where a worker had ended before
                torch.distributed.destroy_process_group()
            assert all(gone(pid) for pid in self.pair.workers.processes.pids().values())
            self.pair = None


@pytest.fixture(scope="module")
def keeper() -> Generator[Keeper]:
    kept = Keeper()
    yield kept
    kept.close()


@pytest.fixture
def pair(keeper: Keeper, config: NodeConfig, tmp_path: Path) -> Pair:
    """Both ranks as they begin."""
    if keeper.pair is None or any(gone(pid) for pid in keeper.pair.workers.processes.pids().values()):
        keeper.close()
        return keeper.start(config)
    (tmp_path / "beginning").mkdir()
    alone(config).save(tmp_path / "beginning")
    keeper.pair.learner.load(tmp_path / "beginning")
    return keeper.pair


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def uneven(seed: int) -> Batch:
    """Groups of 7, 1, 4, 2 and 1 rows."""
    found: list[TrainingRow] = []
    for i, size in enumerate((7, 1, 4, 2, 1)):
        found += random_rows(size, group_size=size, seed=10 * seed + i)
    return Batch(tuple(found), idle_rows=2, idle_tokens=11)


def alone(config: NodeConfig) -> TrlLearner:
    return TrlLearner(load_policy(config, lambda _: None), config.solver)


def gradients_of(learner: TrlLearner, monkeypatch: pytest.MonkeyPatch) -> list[list[torch.Tensor]]:
    """Fills while the learner takes its steps."""
    found: list[list[torch.Tensor]] = []
    step = learner._optimizer.step

    def note() -> None:
        found.append([one.grad.clone() for one in learner.policy.model.parameters() if one.grad is not None])
        step()

    monkeypatch.setattr(learner._optimizer, "step", note)
    return found


def furthest(one: Any, other: Any) -> float:
    """Relative to the largest number where that is above 1: sums come in another order."""
    pairs = [(a.detach(), b.detach()) for a, b in zip(one, other, strict=True)]
    return max(float((a - b).abs().max() / max(1.0, float(b.abs().max()))) for a, b in pairs)


def test_five_updates_are_those_of_one_process_and_leave_both_ranks_alike(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = alone(pair.config)
    expected, found = gradients_of(single, monkeypatch), gradients_of(pair.learner, monkeypatch)
    prints: list[int] = []
    assert pair.learner.group is not None
    receive = pair.learner.group.replies

    def note(kind: Any) -> list[Any]:
        replies = receive(kind)
        prints.extend(replies)
        return replies

    monkeypatch.setattr(pair.learner.group, "replies", note)
    for seed in range(5):
        one, two = single.update(uneven(seed)), pair.learner.update(uneven(seed))
        assert two.compared == one.compared == ()  # random rows are of no sampler
        assert dataclasses.astuple(two)[:-1] == pytest.approx(dataclasses.astuple(one)[:-1], rel=1e-5, abs=1e-6)
        assert prints[-1] == pair.learner.fingerprint()
    assert len(prints) == 5 == len(set(prints))
    assert len(found) == len(expected) == 10
    assert all(furthest(a, b) < 1e-6 for a, b in zip(found, expected, strict=True))
    # Adam divides by a gradient's size, so that a sum in another order shows more in the weights than in it
    assert furthest(pair.policy.model.parameters(), single.policy.model.parameters()) < 1e-5
    nobody = Batch(random_rows(1)[:1], 0, 0)  # one group: the other rank has nothing to add
    assert pair.learner.update(nobody).loss == pytest.approx(single.update(nobody).loss, abs=1e-6)


def test_ranks_go_on_from_what_rank_0_has_loaded(pair: Pair, tmp_path: Path) -> None:
    single = alone(pair.config)
    for seed in range(3):
        single.update(uneven(seed))
    tmp_path.joinpath("saved").mkdir()
    single.save(tmp_path / "saved")
    pair.learner.load(tmp_path / "saved")
    before = copy.deepcopy(list(pair.policy.model.parameters()))
    assert furthest(before, single.policy.model.parameters()) == 0
    single.update(uneven(9))
    assert pair.learner.update(uneven(9)).skipped == 0
    assert (pair.learner.steps, pair.learner.updates) == (single.steps, single.updates)
    assert furthest(pair.policy.model.parameters(), single.policy.model.parameters()) < 1e-5


def test_weights_that_drift_apart_end_the_run(pair: Pair) -> None:
    pair.learner.update(uneven(0))
    next(iter(pair.policy.model.parameters())).data.view(-1)[0] += 1e-3
    with pytest.raises(RankError, match="drifted apart"):
        pair.learner.update(uneven(1))


def test_samples_come_in_order_and_again_for_the_same_seed(pair: Pair) -> None:
    dealt = pair.sampler()

    def sample(sampler: Sampler, seed: int, temperature: float = 1.0) -> list[list[tuple[int, ...]]]:
        groups = sampler.sample(PROMPTS, group_size=3, max_new_tokens=8, temperature=temperature, generator_seed=seed)
        return [[completion.token_ids for completion in group] for group in groups]

    likeliest = sample(Sampler(pair.policy), 1, 1e-5)  # which leave no room for chance
    assert len({group[0] for group in likeliest}) > 3
    assert sample(dealt, 1, 1e-5) == likeliest
    assert sample(dealt, 1) == sample(dealt, 1) != sample(dealt, 2)
    pair.learner.update(uneven(0))
    assert sample(dealt, 1, 1e-5) == sample(Sampler(pair.policy), 1, 1e-5) != likeliest  # from the newest policy
    assert [len(group) for group in pair.sampler().sample(
        PROMPTS[:1], group_size=2, max_new_tokens=4, temperature=1.0, generator_seed=1
    )] == [2]  # fmt: skip


@pytest.mark.parametrize("call", ["update", "sample"])
def test_a_rank_that_is_killed_ends_the_call(pair: Pair, call: str) -> None:
    """It stands still first, so that rank 0 is in the middle of waiting for it."""
    pid = pair.workers.processes.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    killer = threading.Timer(1.0, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(RankError, match=r"rank 1 of 2 is gone \(killed by SIGKILL\)"):
        if call == "update":
            pair.learner.update(uneven(0))
        else:
            pair.sampler().sample(PROMPTS, group_size=2, max_new_tokens=4, temperature=1.0, generator_seed=1)


def test_a_rank_that_fails_says_why(keeper: Keeper, config: NodeConfig) -> None:
    keeper.close()
    broken = dataclasses.replace(config, model=dataclasses.replace(config.model, solver="/nowhere"))
    with contextlib.closing(Workers([{}])) as workers:
        group = join_ranks(broken, workers)
        with pytest.raises(RankError, match=r"exit code 1: solver: /nowhere is not a"):
            build_learner(config, load_policy(config, lambda _: None), group=group)
    torch.distributed.destroy_process_group()


def test_a_node_that_waits_for_a_dead_rank_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "GRACE_SECONDS", 0.1)
    messages: list[str] = []
    ended = threading.Event()

    def end(message: str) -> None:
        messages.append(message)
        ended.set()

    monkeypatch.setattr(distributed, "give_up", end)
    with contextlib.closing(Workers([{}])) as workers:
        os.kill(workers.processes.pids()[0], signal.SIGKILL)
        assert ended.wait(SECONDS)
    assert messages == ["rank 1 of 2 is gone (killed by SIGKILL)"]


def test_ranks_end_with_their_node() -> None:
    program = (
        "import time; from codezero.models.distributed import Workers; "
        "print(*Workers([{}, {}]).processes.pids().values(), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        pids = [int(word) for word in node.stdout.readline().split()]
        time.sleep(0.5)
        assert len(pids) == 2 and not any(gone(pid) for pid in pids)
        node.kill()
    deadline = time.monotonic() + SECONDS
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_rows_are_dealt_by_whole_groups_and_evenly() -> None:
    batch = uneven(0)
    shares = split(batch.rows, 3)
    assert sorted(map(id, batch.rows)) == sorted(id(row) for share in shares for row in share)
    prompts = [{row.prompt_ids for row in share} for share in shares]
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == 5
    assert len(shares[0]) == 7 and all(prompts)
    assert split(batch.rows[:7], 2)[1] == []


def test_prompts_are_dealt_long_and_short_alike() -> None:
    assert split_prompts([[0] * 5, [0], [0] * 9, [0] * 2], 2) == [[1, 0], [3, 2]]
    assert split_prompts([[0]], 3) == [[0], [], []]


def test_as_many_ranks_as_cards_or_fewer(config: NodeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[list[dict[str, str]], str]] = []

    class Recorder:
        def __init__(self, environments: list[dict[str, str]], backend: str) -> None:
            started.append((environments, backend))

        def close(self) -> None: ...

    def start(gpus: int, cards: list[str]) -> tuple[int, list[str | None], str]:
        monkeypatch.setattr(wiring_models, "find_cards", lambda _: cards)
        monkeypatch.setattr(distributed, "Workers", Recorder)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "untouched")
        started.clear()
        wanted = dataclasses.replace(config, model=dataclasses.replace(config.model, gpus=gpus))
        with contextlib.ExitStack() as stack:
            resolved, overrides, _ = start_workers(wanted, ["seed=1"], stack)
        assert list(overrides) == ["seed=1"] + ([f"model.gpus={resolved.model.gpus}"] if gpus != 1 else [])
        assert all(backend == ("nccl" if cards else "gloo") for _, backend in started)
        visible = [one.get("CUDA_VISIBLE_DEVICES") for environments, _ in started for one in environments]
        return resolved.model.gpus, visible, os.environ["CUDA_VISIBLE_DEVICES"]

    assert start(1, ["0", "1"]) == (1, [], "untouched")
    assert start(0, ["0", "GPU-b", "2"]) == (3, ["GPU-b", "2"], "0")
    assert start(2, ["4", "5", "6"]) == (2, ["5"], "4")
    assert start(0, []) == (1, [], "untouched")
    assert start(3, []) == (3, [None, None], "untouched")
    with pytest.raises(ConfigError, match="2 cards are visible"):
        start(3, ["0", "1"])


@pytest.mark.slow
def test_a_node_of_two_ranks_runs_to_its_end_and_goes_on(tmp_path: Path) -> None:
    settings = ["model.gpus=2", "model.device=cpu", "evals.every=0"]
    for limit in (2, 3):
        done = run(tmp_path, *settings, f"run.max_iterations={limit}")
        assert done.returncode == 0, done.stderr
    measured = rows(tmp_path)
    assert [row["iteration"] for row in measured][-3:] == [1, 2, 3]
    assert measured[-1]["train/policy_step"] > 0


def test_a_node_whose_rank_is_killed_ends_with_an_error(tmp_path: Path) -> None:
    started = command(tmp_path, "model.gpus=2", "model.device=cpu", "evals.every=0", "monitor.view=off")
    with subprocess.Popen(started, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as node:
        wait_for_iteration(tmp_path, node, 1)
        ranks = [one for one in psutil.Process(node.pid).children() if "codezero.wiring.rank" in one.cmdline()]
        assert len(ranks) == 1
        ranks[0].kill()
        _, said = node.communicate(timeout=2 * SECONDS)
    assert node.returncode == 1
    assert said == "codezero: rank 1 of 2 is gone (killed by SIGKILL)\n"
