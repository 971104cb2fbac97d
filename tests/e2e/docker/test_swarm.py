"""Two containers on a bridge network, each with a root that cannot be written, learn from each other's rollouts."""

import json
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
    name = f"codezero-test-{uuid.uuid4().hex[:8]}"
    docker("network", "create", "--driver", "bridge", name)
    try:
        yield name
    finally:
        for container in docker("ps", "--all", "--quiet", "--filter", f"network={name}").stdout.split():
            docker("rm", "--force", "--volumes", container)
        docker("network", "rm", name)


def peer(network: str, image: str, *settings: str) -> Node:
    limits = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    words = ("run", "--detach", f"--network={network}", *limits, image, *PEER, *settings)
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
