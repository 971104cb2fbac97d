"""Five real nodes play the market over loopback and an embedded chain, while one after another is killed.

Does not show: hostile players (`tests/unit/market/test_playing.py`), or that the price is worth anything
(`codezero bench market`)."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.monitor import read_metrics
from builders.users import wait_until

from codezero.market.games import START
from codezero.market.ledger import FILE, GameResult, Ledger
from codezero.swarm.network_status import ADDRESSES

NODES, ROUNDS, SECONDS = 5, 30, 10
SETTINGS = [
    f"chain.round_seconds={SECONDS}", "market.enabled=true", "market.execute=true", "evals.every=0",
    "evaluator.canaries=80", "solver.problems_per_iteration=2", "proposer.problems_per_iteration=0", "login.page=off",
    "monitor.view=off",
]  # fmt: skip


def row(folder: Path) -> dict[str, Any]:
    return (read_metrics(folder / "metrics.jsonl") or [{"round": -1}])[-1]


def start(base: Path, number: int) -> subprocess.Popen[bytes]:
    """Node `number`, from 1, with an account of its own; the first keeps the chain."""
    folder, first = base / f"node-{number}", base / "node-1" / ADDRESSES
    folder.mkdir(exist_ok=True)
    bootstrap = ",".join(f"'{address}'" for address in first.read_text().split()) if number > 1 else ""
    settings = [f"run.directory={base}", f"run.name={folder.name}", f"run.logs={folder / 'logs'}", f"seed={number}",
                f"swarm.identity={folder / 'swarm.pem'}", f"swarm.bootstrap=[{bootstrap}]", "swarm.port=0",
                f"chain.directory={base / 'chain'}", f"chain.wallet={folder / 'wallet.json'}"]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with (folder / "output.log").open("ab") as output:
        command = [sys.executable, "-m", "codezero", "run", "network=peer", *SETTINGS, *settings]
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def results(folder: Path) -> Iterator[tuple[bytes, GameResult]]:
    with contextlib.closing(Ledger(folder / FILE, read_only=True)) as ledger:
        for row in ledger.newest(10_000, settled=True):
            if row.result and not row.result.void:
                yield row.game.id, row.result


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_nodes_settle_alike_and_once_though_one_is_killed_a_minute(tmp_path: Path) -> None:
    folders = [tmp_path / f"node-{number}" for number in range(1, NODES + 1)]
    nodes: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for number in range(1, NODES + 1):
            nodes[number] = start(tmp_path, number)
            wait_until("it can be joined", lambda: (folders[0] / ADDRESSES).is_file())
        wait_until("all have played", lambda: all(row(folder).get("market/opened") for folder in folders))
        first, last_kill, kills = row(folders[0])["round"], time.monotonic(), 0
        while (now := row(folders[0])["round"]) < first + ROUNDS:
            assert all(node.poll() is None for node in nodes.values())
            if time.monotonic() - last_kill > 60 and now < first + ROUNDS - 8:
                victim, last_kill, kills = 2 + kills % (NODES - 1), time.monotonic(), kills + 1
                nodes[victim].kill()
                nodes[victim].wait()
                nodes[victim] = start(tmp_path, victim)
            time.sleep(2)
        for node in nodes.values():
            node.send_signal(signal.SIGINT)
        for node in nodes.values():
            node.wait(90)
    finally:
        for node in nodes.values():
            node.kill()
    ended = [dict(results(folder)) for folder in folders]
    decided = {name for each in ended for name in each}
    for name in decided:
        assert len({each[name].right for each in ended if name in each}) == 1
    assert len(decided) > ROUNDS and any(result.wins for each in ended for result in each.values())
    assert any((folder / "logs" / "prg_record.txt").is_file() for folder in folders)
    for folder, each in zip(folders, ended, strict=True):
        total = Counter[str]()
        for result in each.values():
            total.update(result.wins)
        with contextlib.closing(Ledger(folder / FILE, read_only=True)) as ledger:
            assert ledger.balances() == {peer: START + won for peer, won in total.items()}
    print(json.dumps({"decided": len(decided), "settled": [len(each) for each in ended], "kills": kills}))
