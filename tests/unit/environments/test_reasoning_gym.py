"""reasoning-gym as a set of tasks: the same everywhere, split by question, and nothing runs in an answer.

Does not show that a generator draws the same on another platform, nor with other versions of what it needs."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("reasoning_gym", reason="the extra `gym` is not installed")

from codezero.environments.reasoning_gym import DEFAULT_TASKS, LONGEST, REFUSED, SOLVER, ReasoningGym
from codezero.environments.tasks import Task, TaskEnvironment
from codezero.errors import ConfigError, ProblemError
from codezero.nano import NANO_GYM

GYM = ReasoningGym()
PLACES = [(level, index) for level in GYM.levels for index in (0, 1, 2, 3, 7, 15, 4_003, 999_999)]


def questions() -> list[str]:
    return [GYM.task(level, index).question for level, index in PLACES]


def drawn(name: str, level: int = 1) -> tuple[ReasoningGym, Task, str]:
    gym = ReasoningGym([name])
    return gym, gym.task(level, 0), gym.pair(level, 0)[1]


@pytest.mark.slow
def test_a_task_is_the_same_again_and_in_another_process():
    code = (
        "from codezero.environments.reasoning_gym import ReasoningGym; gym = ReasoningGym();"
        f"print([gym.task(*place).question for place in reversed({PLACES})])"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert questions() == questions()
    assert other.stdout.strip() == str(questions()[::-1])


def test_the_generators_take_turns():
    starts = [GYM.task(1, index).question.split()[0] for index in range(4 * len(DEFAULT_TASKS))]
    assert len(set(starts[: len(DEFAULT_TASKS)])) >= 3 and {"Your", "Spell", "Consider"} <= set(starts)


def test_the_default_tasks_have_a_solver_and_others_have_none():
    assert GYM.solver == SOLVER == NANO_GYM and ReasoningGym(["gcd"]).solver == ""


def test_levels_differ():
    gym = ReasoningGym(["chain_sum"])
    lengths = [max(len(gym.task(level, index).question) for index in range(200)) for level in gym.levels]
    assert lengths == sorted(lengths) and len(set(lengths)) == len(lengths)


def test_no_question_is_on_both_sides_of_the_split():
    environment = TaskEnvironment(ReasoningGym(["leg_counting"], name="legs"))
    held_out = {problem.question for problem in environment.held_out(100, 0)}
    assert len(held_out) > 50
    assert not held_out & {environment.generate(str(number)).question for number in range(500)}


@pytest.mark.parametrize("name", DEFAULT_TASKS)
def test_scores_are_exact(name: str):
    gym, task, answer = drawn(name)
    assert gym.score(task, answer) == gym.score(task, f" {answer}\n") == 1.0
    assert gym.score(task, f"It is <answer>{answer}</answer>, I think.") == 1.0
    assert gym.score(task, "") == gym.score(task, "I do not know") == gym.score(task, "é\x00") == 0.0
    assert gym.score(task, answer + " " * LONGEST) == 0.0


def test_a_place_at_which_a_generator_fails_is_no_problem(monkeypatch: pytest.MonkeyPatch):
    environment = TaskEnvironment(gym := ReasoningGym(["gcd"], name="fails"))
    place = environment.generate("a").item
    monkeypatch.setattr(gym, "_generator", lambda name, level: {})
    with pytest.raises(ProblemError, match="raised KeyError"):
        environment.derive(replace(place, index=place.index + 1))


def test_an_unknown_name_is_one_line_with_near_ones():
    with pytest.raises(ConfigError, match=r"^environment: reasoning-gym has no task chain_sums; near are: chain_sum"):
        ReasoningGym(["chain_sums"])
    with pytest.raises(ConfigError, match=r"near are: none$"):
        ReasoningGym(["%%%"])


@pytest.mark.parametrize("why", REFUSED)
def test_refused_names_say_why(why: str):
    for name in REFUSED[why].split():
        with pytest.raises(ConfigError, match=f"{name} is refused: {why}"):
            ReasoningGym([name])
