"""What the soak makes of what it saw, by hand; and, slowly, a real node with each of the six faults once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import figures
import pytest
import soak
from figures import Sample

SOAK = Path(__file__).parents[3] / "benchmarks" / "soak.py"


def sample(at: float, **change: Any) -> Sample:
    told: dict[str, Any] = {"fault": "", "code": 0, "said": "", "running": True, "age": 1.0, "iteration": 1}
    sizes = {"accepted": 0, "mib": 100.0, "pss_mib": 120.0, "chain_mib": 50.0, "life": 7, "life_seconds": at}
    return Sample(at=at, **(told | sizes | change))


def test_memory_is_compared_at_equal_age() -> None:
    """Two lives, each of which grows from 100 to 400 MiB while it loads: that is no leak."""

    def sized(at: float, leak: float) -> Sample:
        age = at % 1000
        return sample(at, life=1 + int(at // 1000), life_seconds=age, mib=(100 + min(age, 300)) * (1 + leak * at))

    ages = range(0, 2000, 15)
    flat = figures.memory([sized(at, 0.0) for at in ages])
    assert flat["memory_flat"] and flat["ratio_at_equal_age"] == 1.0 and flat["ages_compared"] >= 3
    grown = figures.memory([sized(at, 0.0001) for at in ages])
    assert not grown["memory_flat"] and grown["ratio_at_equal_age"] > 1.05


def test_without_two_lives_of_one_age_memory_is_not_called_flat() -> None:
    assert not figures.memory([])["memory_flat"]
    assert not figures.memory([sample(15.0 * n, life=n + 1, life_seconds=5.0) for n in range(180)])["memory_flat"]


def test_every_point_is_followed_to_the_chain() -> None:
    added = [(1, 0.5), (1, 0.25), (3, 0.75), (3, 0.1)]
    chain = {1: 375, 3: 425}
    sound = figures.points([0.5, 0.25, 0.1], added, chain)  # 0.75 was done again after a death
    assert sound["points_lost"] == 0 and sound["counted_for_iterations_done_again"] == 1
    assert figures.points([0.5, 0.25, 0.3, 0.1], added, chain)["points_lost"] == 1  # 0.3 was never counted
    assert figures.points([0.5, 0.25, 0.75, 0.1], added, {1: 375, 3: None})["points_lost"] == 2
    assert figures.points([0.5, 0.25, 0.75, 0.1], added, {1: 374, 3: 425})["rounds_astray"] == [1]


def test_a_stuck_minute_is_seen_by_a_problem_or_by_the_true_age_of_the_last_step() -> None:
    steps = [0.0, 10.0, 135.0, 140.0]
    blind = [sample(at) for at in range(0, 150, 15)]
    assert figures.stuck(steps, blind, 150.0)["stuck_unseen"] == 2
    told = figures.stuck(steps, [*blind, sample(50.0, said="the disk is full"), sample(100.0, age=88.0)], 150.0)
    assert (told["stuck_minutes"], told["stuck_unseen"]) == (2, 0)
    assert [one["shown_by"] for one in told["stuck"]] == ["problem", "age of the last step"]
    jumped = figures.stuck(steps, [*blind, sample(50.0, running=False), sample(100.0, age=-3500.0)], 150.0)
    assert (jumped["stuck_minutes"], jumped["stuck_unseen"]) == (2, 1)
    assert figures.stuck([0.0, 10.0, 20.0], blind, 30.0)["stuck_minutes"] == 0


def test_what_status_said_is_told_for_each_kind() -> None:
    done = [{"kind": "disk full", "how": "filled"}, {"kind": "judge down", "how": "503"}]
    looks = [sample(at, fault="disk full", said=f"{at}.5 MiB are left") for at in (5, 12)]
    report = figures.by_fault(done, looks)
    assert report["disk full"]["looks_that_said_something"] == 2
    assert report["disk full"]["said"] == ["#.# MiB are left"] and report["judge down"]["looks"] == 0


def test_each_fault_comes_once_before_one_comes_again() -> None:
    kinds: dict[str, Any] = dict.fromkeys("abcdef")
    order = soak.shuffled(kinds, 4, 45)
    assert len(order) == 45 and order == soak.shuffled(kinds, 4, 45) != soak.shuffled(kinds, 5, 45)
    assert all(sorted(order[at : at + 6]) == sorted(kinds) for at in range(0, 42, 6))


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
