"""A newcomer whose bootnode is poisoned: it holds junk under the swarm's keys and names nodes that do not exist.

Does not show: a network in which most nodes collude over days.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from builders.swarm import eventually, free_port, group, make_swarm, scored

from codezero.errors import SwarmError
from codezero.swarm.network_status import read_status

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
ROUND = 40


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the bootnode."""
    folder = tmp_path_factory.mktemp("mallory")
    command = [sys.executable, str(Path(__file__).parents[1] / "fakes" / "hostile_peer.py"), str(folder), str(ROUND)]
    environment = os.environ | {"HIVEMIND_LOGLEVEL": "ERROR"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, process_group=0, env=environment) as mallory:
        assert mallory.stdin and mallory.stdout
        mallory.stdin.write(json.dumps(["bootnode", {"how": "crowd"}]) + "\n")
        mallory.stdin.flush()
        yield json.loads(mallory.stdout.readline())
        mallory.stdin.close()


def test_it_says_in_one_line_why_it_meets_nobody(
    tmp_path: Path, poisoned: str, caplog: pytest.LogCaptureFixture
) -> None:
    newcomer = make_swarm(tmp_path, "newcomer", bootstrap=(poisoned,))
    newcomer.start()

    def said() -> bool:
        newcomer.gather(ROUND)
        with suppress(SwarmError):  # not written yet
            return "has a record of swarm test" in read_status(tmp_path / "newcomer").reachability
        return False

    try:
        assert eventually(said)
        assert eventually(lambda: newcomer.gather(ROUND) or "swarm.bootstrap" in caplog.text)
        assert caplog.text.count("has a record of swarm") == 1
    finally:
        newcomer.close()


@pytest.mark.parametrize("way", ["another bootnode", "remembered"])
def test_it_finds_its_swarm_by_another_way(tmp_path: Path, poisoned: str, way: str) -> None:
    alice = make_swarm(tmp_path, "alice", port=free_port())
    alice.start()
    try:
        others = tuple(alice.addresses) if way == "another bootnode" else ()
        newcomer = make_swarm(tmp_path, "newcomer", bootstrap=(poisoned, *others))
        if way == "remembered":
            folder = tmp_path / "newcomer"
            folder.mkdir()
            address = alice.addresses[0].partition("/p2p/")[0]
            (folder / "neighbours.json").write_text(json.dumps({alice.peer_id: [address]}))
        newcomer.start()
        alice.publish([scored(group(alice.peer_id))], ROUND)

        def heard() -> bool:
            alice.gather(ROUND)
            return any(found.peer_id == alice.peer_id for found in newcomer.gather(ROUND))

        try:
            assert eventually(heard)
        finally:
            newcomer.close()
    finally:
        alice.close()
