"""What is learned from, what the exam asks and what the judge is measured on are three different things."""

import json
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from builders.data_sets import contests, mbpp, write

from codezero.config import NodeConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import ConfigError, ProblemError
from codezero.evals.build import ExamTasks, build_exam_tasks
from codezero.evaluator.build import Canaries, build_canaries
from codezero.problems.build import build_stream
from codezero.problems.filters import Novelty
from codezero.problems.sources import MAX_HELD_BACK
from codezero.settings import compose
from codezero.types import Problem


def hold_back(config: NodeConfig) -> tuple[ExamTasks, Canaries, Novelty]:
    withheld = Novelty(most=MAX_HELD_BACK)
    with ExitStack() as stack:
        exam = build_exam_tasks(config, CodeEnvironment(), withheld, str)
        return exam, build_canaries(config, withheld, stack, str), withheld


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    """The exam asks 10 to 19, of which the training file has some too, word for word or with another name."""
    renamed = json.loads(json.dumps(mbpp(11)).replace("solve_11", "other"))
    train = write(tmp_path / "train.jsonl", [*(mbpp(number) for number in range(16)), renamed])
    programs = write(tmp_path / "programs.jsonl", contests(20))
    test = write(tmp_path / "test.jsonl", [mbpp(number) for number in range(10, 20)])
    return compose([f"data.sources=[{train},{programs}]", f"evals.sources=[{test}]", "evals.problems=10"])


def drawn(config: NodeConfig, withheld: Novelty, folder: Path) -> dict[str, Problem]:
    stream = build_stream(config, CodeEnvironment(), "peer", withheld, str, lambda problem: True)
    return {problem.id: problem for _ in range(20) for problem in stream.next_batch([])}


def test_the_three_share_no_problem_and_none_that_is_much_like_another(config: NodeConfig, tmp_path: Path) -> None:
    exam, canaries, withheld = hold_back(config)
    asked = {task.name for task in exam.tasks}
    measured = {canaries.draw(Random(number)).problem.id for number in range(200)}
    learned = drawn(config, withheld, tmp_path)
    assert len(asked) == 10 and len(measured) >= 5 and len(learned) >= 10
    assert not asked & measured and not (asked | measured) & set(learned)
    assert not any(withheld.repeats(problem) for problem in learned.values())
    assert "other" not in {problem.entry_point for problem in learned.values()}


def test_peers_groups_about_withheld_problems_are_not_admitted(config: NodeConfig, tmp_path: Path) -> None:
    exam, _, withheld = hold_back(config)
    stream = build_stream(config, CodeEnvironment(), "peer", withheld, str, lambda problem: True)
    assert not any(stream.admits(task.source) for task in exam.tasks if task.source)
    assert all(map(stream.admits, drawn(config, withheld, tmp_path).values()))


def test_the_exam_is_the_same_for_the_same_seed_and_named_by_its_digest(config: NodeConfig) -> None:
    config.evals.problems = 5
    first, again = hold_back(config)[0], hold_back(config)[0]
    assert [task.name for task in first.tasks] == [task.name for task in again.tasks] and first.name == again.name
    config.evals.seed += 1
    assert hold_back(config)[0].name != first.name


def test_canaries_follow_the_sources_and_cover_no_more(config: NodeConfig, tmp_path: Path) -> None:
    _, canaries, _ = hold_back(config)
    assert all(canaries.cover(problem) for problem in drawn(config, Novelty(), tmp_path).values())
    config.data.sources = config.data.sources[:1]
    called = hold_back(config)[1]
    only = compose([f"data.sources=[{tmp_path / 'programs.jsonl'}]"])
    programs = drawn(only, Novelty(), tmp_path).values()
    assert programs and not any(map(called.cover, programs))


def test_a_file_that_is_not_there_is_an_error_and_no_rehearsal(config: NodeConfig) -> None:
    config.evals.sources = ["./none.jsonl"]
    with pytest.raises(ProblemError, match=r"none\.jsonl"):
        hold_back(config)
    config.evals.sources = ["humaneval:none.gz"]
    with pytest.raises(ConfigError, match=r"none\.gz"):
        hold_back(config)
