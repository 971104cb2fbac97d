"""What a node decides while its parts are made."""

import json
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from codezero import node, propose
from codezero.config import ExternalConfig, NodeConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import WalletError
from codezero.monitor.metrics_file import NODE_FILE
from codezero.monitor.monitor import RunMonitor
from codezero.problems.build import build_stream
from codezero.problems.filters import Novelty
from codezero.runs import begin
from codezero.settings import compose
from codezero.swarm.build import pulled_groups


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
    config = compose(["model=qwen", *words])
    stand_ins = build_stream(config, CodeEnvironment(), "peer", Novelty(), str, lambda problem: True).stand_ins
    shown = capsys.readouterr().out
    assert line in shown and ("teach a real model little" in shown) == bool(line) == bool(stand_ins)
    monitor = RunMonitor(folder=tmp_path, view="off", identity="peer", facts={"swarm": "local"})
    monitor.add_facts(stand_ins=stand_ins)
    monitor.started(0)
    assert json.loads((tmp_path / NODE_FILE).read_text())["stand_ins"] == stand_ins
    monitor.close("asked to stop")


@pytest.mark.parametrize("script", [node, propose])
def test_wallet_outbox_and_chain_are_looked_at_before_models_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: ModuleType
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("minutes")

    def chain(*_: object) -> NoReturn:
        raise WalletError("no keystore")

    for name in ("build_policy", "build_proposer"):
        monkeypatch.setattr(script, name, load, raising=False)
    monkeypatch.setattr(script, "start_chain", lambda *_: chain)
    monkeypatch.setattr(script, "start_network", lambda *_: None)
    paths = [f"run.directory={tmp_path}", f"run.logs={tmp_path}", f"swarm.identity={tmp_path / 'swarm.pem'}"]
    role, start = ("node", node.run_node) if script is node else ("proposer", propose.run_proposer)
    config = compose([*paths, f"role={role}", "network=peer", "login.page=off", "monitor.view=off"])
    with begin(config) as folder, pytest.raises(WalletError, match="no keystore"):
        start(config, folder)
