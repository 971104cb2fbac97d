"""A whole node that only proposes, and one that only solves: problems go one way, and what became of them the other."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.users import wait_until
from e2e.test_two_nodes import node, rows

from codezero.cli import main
from codezero.ops.fleet import ADDRESSES


def reached(base: Path, name: str, figure: str, least: float = 1) -> Callable[[], bool]:
    return lambda: any((row.get(figure) or 0) >= least for row in rows(base, name))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_service_proposes_hears_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    with node(tmp_path, "laptop", "proposer.model=off", "data.proposer_share=0.5") as laptop:
        wait_until("the laptop can be joined", (tmp_path / "laptop" / ADDRESSES).is_file, laptop)
        join = f"swarm.bootstrap=[{','.join((tmp_path / 'laptop' / ADDRESSES).read_text().split())}]"
        often = ["proposer.rest_seconds=2", "proposer.problems_per_iteration=4"]
        with node(tmp_path, "strong", "seed=1", join, *often, command="propose") as strong:
            wait_until("problems arrive", reached(tmp_path, "laptop", "problems/drawn_proposals"), laptop, strong)
            wait_until("their fate is told", reached(tmp_path, "strong", "proposer/feedback"), laptop, strong)
            strong.send_signal(signal.SIGTERM)
            assert strong.wait(120) == 0
        last = rows(tmp_path, "strong")[-1]["iteration"]
        with node(tmp_path, "strong", "seed=1", join, *often, command="propose") as strong:
            wait_until("it goes on", lambda: rows(tmp_path, "strong")[-1]["iteration"] > last, laptop, strong)
    assert not (tmp_path / "strong" / "checkpoints" / f"{last:08d}" / "solver").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["proposer.model=off"], "proposer.model=off would do nothing"),
        (["swarm.kind=local"], "needs a swarm"),
        (["role=judge"], "choose one of: node, proposer"),
    ],
    ids=["off", "alone", "unknown"],
)
def test_a_service_without_work_is_refused_in_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["propose", f"run.directory={tmp_path}", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_service_takes_no_node_s_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text('{"seed": 0, "model.solver": "nano", "evaluator.model": "nano"}')
    assert main(["propose", f"run.directory={tmp_path}", "run.name=mine"]) == 2
    assert "role=proposer, but" in capsys.readouterr().err
