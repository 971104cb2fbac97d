"""A run as the page and `codezero status` see it: made of every file that its processes write, or without some."""

import json
import time
from pathlib import Path

import msgspec
import pytest
from builders.api_server import OTHER, full_row, monitor, played
from builders.monitor import PEER

from codezero.chain.outbox_db import OutboxStore
from codezero.inspection.status import RunFiles, read_run
from codezero.monitor.run_types import MAX_PEERS, RunView
from codezero.swarm.network_status import FOLDER, NetworkStatus, PeerLine, write_status


def peer_line(peer: str, ago: float, reason: str = "") -> PeerLine:
    return PeerLine(
        peer=peer, heard_seconds_ago=ago, bodies=1, groups=9, size=10, failures={}, penalty=0.5,
        state="quarantined" if reason else "ok", reason=reason,
    )  # fmt: skip


def network(*peers: PeerLine) -> NetworkStatus:
    return NetworkStatus(
        time=1000.0, me=PEER[:46].replace("0", "1"), addresses=["/ip4/127.0.0.1/tcp/1"] * 50, neighbours=3, round=1,
        shards=1, reachable=None, reachability="not known yet", peers=list(peers),
    )  # fmt: skip


def test_what_the_network_and_the_solver_know_of_a_peer_is_put_together(tmp_path: Path) -> None:
    made = monitor(tmp_path)
    made.started(0)
    told = {f"swarm/external_judged/{OTHER}": 4, f"swarm/external_used/{OTHER}": 1}
    made.observe(1, full_row(1) | told, [])
    (tmp_path / FOLDER).mkdir()
    write_status(tmp_path / FOLDER, network(peer_line(OTHER, 10.0), peer_line(OTHER[::-1], 20.0, "sent junk")))
    view = RunFiles(tmp_path).view("one")
    made.close("asked to stop")
    good, bad = view.peers
    assert (good.last_seen, good.groups, good.judged, good.share_used, good.state) == (990.0, 9, 4, 0.25, "ok")
    assert (bad.share_used, bad.state, bad.reason) == (None, "quarantined", "sent junk")
    assert view.network and view.network.neighbours == 3 and len(view.network.addresses) == 32


def test_a_crowd_of_peers_is_bounded(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
    crowd = [peer_line("Qm" + alphabet[n // 32] + alphabet[n % 32] + "a" * 40, float(n)) for n in range(500)]
    write_status(tmp_path / FOLDER, network(*crowd))
    assert len(RunFiles(tmp_path).view("one").peers) == MAX_PEERS


def test_an_outbox_is_shown_with_its_account_or_its_problem(tmp_path: Path) -> None:
    store = OutboxStore(tmp_path / "outbox-5-abc.db", {"account": "0xabc", "peer": PEER})
    store.add(1, 1, 0.5, None)
    store.seal(1)
    store.settle(store.unsettled()[0], "refused", reason="<b>no</b>")
    store.close()
    view = RunFiles(tmp_path).view("one")
    assert view.account == "0xabc" and view.outbox
    assert (view.outbox.refused, view.outbox.reasons) == (1, {"<b>no</b>": 1})
    (tmp_path / "outbox-5-abc.db").write_bytes(b"junk" * 500)
    view = RunFiles(tmp_path).view("one")
    assert view.account == "" and view.outbox and "cannot be read" in view.outbox.problem


def test_an_empty_folder_is_a_run_of_which_nothing_is_known(tmp_path: Path) -> None:
    view = RunFiles(tmp_path).view("one")
    assert (view.name, view.iteration, view.updated, view.running, view.outbox) == ("unknown", None, None, False, None)
    assert view.series == {} and view.peers == [] and view.difficulty == []


def test_a_run_that_loads_its_models_is_running_already(tmp_path: Path) -> None:
    made = monitor(tmp_path)
    made.busy("loading the libraries")
    view = RunFiles(tmp_path).view("one")
    assert view.running and view.peer_id == PEER and view.limit_seconds > 1_000


def test_alarms_of_the_judge_and_survived_errors_are_told(tmp_path: Path) -> None:
    made = played(tmp_path, 2)
    made.observe(3, full_row(3, judge__alarm="believes nonsense", tolerated__SwarmError=2, tolerated__ChainError=0), [])
    view = RunFiles(tmp_path).view("one")
    made.close("asked to stop")
    assert "believes nonsense" in view.judge.alarm and view.tolerated == {"SwarmError": 2}
    assert (view.judge.weight, view.judge.auroc, view.judge.false_positive_share) == (1.0, 0.97, 0.03)


@pytest.mark.parametrize("junk", ['{"facts": 3}', '{"facts": {"a": [1]}, "stopped": 5, "began": "x"}', "[" * 9000])
def test_a_node_file_of_any_kind_is_survived(tmp_path: Path, junk: str) -> None:
    (tmp_path / "node.json").write_text(junk)
    assert RunFiles(tmp_path).view("one").running is False


def test_the_view_is_json_without_nan_whatever_was_measured(tmp_path: Path) -> None:
    made = played(tmp_path, 1)
    made.observe(2, full_row(2) | {"train/loss": float("nan"), "reward/mean": float("inf")}, [])
    made.close("asked to stop")
    encoded = msgspec.json.encode(RunFiles(tmp_path).view("one"))
    json.loads(encoded, parse_constant=lambda name: pytest.fail(name))
    assert msgspec.json.decode(encoded, type=RunView).iteration == 2


def test_status_and_the_page_say_the_same(tmp_path: Path) -> None:
    made = played(tmp_path, 12)
    status, view = read_run(tmp_path), RunFiles(tmp_path).view("one")
    made.close("asked to stop")
    assert (status.iteration, status.round, status.level) == (view.iteration, view.round, view.level)
    assert (status.reward, status.running, status.name) == (view.reward, view.running, view.name)
    assert status.executed == view.exams[-1].average
    assert status.seconds_since_step is not None and view.updated is not None and view.updated <= time.time()
