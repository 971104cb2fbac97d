"""Three real nodes on loopback, started once for all tests of this folder that ask for them."""

import socket
from collections.abc import Iterator

import pytest
from builders_swarm import Nodes, make_swarm

from codezero.swarm.identity import Identity


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """alice and bob. They start at the same time, so bob finds his only bootstrap dead at first."""
    folder, port = tmp_path_factory.mktemp("swarm"), free_port()
    peer = Identity.load_or_create(folder / "alice.pem").peer_id
    join = f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}"
    alice = make_swarm(folder, "alice", port=port)
    bob = make_swarm(folder, "bob", bootstrap=(join,))
    for swarm in (alice, bob):
        swarm.start()
    assert alice.addresses == [join]
    yield Nodes(folder, join, alice, bob)
    for swarm in (alice, bob):
        swarm.close()
