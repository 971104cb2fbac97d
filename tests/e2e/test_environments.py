"""Whole nodes that learn an environment of the user's own: alone, resumed, refused, and from each other."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.users import wait_until
from e2e.test_run import newest_checkpoint, run
from e2e.test_two_nodes import node, rows

from codezero.ops.fleet import ADDRESSES

OWN = f"environment={Path(__file__).parents[2] / 'examples' / 'own_environment.py'}:Vowels"
SMALL = ("evals.problems=10", "evals.samples=4", "solver.problems_per_iteration=4", "login.page=off")


def exams(base: Path, name: str) -> list[dict[str, Any]]:
    return [row for row in rows(base, name) if row.get("eval/source")]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_learns_is_examined_resumes_and_refuses_another_environment(tmp_path: Path) -> None:
    for most in (2, 4):
        done = run(tmp_path, OWN, *SMALL, f"run.max_iterations={most}")
        assert done.returncode == 0, done.stderr
    folder = newest_checkpoint(tmp_path).parents[1]
    found = rows(folder.parent, folder.name)
    assert [row["iteration"] for row in found] == [0, 1, 2, 3, 4]
    assert {row["eval/source"] for row in exams(folder.parent, folder.name)} == {"scored"}
    assert any(row.get("proposer/derived") for row in found)
    report = (folder / "report.md").read_text()
    assert "The rule of vowels scores every answer" in report and "scored average@4" in report
    assert json.loads((newest_checkpoint(tmp_path) / "manifest.json").read_bytes())["environment"].startswith("vowels ")
    other = run(tmp_path, *SMALL, "run.max_iterations=5")
    assert other.returncode == 1 and "says environment vowels" in other.stderr and "code" in other.stderr


def test_what_only_code_has_is_refused_in_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, OWN, "reward.mode=rlvr")
    assert done.returncode == 2 and "reward.mode" in done.stderr and len(done.stderr.splitlines()) == 1


GYM = "environment=gym"
TASKSET = "environment={_target_: codezero.environments.verifiers.VerifiersTasks, taskset: word_tasks}"


@pytest.mark.long  # tests/hostile/test_items.py has the exchange without the learning
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("chosen", "library"), [(OWN, ""), (GYM, "reasoning_gym"), (TASKSET, "verifiers")], ids=["own", "gym", "verifiers"]
)
def test_two_nodes_learn_from_each_other_s_derived_problems(
    tmp_path: Path, chosen: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library:
        pytest.importorskip(library, reason=f"the extra of {library} is not installed")
    path = [str(Path(__file__).parents[1] / "builders"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))  # word_tasks.py is there
    with node(tmp_path, "a", chosen, *SMALL) as a:
        wait_until("a can be joined", (tmp_path / "a" / ADDRESSES).is_file, a)
        join = f"swarm.bootstrap=[{','.join((tmp_path / 'a' / ADDRESSES).read_text().split())}]"
        with node(tmp_path, "b", chosen, *SMALL, "seed=1", join) as b:
            for name in ("a", "b"):
                wait_until(
                    f"{name} learns from the other and attempts its proposals",
                    lambda name=name: (
                        any((row.get("swarm/external_share") or 0) > 0 for row in rows(tmp_path, name))
                        and any(row.get("problems/drawn_proposals") for row in rows(tmp_path, name))
                    ),
                    a,
                    b,
                )
    assert not any(row.get("swarm/refused_item") for name in ("a", "b") for row in rows(tmp_path, name))
