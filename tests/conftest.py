"""What one test imports must not change what another sees."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from builders.chain import Swarm
    from builders.swarm import Nodes
    from fakes.judge_server import Judge, Server

    from codezero.code.worker import StaticGuard
    from codezero.sandbox.monty import MontySandbox

LONG = {
    "benchmarks/test_card", "browser/test_live", "e2e/test_data_sets", "e2e/test_found_and_join", "e2e/test_interrupt",
    "e2e/test_outage", "e2e/test_quiet", "e2e/test_real_models", "e2e/test_resume", "e2e/test_run",
    "e2e/test_two_nodes", "hostile/test_peer", "solver/test_remote", "swarm/test_connectivity",
    "ops/test_measure",
}  # fmt: skip
"""Files whose tests run whole nodes, for a minute or more."""

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS.parent))  # the tree that these tests lie in, wherever codezero is installed from
HOMES = (str(TESTS.parent), str(TESTS), str(TESTS.parent / "benchmarks"))
os.environ["PYTHONPATH"] = os.pathsep.join((*HOMES, *filter(None, (os.environ.get("PYTHONPATH"),))))
os.environ["PYTHONSAFEPATH"] = "1"  # of every process that a test starts
os.environ["CODEZERO_LOCAL"] = ""  # whose machine this is has settings of their own, for nodes and not for tests
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup has this process and all that it starts ignore

settings.register_profile("codezero", deadline=None)  # machines are busy; a test never asserts a duration
settings.load_profile("codezero")


@pytest.fixture(autouse=True)
def as_in_a_process_of_its_own() -> None:
    """hivemind renames WARNING for the whole process, and eth lets stacks grow without bound; nodes have others."""
    logging.addLevelName(logging.WARNING, "WARNING")
    sys.setrecursionlimit(1_000)


@pytest.fixture(scope="module")  # a file counts what its nodes have heard
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Nodes"]:
    """alice and bob, real nodes on loopback. Both start at once, so bob finds his only bootstrap dead at first."""
    from builders.swarm import Nodes, free_port, started  # few tests need it

    from codezero.swarm.identity import Identity

    folder, port = tmp_path_factory.mktemp("swarm"), free_port()
    peer = Identity.load_or_create(folder / "alice.pem").peer_id
    join = f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}"
    with started(folder, "alice", port=port) as alice, started(folder, "bob", bootstrap=(join,)) as bob:
        assert alice.addresses == [join]
        yield Nodes(folder, join, alice, bob)


@pytest.fixture(scope="module")
def guard() -> Iterator["StaticGuard"]:
    from codezero.code.worker import StaticGuard

    with StaticGuard() as running:
        yield running


@pytest.fixture(scope="module")
def sandbox() -> Iterator["MontySandbox"]:
    """Files about another one have a fixture of their own."""
    from codezero.sandbox.monty import MontySandbox

    with MontySandbox() as running:
        yield running


@pytest.fixture(scope="session")
def jailed() -> None:
    """Skips what executes programs in a jail where this machine has none."""
    from codezero.sandbox.jail import why_not

    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def brain() -> "Judge":
    from fakes.judge_server import Judge

    return Judge()


@pytest.fixture
def server(brain: "Judge") -> Iterator["Server"]:
    """A judge behind an endpoint."""
    from fakes.judge_server import serving

    with serving(brain) as running:
        yield running


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Swarm"]:
    """A founded one, on a chain of its own."""
    from builders.chain import found

    with found(tmp_path_factory.mktemp("swarm")) as founded:
        yield founded


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The folder of a tiny model."""
    from builders.models import saved, tiny_policy

    return saved(tiny_policy(), tmp_path / "base")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first: a core that got one last would go on while the others have nothing left."""
    items.sort(key=lambda item: f"{item.path.parent.name}/{item.path.stem}" not in LONG)
