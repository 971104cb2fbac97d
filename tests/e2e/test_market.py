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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.monitor import read_metrics

from codezero.inspection.market_verify import verify_game
from codezero.market.ledger import FILE, Fact, GameResult, Ledger
from codezero.system.signals import LEASH

NODES, ROUNDS, SECONDS = 8, 60, 10
SETTINGS = [
    f"chain.round_seconds={SECONDS}", "market.enabled=true", "market.execute=true", "market.open=2", "evals.every=0",
    "evaluator.canaries=80", "solver.problems_per_iteration=2", "proposer.problems_per_iteration=0", "login.page=off",
    "monitor.view=plain", "run.name=fleet",
]  # fmt: skip
ELSEWHERE = "what its jury saw is not known here"


def row(folder: Path) -> dict[str, Any]:
    path = folder / "metrics.jsonl"
    rows = [*read_metrics(path)] if path.is_file() else []
    return rows[-1] if rows else {"round": -1}


def killed_and_begun_again(folder: Path) -> subprocess.Popen[bytes]:
    """The same command with the same environment, but no parent."""
    process = Path("/proc") / str(json.loads((folder / "node.json").read_text())["pid"])
    command = process.joinpath("cmdline").read_bytes().split(b"\0")[:-1]
    pairs = (pair.partition(b"=") for pair in process.joinpath("environ").read_bytes().split(b"\0") if pair)
    place = process.joinpath("cwd").resolve()
    environment = {name: value for name, _, value in pairs if name != LEASH.encode()}
    os.kill(int(process.name), signal.SIGKILL)
    time.sleep(3)
    output = (folder / "again.log").open("ab")
    with output:
        return subprocess.Popen(command, env=environment, cwd=place, stdout=output, stderr=output)


def results(folder: Path) -> Iterator[tuple[str, GameResult]]:
    with contextlib.closing(Ledger(folder / FILE, read_only=True)) as ledger:
        for item in ledger.all(Fact.RESULT, GameResult):
            if item.data.void != ELSEWHERE:
                yield item.name.hex(), item.data


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_eight_nodes_settle_alike_though_one_is_killed_a_minute(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "codezero", "swarm", "up", "--nodes", str(NODES), f"run.directory={tmp_path}"]
    command += [f"chain.directory={tmp_path / 'chain'}", f"chain.wallet={tmp_path / 'wallet.json'}", *SETTINGS]
    folders = [tmp_path / "fleet" / f"node-{number}" for number in range(1, NODES + 1)]
    again: dict[Path, subprocess.Popen[bytes]] = {}
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as fleet:
        while not all(row(folder).get("market/opened") for folder in folders):
            assert fleet.poll() is None
            time.sleep(2)
        first, last_kill, victims = row(folders[0])["round"], time.monotonic(), Counter[Path]()
        while (now := row(folders[0])["round"]) < first + ROUNDS:
            assert fleet.poll() is None
            if time.monotonic() - last_kill > 60 and now < first + ROUNDS - 10:
                victim = folders[1 + sum(victims.values()) % (NODES - 1)]  # the first one keeps the chain
                victims[victim] += 1
                again[victim], last_kill = killed_and_begun_again(victim), time.monotonic()
            time.sleep(2)
        for process in [*again.values(), fleet]:
            process.send_signal(signal.SIGINT)
        for process in again.values():
            process.wait(60)
        fleet.communicate(timeout=120)
    ended = [dict(results(folder)) for folder in folders]
    paid = {name for each in ended for name, result in each.items() if not result.void}
    for name in paid:
        found = [each[name] for each in ended if name in each]
        known = {(result.answer, result.void, *sorted(result.wins.items())) for result in found}
        assert len(known) == 1, (name, known)
    assert len(paid) > ROUNDS and sum(victims.values()) >= ROUNDS * SECONDS // 60 - 3
    checks = [verify_game(folder, name) for folder, each in zip(folders, ended, strict=True) for name in paid & {*each}]
    assert [check.words for check in checks if check and not check.holds] == []
    counts = [Counter(bool(result.void) for result in each.values()) for each in ended]
    print(json.dumps({"paid": len(paid), "settled": [dict(count) for count in counts], "kills": sum(victims.values())}))
