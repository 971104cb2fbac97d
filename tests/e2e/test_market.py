"""Eight real nodes play the market over loopback and an embedded chain, while one after another is killed.

Does not show: hostile players (`tests/unit/market/test_playing.py`), or that the price is worth anything
(`codezero bench market`).
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.monitor import read_metrics

from codezero.inspection.market_view import verify_game
from codezero.market.ledger import FILE, Fact, GameResult, Ledger
from codezero.swarm.network_status import ADDRESSES

NODES, ROUNDS, SECONDS = 8, 60, 10
SETTINGS = [
    f"chain.round_seconds={SECONDS}", "market.enabled=true", "market.execute=true", "market.open=2", "evals.every=0",
    "evaluator.canaries=80", "solver.problems_per_iteration=2", "proposer.problems_per_iteration=0", "login.page=off",
    "monitor.view=off",
]  # fmt: skip
ELSEWHERE = "some of the reports that count are not known here"


def row(folder: Path) -> dict[str, Any]:
    path = folder / "metrics.jsonl"
    rows = [*read_metrics(path)] if path.is_file() else []
    return rows[-1] if rows else {"round": -1}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.5)


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


def results(folder: Path) -> Iterator[tuple[str, GameResult]]:
    with contextlib.closing(Ledger(folder / FILE, read_only=True)) as ledger:
        for item in ledger.all(Fact.RESULT, GameResult):
            if item.data.void != ELSEWHERE:
                yield item.name.hex(), item.data


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_eight_nodes_settle_alike_though_one_is_killed_a_minute(tmp_path: Path) -> None:
    folders = [tmp_path / f"node-{number}" for number in range(1, NODES + 1)]
    nodes: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for number in range(1, NODES + 1):
            nodes[number] = start(tmp_path, number)
            wait_until(lambda: (folders[0] / ADDRESSES).is_file())
        wait_until(lambda: all(row(folder).get("market/opened") for folder in folders))
        first, last_kill, kills = row(folders[0])["round"], time.monotonic(), 0
        while (now := row(folders[0])["round"]) < first + ROUNDS:
            assert all(node.poll() is None for node in nodes.values())
            if time.monotonic() - last_kill > 60 and now < first + ROUNDS - 12:
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
    paid = {name for each in ended for name, result in each.items() if not result.void}
    for name in paid:
        found = [each[name] for each in ended if name in each]
        known = {(result.answer, result.void, *sorted(result.wins.items())) for result in found}
        assert len(known) == 1, (name, known)
    assert len(paid) > ROUNDS and kills >= ROUNDS * SECONDS // 60 - 3
    checks = [verify_game(folder, name) for folder, each in zip(folders, ended, strict=True) for name in paid & {*each}]
    assert [check.words for check in checks if check and not check.holds] == []
    counts = [Counter(bool(result.void) for result in each.values()) for each in ended]
    print(json.dumps({"paid": len(paid), "settled": [dict(count) for count in counts], "kills": kills}))
