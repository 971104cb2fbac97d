"""Rounds by the clock; who opens rounds and when, who is registered, what the leaderboard adds up on a contract."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from builders.anvil import BACKENDS
from builders.chain import Swarm, found
from hypothesis import given
from hypothesis import strategies as st

from codezero.chain.base import Coordinator
from codezero.chain.contract import SHORTEST, Registry, Sender, StageManager, own_contracts
from codezero.chain.rounds import ClockCoordinator
from codezero.chain.wallet import KeystoreWallet
from codezero.config import ChainConfig
from codezero.errors import ChainError
from codezero.inspection.leaderboard import ranked, read_board

PEERS = [f"QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5{last}" for last in "NPQ"]
ROUND = 60.0


@pytest.fixture(scope="module", params=BACKENDS)
def swarm(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Swarm]:
    with found(tmp_path_factory.mktemp("swarm"), request.param) as swarm:
        for peer in PEERS:
            swarm.owner.register(peer)
        yield swarm


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def managed(swarm: Swarm, turn: Callable[[], bool] = lambda: True) -> tuple[StageManager, Clock]:
    clock = Clock()
    manager = StageManager(swarm.owner, ROUND, turn=turn, clock=clock)
    manager.tick()
    return manager, clock


def test_a_round_lasts_as_long_as_it_should(swarm: Swarm) -> None:
    (manager, clock), before = managed(swarm), swarm.owner.read_round()
    clock.now += ROUND - 1
    manager.tick()
    assert swarm.owner.read_round() == before
    clock.now += 1
    manager.tick()
    manager.tick()
    assert swarm.owner.read_round() == before + 1


def test_a_round_ends_early_when_everybody_has_submitted(swarm: Swarm) -> None:
    for peer in PEERS[:2]:
        swarm.owner.send("submitReward", swarm.owner.read_round(), 0, 1, peer)
    swarm.open_round(swarm.owner.read_round() + 1)
    (manager, clock), before = managed(swarm), swarm.owner.read_round()
    clock.now += SHORTEST * ROUND + 1
    swarm.owner.send("submitReward", before, 0, 1, PEERS[0])
    manager.tick()
    assert swarm.owner.read_round() == before
    swarm.owner.send("submitReward", before, 0, 1, PEERS[1])
    manager.tick()
    assert swarm.owner.read_round() == before + 1


def test_a_round_in_which_nobody_was_active_before_is_not_cut_short(swarm: Swarm) -> None:
    swarm.open_round(swarm.owner.read_round() + 2)
    (manager, clock), before = managed(swarm), swarm.owner.read_round()
    clock.now += SHORTEST * ROUND + 1
    manager.tick()
    assert swarm.owner.read_round() == before


def test_who_may_not_open_rounds_or_has_not_the_turn_opens_none(swarm: Swarm, tmp_path: Path) -> None:
    before = swarm.owner.read_round()
    clock = Clock()
    stranger = StageManager(swarm.member(tmp_path / "key.json"), ROUND, clock=clock)
    waiting, other = managed(swarm, turn=lambda: False)
    for manager in (stranger, waiting):
        manager.tick()
        clock.now += 2 * ROUND
        other.now += 2 * ROUND
        manager.tick()
    assert swarm.owner.read_round() == before


def test_the_registry_lists_who_is_registered_and_this_node(swarm: Swarm, tmp_path: Path) -> None:
    path, me = tmp_path / "network" / "members.txt", PEERS[0][:-1] + "R"
    registry = Registry(swarm.owner, path, me)
    registry.tick()
    assert set(path.read_text().split()) == {me, *PEERS}
    swarm.owner.register("not a peer id, and far too long a line for a list of members, or is it")
    registry.tick()
    assert set(path.read_text().split()) == {me, *PEERS}


def test_a_chain_has_one_contract_of_its_own(swarm: Swarm, tmp_path: Path) -> None:
    wallet = KeystoreWallet.ephemeral(tmp_path / "wallet.json")
    swarm.member(tmp_path / "wallet.json")
    sender = Sender(swarm.client, wallet)
    first = own_contracts(tmp_path, swarm.client, sender)
    assert own_contracts(tmp_path, swarm.client, sender) == first
    (tmp_path / "contract.json").write_text("{}")
    with pytest.raises(ChainError, match="damaged"):
        own_contracts(tmp_path, swarm.client, sender)


def test_the_leaderboard_adds_up_and_goes_on_where_it_stopped(swarm: Swarm, tmp_path: Path) -> None:
    config = ChainConfig(
        kind="rpc", rpc_urls=[swarm.url], chain_id=swarm.chain_id, contract=swarm.contract, round_seconds=ROUND
    )
    swarm.open_round(swarm.owner.read_round() + 1)
    before = read_board(config, tmp_path, lambda _share: None)
    points = {peer: standing.points for peer, standing in before.peers.items()}
    swarm.owner.send("submitReward", swarm.owner.read_round(), 0, 700, PEERS[2])
    swarm.owner.send("submitWinners", swarm.owner.read_round(), [PEERS[1]], PEERS[2])
    shares: list[float] = []
    after = read_board(config, tmp_path, shares.append)
    assert shares[-1] == 1.0 and after.cursor > before.cursor and after.round == swarm.owner.read_round()
    assert after.peers[PEERS[2]].points == points[PEERS[2]] + 700
    assert after.peers[PEERS[1]].votes == before.peers[PEERS[1]].votes + 1
    assert ranked(after)[0][0] == PEERS[2] and after.peers[PEERS[2]].owner == swarm.owner.account
    again = read_board(config, tmp_path / "elsewhere", shares.append)
    assert again.peers == after.peers


def test_the_leaderboard_of_a_chain_that_is_silent_says_so(tmp_path: Path) -> None:
    config = ChainConfig(
        kind="rpc", rpc_urls=["http://127.0.0.1:9"], chain_id=5, contract="0x" + 40 * "1", round_seconds=ROUND
    )
    with pytest.raises(ChainError, match=r"127\.0\.0\.1:9"):
        read_board(config, tmp_path, lambda _share: None)


# ---- rounds without a chain


def test_a_round_of_the_clock_lasts_round_seconds() -> None:
    clock = iter([0.0, 59.9, 60.0, 3600.5])
    coordinator: Coordinator = ClockCoordinator(60.0, now=lambda: next(clock))
    assert [coordinator.current_round() for _ in range(4)] == [0, 0, 1, 60]


@given(st.floats(0, 4e9), st.floats(0.1, 1e5))
def test_nodes_agree_without_talking_and_rounds_never_go_back(now: float, seconds: float) -> None:
    first, second = (ClockCoordinator(seconds, now=lambda: now) for _ in range(2))
    assert first.current_round() == second.current_round()
    assert ClockCoordinator(seconds, now=lambda: now + 1).current_round() >= first.current_round()
