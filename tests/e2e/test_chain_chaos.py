"""Nothing lost and nothing counted twice, through a proxy that drops, delays and lies, and across kill -9."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from builders.anvil import ANVIL_LONG
from builders.chain import Swarm, found, fund
from fakes.chaos_proxy import ChaosProxy
from fakes.outbox_node import reward_of

from codezero.chain.outbox import read_status
from codezero.chain.wallet import KeystoreWallet
from codezero.errors import ChainError

NODE = Path(__file__).parents[1] / "fakes" / "outbox_node.py"
PEERS = ("QmOne", "QmTwo", "QmThree", "QmFour")
ACCOUNTS = ("first.json", "first.json", "second.json", "second.json")


@pytest.fixture(params=ANVIL_LONG)
def swarm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Swarm]:
    with found(tmp_path, request.param) as swarm:
        for account in set(ACCOUNTS):
            fund(swarm.client, KeystoreWallet.ephemeral(tmp_path / account).address)
        yield swarm


def spawn(swarm: Swarm, url: str, folder: Path, node: int, rounds: int) -> subprocess.Popen[bytes]:
    peer, vote = PEERS[node], PEERS[(node + 1) % len(PEERS)]
    arguments = [url, str(swarm.chain_id), swarm.contract, folder / ACCOUNTS[node], folder / f"{peer}.db", peer, vote]
    with (folder / f"{peer}.log").open("ab") as log:
        return subprocess.Popen([sys.executable, NODE, *arguments, str(rounds)], stdout=log, stderr=log)


def prove(swarm: Swarm, folder: Path, peers: Sequence[str], rounds: int) -> None:
    """Every reward and vote is on the chain once, with its value, and every outbox knows it."""
    rewards: Counter[tuple[int, str]] = Counter()
    ballots: Counter[tuple[int, str]] = Counter()
    for page in swarm.owner.history(0, ["RewardSubmitted", "WinnerSubmitted"]):
        for event in page.events:
            key = (event["args"]["roundNumber"], event["args"]["peerId"])
            if event["event"] == "RewardSubmitted":
                rewards[key] += 1
                assert event["args"]["reward"] == round(1000 * reward_of(key[0]))
            else:
                ballots[key] += 1
    wanted = {(number, peer): 1 for number in range(rounds) for peer in peers}
    assert rewards == wanted
    assert ballots == wanted
    for peer in peers:
        status = read_status(folder / f"{peer}.db")
        assert (status.accepted, status.refused, status.pending, status.problem) == (2 * rounds, 0, 0, "")


def accepted(folder: Path, node: int) -> int:
    try:
        return read_status(folder / f"{PEERS[node]}.db").accepted
    except ChainError:  # not made yet
        return 0


def play(swarm: Swarm, folder: Path, peers: Sequence[str], rounds: int, kills: int, seed: int) -> Counter[str]:
    """Kills hit nodes that have got something accepted since they were started: in the middle of their work."""
    swarm.open_round(rounds)
    dice = random.Random(seed)
    at_start = [0] * len(peers)
    with ChaosProxy(swarm.url, seed) as proxy:
        nodes = [spawn(swarm, proxy.url, folder, node, rounds) for node in range(len(peers))]
        while any(node.poll() is None for node in nodes):
            time.sleep(dice.uniform(0.0, 0.3))
            busy = [at for at, node in enumerate(nodes) if node.poll() is None and accepted(folder, at) > at_start[at]]
            if kills and busy:
                kills -= 1
                at = dice.choice(busy)
                nodes[at].kill()
                nodes[at].wait()
                at_start[at] = accepted(folder, at)
                nodes[at] = spawn(swarm, proxy.url, folder, at, rounds)
        assert [node.wait() for node in nodes] == [0] * len(nodes), (folder / "QmOne.log").read_text()
        assert kills == 0
        return proxy.counts


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_point_counts_once_through_chaos_and_across_kills(swarm: Swarm, tmp_path: Path) -> None:
    counts = play(swarm, tmp_path, PEERS[:2], rounds=3, kills=1, seed=2)
    prove(swarm, tmp_path, PEERS[:2], 3)
    assert all(counts[what] for what in ("dropped before", "dropped after", "delayed", "lied", "passed"))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_hundred_points_through_chaos_and_twenty_kills(swarm: Swarm, tmp_path: Path) -> None:
    print(play(swarm, tmp_path, PEERS, rounds=50, kills=20, seed=4))
    prove(swarm, tmp_path, PEERS, 50)
