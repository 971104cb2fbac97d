"""Containers on bridge networks, each with a root that cannot be written, learn from each other's rollouts; one joins
another's swarm with nothing but its code."""

import json
import re
import uuid
from collections.abc import Iterator

import pytest
from builders.docker import QUICK, Node, docker, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]
PEER = (*QUICK, "network=peer", "chain.kind=clock", "login.page=off", "swarm.poll_seconds=0.5")
ADDRESSES = "/node/runs/mine/addresses.txt"


@pytest.fixture
def network(image: str) -> Iterator[str]:
    """A bridge network of its own; what is on it goes with it."""
    yield from bridge()


@pytest.fixture
def other_network(image: str) -> Iterator[str]:
    yield from bridge()


def bridge() -> Iterator[str]:
    name = f"codezero-test-{uuid.uuid4().hex[:8]}"
    docker("network", "create", "--driver", "bridge", name)
    try:
        yield name
    finally:
        for container in docker("ps", "--all", "--quiet", "--filter", f"network={name}").stdout.split():
            docker("rm", "--force", "--volumes", container)
        docker("network", "rm", name)


LIMITS = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")


def peer(network: str, image: str, *settings: str) -> Node:
    words = ("run", "--detach", f"--network={network}", *LIMITS, image, *PEER, *settings)
    return Node(docker(*words).stdout.strip())


def external(node: Node) -> float:
    """Peers' groups that it has learned from so far."""
    return sum(row.get("swarm/external_groups") or 0 for row in node.rows())


def test_two_containers_exchange_rollouts(network: str, image: str) -> None:
    founder = peer(network, image)
    until(lambda: docker("exec", founder.id, "test", "-s", ADDRESSES, check=False).returncode == 0, founder)
    ways = docker("exec", founder.id, "cat", ADDRESSES).stdout.split()
    address = founder.told()["NetworkSettings"]["Networks"][network]["IPAddress"]
    way = next(one for one in ways if one.startswith(f"/ip4/{address}/tcp/38331/"))
    joined = peer(network, image, f"swarm.bootstrap=[{way}]", "seed=1")
    until(lambda: external(joined) > 0, joined)
    until(lambda: external(founder) > 0, founder)
    told = json.loads(docker("exec", joined.id, "codezero", "swarm", "peers", "--json").stdout)
    assert told["peers"]
    for node in (founder, joined):
        docker("stop", "--time", "60", node.id)
        assert node.told()["State"]["ExitCode"] == 0, node.logs()[-3000:]


def test_a_container_joins_with_the_code_alone(network: str, other_network: str, image: str) -> None:
    """The founder is at home in one network and can be dialled in the other, where the joiner is; its chain is on its
    own loopback."""
    quick = (*QUICK, "login.page=off", "chain.submit_after=2")
    ways = ("--p2p-port", "38331", "swarm.host=0.0.0.0", "swarm.announce=[/dns4/founder/tcp/38331]")
    words = ("swarm", "create", *ways, "chain.round_seconds=10", *quick)
    founder = Node(docker("create", f"--network={network}", *LIMITS, image, *words).stdout.strip())
    docker("network", "connect", "--alias", "founder", other_network, founder.id)
    docker("start", founder.id)
    until(lambda: re.search(r"swarm join (cz1\w+)", founder.logs()), founder)
    match = re.search(r"swarm join (cz1\w+)", founder.logs())
    assert match
    words = ("run", "--detach", f"--network={other_network}", *LIMITS, image, "swarm", "join", match[1], *quick)
    joined = Node(docker(*words).stdout.strip())

    def counted() -> bool:
        board = docker(
            "exec", founder.id, "codezero", "leaderboard", "--json", "--invitation", "swarm.toml", check=False
        )
        peers = json.loads(board.stdout)["peers"] if board.returncode == 0 else {}
        return sum(one["rounds"] > 0 for one in peers.values()) == 2

    until(lambda: external(founder) > 0 and external(joined) > 0, joined)
    until(counted, joined)
