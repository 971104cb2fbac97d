"""Rollout servers: what is to be started on other machines, and how vLLM is started on this one."""

import shlex

import pytest
import torch

from codezero.cli import build_parser
from codezero.config import NodeConfig
from codezero.errors import ConfigError
from codezero.models.device import DeviceMemory
from codezero.models.hardware import estimate
from codezero.rollout import build
from codezero.rollout.build import MEMORY_SHARE, host_commands, server_command, share_beside
from codezero.settings import compose

SERVERS = "rollout.servers=[http://b:18431/0,http://b:18431/1,http://c:18431/0]"


def node() -> NodeConfig:
    return compose([SERVERS, "weights.listen=a:18430", "solver.max_new_tokens=77", "solver.max_prompt_tokens=100"])


def test_each_other_machine_gets_a_command_that_its_own_parser_takes() -> None:
    commands = host_commands(node())
    assert len(commands) == 2
    for command, place, count in zip(commands, ("b:18431", "c:18431"), (2, 1), strict=True):
        program, *words = shlex.split(command)
        options = build_parser().parse_args(words)
        assert (program, options.listen, options.weights) == ("codezero", place, "http://a:18430")
        there = compose([*options.ports, *options.overrides])
        assert (there.rollout.start, there.solver.max_new_tokens, there.solver.max_prompt_tokens) == (count, 77, 100)
        assert there.model.solver == "nano"


def test_a_node_with_servers_of_its_own_names_no_other_machine() -> None:
    assert host_commands(compose(["rollout.start=1"])) == []


def flags(card: str, *words: str) -> str:
    return shlex.join(server_command(compose(["rollout.engine=vllm", *words]), "weights", card, 0.31, 8000))


def test_vllm_has_graphs_on_a_card_and_as_many_rows_as_their_length_allows() -> None:
    assert "--enforce-eager" in flags("") and "--enforce-eager" not in flags("0")
    assert "--dtype bfloat16" in flags("0") and "--gpu-memory-utilization 0.31" in flags("0")
    for longest, rows in ((300, 256), (3000, 112), (30_000, 48)):
        words = f"solver.max_prompt_tokens={longest - 48}", "solver.max_new_tokens=48"
        assert f"--max-num-seqs {rows} " in flags("0", *words)


@pytest.mark.parametrize(("total", "share"), [(80, 0.73), (200, MEMORY_SHARE)])
def test_vllm_beside_a_learner_takes_what_that_leaves(
    monkeypatch: pytest.MonkeyPatch, total: int, share: float
) -> None:
    config = compose(["profile=gpu-24g"])
    need, card = estimate(config, "cuda", 2), DeviceMemory((total - 1) * 2**30, total * 2**30)
    monkeypatch.setattr(build, "weigh", lambda _: (need, card, torch.device("cuda")))
    assert share_beside(config) == pytest.approx(share, abs=0.01)
    card = DeviceMemory(23 * 2**30, 24 * 2**30)
    with pytest.raises(ConfigError, match=r"11% of the card are left; set rollout\.start=0, or rollout\.cards"):
        share_beside(config)
