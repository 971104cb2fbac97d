"""What the soak makes of what it saw, by hand; and, slowly, a real node with each of the six faults once."""

import json
import subprocess
import sys
from pathlib import Path

import figures
import pytest

SOAK = Path(__file__).parents[3] / "benchmarks" / "soak.py"


def test_every_point_is_followed_to_the_chain() -> None:
    added = [(1, 0.5), (1, 0.25), (3, 0.75), (3, 0.1)]
    chain = {1: 375, 3: 425}
    sound = figures.points([0.5, 0.25, 0.1], added, chain)  # 0.75 was done again after a death
    assert sound["points_lost"] == 0 and sound["counted_for_iterations_done_again"] == 1
    assert figures.points([0.5, 0.25, 0.3, 0.1], added, chain)["points_lost"] == 1  # 0.3 was never counted
    assert figures.points([0.5, 0.25, 0.75, 0.1], added, {1: 375, 3: None})["points_lost"] == 2
    assert figures.points([0.5, 0.25, 0.75, 0.1], added, {1: 374, 3: 425})["rounds_astray"] == [1]


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_six_faults_cost_no_point_and_no_minute_that_status_does_not_show(tmp_path: Path) -> None:
    words = [sys.executable, str(SOAK), "--json", "--minutes", "6", "--keep", str(tmp_path)]
    tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"unshare -rm: {tried.stderr.strip()}")
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=1400)
    told = json.loads(done.stdout)
    kinds = {"judge down", "chain down", "disk full", "peer hostile", "clock jump", "child killed"}
    assert set(told["faults"]) == kinds
    assert told["points"]["points_lost"] == 0 and told["points"]["counted_in_the_outbox"] > 0, told["points"]
    assert told["stuck_unseen"] == 0, told["stuck"]
    assert told["exit_code"] == 0 and told["restarts"] >= 1
