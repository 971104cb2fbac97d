"""Nodes on hosts of their own, and what happens to networks: dead bootstraps, kill -9, partitions, delay and loss.

Does not show: more than three nodes, limited bandwidth, address translation."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.driven_node import Node, questions, reaches
from builders.swarm import eventually, free_port
from fakes.lossy_net import LossyNet, missing

from codezero.swarm.identity import Identity

pytestmark = pytest.mark.timeout(300)
PORT = 38331
NAMES = {1: "alice", 2: "bob", 3: "carol"}


class Hosts:
    """Three nodes on three hosts; alice is the only bootstrap of the others."""

    def __init__(self, folder: Path) -> None:
        self.net, self.folder, self.nodes = LossyNet(3), folder, dict[int, Node]()
        peer = Identity.load_or_create(folder / "alice.pem").peer_id
        self.bootstrap = f"/ip4/10.77.0.1/tcp/{PORT}/p2p/{peer}"

    def start(self, host: int) -> Node:
        bootstrap = "" if host == 1 else self.bootstrap
        prefix = self.net.inside(host)
        self.nodes[host] = Node(self.folder, NAMES[host], f"10.77.0.{host}", PORT, bootstrap, prefix)
        return self.nodes[host]

    def kill(self, host: int) -> None:
        self.nodes.pop(host).kill()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """bob and carol are up before their only bootstrap is."""
    if reason := missing():
        pytest.skip(reason)
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        for host in (2, 3):
            made.start(host)
        for host in (2, 3):
            assert made.nodes[host].tell("ready")
        made.start(1)
        yield made
    finally:
        for node in made.nodes.values():
            node.close()
        made.net.close()


@pytest.mark.slow
def test_nodes_whose_bootstraps_are_all_dead_start_and_meet_when_one_comes(hosts: Hosts) -> None:
    alice, bob, carol = (hosts.nodes[host] for host in (1, 2, 3))
    reaches(bob, carol, alice)
    reaches(alice, bob)


@pytest.mark.long
def test_a_partition_heals(hosts: Hosts) -> None:
    alice, bob, carol = (hosts.nodes[host] for host in (1, 2, 3))
    reaches(bob, carol, alice)  # who has never met cannot know of each other
    hosts.net.parts = [{1}, {2, 3}]
    try:
        reaches(bob, carol)
        time.sleep(8)
        question = next(questions)
        carol.tell("publish", question)
        assert not alice.tell("heard", question)
    finally:
        hosts.net.parts = ()
    eventually(lambda: alice.tell("heard", question))
    reaches(alice, bob, carol)


@pytest.mark.slow
def test_delay_and_loss_slow_the_gossip_and_do_not_stop_it(hosts: Hosts) -> None:
    alice, bob, carol = (hosts.nodes[host] for host in (1, 2, 3))
    hosts.net.delay_seconds, hosts.net.loss = 0.1, 0.05  # 200 ms there and back
    try:
        reaches(bob, alice, carol, seconds=90)
        reaches(alice, bob, seconds=90)
    finally:
        hosts.net.delay_seconds, hosts.net.loss = 0.0, 0.0


@pytest.mark.slow
def test_a_daemon_killed_alone_is_replaced(hosts: Hosts) -> None:
    alice, bob = hosts.nodes[1], hosts.nodes[2]
    daemon = eventually(bob.daemon)
    assert daemon
    daemon.kill()
    eventually(lambda: (new := bob.daemon()) and new.pid != daemon.pid)
    reaches(alice, bob)
    reaches(bob, alice)


@pytest.mark.slow
def test_the_swarm_outlives_its_bootstrap_which_comes_back_as_itself(hosts: Hosts) -> None:
    bob, carol = hosts.nodes[2], hosts.nodes[3]
    hosts.kill(1)
    reaches(bob, carol)
    alice = hosts.start(1)
    assert hosts.bootstrap in alice.tell("ready")
    reaches(bob, alice)
    reaches(alice, carol, bob)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_partition_of_two_minutes_heals_within_two_rounds(hosts: Hosts) -> None:
    """A plain DHT stays split for ever after one that long. A round is taken to last 30 s."""
    alice, bob, carol = (hosts.nodes[host] for host in (1, 2, 3))
    reaches(alice, carol, bob)
    hosts.net.parts = [{1, 3}, {2}]
    try:
        end = time.monotonic() + 126
        while time.monotonic() < end:
            reaches(alice, carol)
            time.sleep(5)
    finally:
        hosts.net.parts = ()
    reaches(bob, alice, carol, seconds=60)
    reaches(carol, bob, seconds=60)


@pytest.mark.slow
def test_hivemind_s_own_command_is_a_bootstrap_for_our_nodes(tmp_path: Path) -> None:
    peer = Identity.load_or_create(tmp_path / "bootstrap.pem").peer_id
    port = free_port()
    command = [str(Path(sys.executable).with_name("hivemind-dht")), "--host_maddrs", f"/ip4/127.0.0.1/tcp/{port}"]
    with (tmp_path / "bootstrap.log").open("wb") as log:
        dht = subprocess.Popen(
            [*command, "--identity_path", str(tmp_path / "bootstrap.pem")], stdout=log, stderr=log, process_group=0
        )
    way = f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}"
    nodes = [Node(tmp_path, name, "127.0.0.1", 0, way, []) for name in ("dave", "erin")]
    try:
        dave, erin = nodes
        reaches(dave, erin)
        reaches(erin, dave)
    finally:
        for node in nodes:
            node.close()
        os.killpg(dht.pid, signal.SIGKILL)
        dht.wait()
