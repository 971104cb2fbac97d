"""What a node does at its start when its chain is not as the config says."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import pytest
from builders.chain import Swarm
from fakes.chaos_proxy import ChaosProxy

from codezero.chain import build
from codezero.chain.build import build_chain
from codezero.chain.errors import ForeignOwnerError
from codezero.config import ChainConfig, NodeConfig
from codezero.errors import ConfigError

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


def nobody(_: object) -> Never:
    raise AssertionError("no endpoint of these tests is a node")


@pytest.fixture
def config(swarm: Swarm, tmp_path: Path) -> NodeConfig:
    wallet, contract = str(tmp_path / "wallet.json"), swarm.contract
    chain = ChainConfig(kind="rpc", rpc_urls=[swarm.url], chain_id=swarm.chain_id, contract=contract, wallet=wallet)
    return NodeConfig(chain=chain)


def changed(config: NodeConfig, **changes: Any) -> NodeConfig:
    return replace(config, chain=replace(config.chain, **changes))


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_a_node_is_registered_with_an_account_of_its_own(
    swarm: Swarm, config: NodeConfig, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    build_chain(config, PEER, tmp_path, stack, nobody)
    owner = swarm.owner.owners([PEER])[PEER]
    assert owner is not None and owner != swarm.owner.account


def test_a_peer_id_of_somebody_else_stops_the_start_naming_both_accounts(
    swarm: Swarm, config: NodeConfig, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    foreign = PEER[:-1] + "M"
    swarm.owner.register(foreign)
    with pytest.raises(ForeignOwnerError, match=swarm.owner.account):
        build_chain(config, foreign, tmp_path, stack, nobody)


def test_a_chain_that_is_away_costs_a_warning_and_the_peer_is_registered_once_it_is_there(
    swarm: Swarm, config: NodeConfig, tmp_path: Path, stack: contextlib.ExitStack,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Whoever joins in the moment in which the founder's chain is away is no less a member than others."""
    monkeypatch.setattr(build, "FILLING_SECONDS", 0.2)
    late = PEER[:-1] + "P"
    with ChaosProxy(swarm.url, drop=1.0, delay=0.0, lie=0.0) as chain:
        place = changed(config, rpc_urls=[chain.url], submit_after=0.2)
        now = swarm.owner.read_round()
        build_chain(place, late, tmp_path, stack, nobody).outbox.add(1, now, 0.5, None)
        assert swarm.owner.owners([late])[late] is None and "will be when the chain answers" in caplog.text
        chain.drop = 0.0
        deadline = time.monotonic() + 120
        while swarm.owner.owners([late])[late] is None:
            assert time.monotonic() < deadline, "it was never registered"
            time.sleep(0.2)
        stack.close()


def test_another_chain_than_the_config_says_stops_the_start(
    swarm: Swarm, config: NodeConfig, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    with pytest.raises(ConfigError, match=str(swarm.chain_id)):
        build_chain(changed(config, chain_id=swarm.chain_id + 1), PEER, tmp_path, stack, nobody)
