"""A newcomer whose bootnode is poisoned: it holds junk under the swarm's keys and names nodes that do not exist.

Does not show: a network in which most nodes collude over days.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from builders.swarm import eventually, free_port, group, hostile_peer, scored, started

from codezero.errors import SwarmError
from codezero.swarm.network_status import read_status

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
ROUND = 40


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the bootnode."""
    with hostile_peer(tmp_path_factory.mktemp("mallory"), ROUND) as attack:
        yield attack("bootnode", how="crowd")


def test_it_says_in_one_line_why_it_meets_nobody(
    tmp_path: Path, poisoned: str, caplog: pytest.LogCaptureFixture
) -> None:
    with started(tmp_path, "newcomer", bootstrap=(poisoned,)) as newcomer:

        def said() -> bool:
            newcomer.gather(ROUND)
            with suppress(SwarmError):  # not written yet
                return "has a record of swarm test" in read_status(tmp_path / "newcomer").reachability
            return False

        assert eventually(said)
        assert eventually(lambda: newcomer.gather(ROUND) or "swarm.bootstrap" in caplog.text)
        assert caplog.text.count("has a record of swarm") == 1


@pytest.mark.parametrize("way", ["another bootnode", "remembered"])
def test_it_finds_its_swarm_by_another_way(tmp_path: Path, poisoned: str, way: str) -> None:
    with started(tmp_path, "alice", port=free_port()) as alice:
        others = alice.addresses if way == "another bootnode" else ()
        if way == "remembered":
            folder = tmp_path / "newcomer"
            folder.mkdir()
            address = alice.addresses[0].partition("/p2p/")[0]
            (folder / "neighbours.json").write_text(json.dumps({alice.peer_id: [address]}))
        with started(tmp_path, "newcomer", bootstrap=(poisoned, *others)) as newcomer:
            alice.publish([scored(group(alice.peer_id))], ROUND)

            def arrived() -> bool:
                alice.gather(ROUND)
                return any(each.peer_id == alice.peer_id for each in newcomer.gather(ROUND))

            assert eventually(arrived)
