"""What the wiring decides by itself."""

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from codezero.chain.upkeep import ChainParts
from codezero.config import ExternalConfig, NodeConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import WalletError
from codezero.monitor.metrics_file import NODE_FILE
from codezero.monitor.monitor import RunMonitor
from codezero.problems.dedup import Novelty
from codezero.settings import compose
from codezero.wiring import node, proposer
from codezero.wiring.network import pulled_groups
from codezero.wiring.node import build_stream


@pytest.mark.parametrize(
    ("told", "pulled"),
    [(ExternalConfig(), 32), (ExternalConfig(policy="off"), 0), (ExternalConfig(groups=0), 0)],
    ids=["default", "off", "none"],
)
def test_nothing_is_pulled_that_nobody_learns_from(told: ExternalConfig, pulled: int) -> None:
    assert pulled_groups(NodeConfig(external=told)) == pulled


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["data.sources=[mbpp]"], "problems: embedded problems: a rehearsal: mbpp cannot be read"),
        (["data.sources=[synthetic]"], ""),
    ],
    ids=["lost", "wanted"],
)
def test_a_start_says_what_a_real_model_gets_in_place_of_its_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    monitor = RunMonitor(folder=tmp_path, view="off", identity="peer", swarm_kind="local", facts={})
    build_stream(compose(["model=qwen", *words]), CodeEnvironment(), "peer", lambda problem: True, Novelty(), monitor)
    shown = capsys.readouterr().out
    assert line in shown and ("teach a real model little" in shown) == bool(line) == bool(monitor.stand_ins)
    monitor.started(0)
    assert json.loads((tmp_path / NODE_FILE).read_text())["stand_ins"] == monitor.stand_ins
    monitor.close("asked to stop")


@pytest.mark.parametrize("role", ["node", "proposer"])
def test_wallet_outbox_and_chain_are_looked_at_before_models_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("minutes")

    def chain() -> ChainParts:
        raise WalletError("no keystore")

    for name in ("node.deal_cards", "node.build_stream", "evals.build_exam_tasks", "node.build_canaries"):
        monkeypatch.setattr(f"codezero.wiring.{name}", lambda *_, **__: SimpleNamespace(name="none"))
    monkeypatch.setattr(node, "build_policy", load)
    monkeypatch.setattr(proposer, "build_proposer", load)
    monitor, owned = RunMonitor(folder=tmp_path, view="off", identity="", swarm_kind="local", facts={}), cast(Any, None)
    swarm = cast(Any, SimpleNamespace(peer_id="Qm"))
    with ExitStack() as stack, pytest.raises(WalletError, match="no keystore"):
        site = proposer.Assembly(NodeConfig(), CodeEnvironment(), owned, swarm, monitor, chain, stack)
        node.build_node(site, []) if role == "node" else proposer.build_proposer_node(site)
    monitor.close("asked to stop")
