"""Two whole nodes on loopback, in rounds shorter than an iteration: each learns from the other, one dies by kill -9."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.monitor import read_metrics
from builders.users import processes_naming, wait_until

from codezero.chain.outbox import read_status
from codezero.errors import ChainError
from codezero.ops.fleet import ADDRESSES
from codezero.swarm.identity import Identity
from codezero.system.child import is_there

SMALL = ["evals.every=0", "evaluator.canaries=80", "solver.problems_per_iteration=4", "chain.round_seconds=5"]


@contextlib.contextmanager
def node(base: Path, name: str, *overrides: str, command: str = "run") -> Iterator[subprocess.Popen[bytes]]:
    folder = base / name
    folder.mkdir(exist_ok=True)
    settings = [
        "profile=peer",
        f"run.directory={base}",
        f"run.name={name}",
        f"run.logs={folder / 'logs'}",
        "chain.kind=clock",
    ]
    settings += [f"swarm.identity={folder}/swarm.pem", "monitor.view=off", *SMALL, *overrides, "chain.round_seconds=1"]
    with (folder / "output.log").open("ab") as output:
        process = subprocess.Popen([sys.executable, "-m", "codezero", command, *settings], stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rows(base: Path, name: str) -> list[dict[str, Any]]:
    return list(read_metrics(base / name / "metrics.jsonl"))


def learns_from_others(base: Path, name: str, since: int = 0) -> bool:
    return any((row["swarm/external_share"] or 0) > 0 for row in rows(base, name)[since:])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_two_nodes_learn_from_each_other_across_a_kill_9(tmp_path: Path) -> None:
    with node(tmp_path, "a") as a:
        wait_until("a can be joined", (tmp_path / "a" / ADDRESSES).is_file, a)
        join = f"swarm.bootstrap=[{','.join((tmp_path / 'a' / ADDRESSES).read_text().split())}]"
        with node(tmp_path, "b", "seed=1", join) as b:
            for name in "ab":
                wait_until(f"{name} learns from the other", lambda name=name: learns_from_others(tmp_path, name), a, b)
            before = Identity.load(tmp_path / "b" / "swarm.pem").peer_id
            b.send_signal(signal.SIGKILL)
            b.wait()
        last, played = rows(tmp_path, "b")[-1]["iteration"], len(rows(tmp_path, "a"))
        wait_until("the daemon of the dead node is gone", lambda: not processes_naming(tmp_path / "b" / "swarm.pem"), a)
        wait_until("a goes on alone", lambda: len(rows(tmp_path, "a")) > played + 3, a)
        heard = len(rows(tmp_path, "a"))
        with node(tmp_path, "b", "seed=1", join) as b:
            wait_until("b goes on where it stopped", lambda: rows(tmp_path, "b")[-1]["iteration"] > last, a, b)
            wait_until("a learns from b again", lambda: learns_from_others(tmp_path, "a", heard), a, b)
            for process in (a, b):
                process.send_signal(signal.SIGTERM)
            assert [process.wait(120) for process in (a, b)] == [0, 0]
        assert Identity.load(tmp_path / "b" / "swarm.pem").peer_id == before
    iterations = [row["iteration"] for row in rows(tmp_path, "b")]
    assert iterations == list(range(1, len(iterations) + 1)), "a row is missing or repeated"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_command_founds_and_joins(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codezero", "swarm", "up", "--nodes", "2", "monitor.view=plain", "login.page=off"]
    settings = [f"run.directory={tmp_path}", "run.name=fleet", *SMALL, "chain.submit_after=1"]
    settings += [f"chain.directory={tmp_path / 'chain'}", f"chain.wallet={tmp_path / 'wallet.json'}"]
    with subprocess.Popen([*command, *settings], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as fleet:
        for name in ("node-1", "node-2"):
            wait_until(
                f"{name} learns from the other", lambda name=name: learns_from_others(tmp_path / "fleet", name), fleet
            )
            wait_until(f"{name} is counted", lambda name=name: accepted(tmp_path / "fleet" / name) > 0, fleet)
        fleet.send_signal(signal.SIGINT)
        shown = fleet.communicate(timeout=90)[0].decode()
        assert fleet.returncode == 130
    identities = {Identity.load(tmp_path / "fleet" / f"node-{i}" / "swarm.pem").peer_id for i in (1, 2)}
    assert len(identities) == 2 and "node-2" in shown
    assert shown.startswith("codezero: new run fleet\n") and "codezero: stopping: saving 2 nodes, up to 30 s" in shown
    labels = [json.loads((tmp_path / "fleet" / f"node-{i}" / "run.json").read_text()) for i in (1, 2)]
    assert labels[0]["seed"] != labels[1]["seed"]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_killed_fleet_leaves_no_node_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codezero", "swarm", "up", "--nodes", "1", "monitor.view=off"]
    settings = [f"run.directory={tmp_path}", "run.name=fleet", *SMALL, "chain.kind=clock"]
    folder = tmp_path / "fleet" / "node-1"
    with subprocess.Popen([*command, *settings]) as fleet:
        wait_until("the node plays", lambda: len(rows(tmp_path / "fleet", "node-1")) > 1, fleet)
        fleet.kill()
    node = json.loads((folder / "node.json").read_text())
    wait_until("the node ends", lambda: json.loads((folder / "node.json").read_text())["stopped"] == "asked to stop")
    wait_until("its process is gone", lambda: not is_there(node["pid"]))
    saved = max(int(path.name) for path in (folder / "checkpoints").iterdir() if path.name.isdecimal())
    assert saved == rows(tmp_path / "fleet", "node-1")[-1]["iteration"] and not processes_naming(folder / "swarm.pem")


def accepted(folder: Path) -> int:
    """Rewards and votes that the chain took."""
    with contextlib.suppress(ChainError):
        return sum(read_status(path).accepted for path in folder.glob("outbox-*.db"))
    return 0
