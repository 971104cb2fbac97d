"""A taskset of the library verifiers as an environment, scored by its own rewards.

Does not show tasksets with tools, containers or several turns, which are refused."""

import sys

import pytest

pytest.importorskip("verifiers", reason="the extra `verifiers` is not installed")

import verifiers.v1 as vf
from builders import word_tasks
from builders.environments import attempts

from codezero.environments.build import build_environment
from codezero.environments.tasks import TaskEnvironment
from codezero.environments.verifiers import VerifiersTasks
from codezero.errors import ConfigError
from codezero.evaluator.base import ScoredEvaluator
from codezero.settings import compose

NAME = "word_tasks"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library looks for a module of this name."""
    monkeypatch.setitem(sys.modules, NAME, word_tasks)


def test_its_rewards_are_the_score_by_their_weights() -> None:
    environment = TaskEnvironment(VerifiersTasks(NAME))
    problem = environment.generate("a")
    word = problem.question.removeprefix("Reverse: ")
    (scored,) = ScoredEvaluator(environment).score([attempts(problem, word[::-1], f" {word[::-1]} ", "wrong", "x")])
    assert [verdict.reward for verdict in scored.verdicts] == pytest.approx([1.0, 1.0, 0.2, 0.0])
    assert environment.name == "word-tasks" and problem.level is None


def test_a_setting_names_it_with_its_options() -> None:
    mapping = f"{{_target_: codezero.environments.verifiers.VerifiersTasks, taskset: {NAME}, words: 40}}"
    assert build_environment(compose([f"environment={mapping}"])).name == "word-tasks"


@pytest.mark.parametrize(("name", "options"), [("nothing.here", {}), (NAME, {"wordz": 3}), (NAME, {"words": 2})])
def test_what_cannot_be_loaded_is_one_line(name: str, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="environment") as error:
        TaskEnvironment(VerifiersTasks(name, **options))
    assert "\n" not in str(error.value)


def test_a_task_that_needs_a_container_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_tasks.WordTask, "NEEDS_CONTAINER", True)
    with pytest.raises(ConfigError, match="container"):
        VerifiersTasks(NAME)
    assert issubclass(word_tasks.Words, vf.Taskset)
