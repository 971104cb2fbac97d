"""Small tasksets."""

import random
from typing import Any

from codezero.environments.tasks import Task, TaskEnvironment
from codezero.types import Completion, Item, Problem, RolloutGroup


class Sums:
    """Two numbers below 10 to the power of the level."""

    name, version = "sums", "1"

    def __init__(self, **change: Any) -> None:
        vars(self).update(change)

    def task(self, level: int, index: int) -> Task:
        draw = random.Random(f"{level} {index}")
        first, second = draw.randrange(10**level), draw.randrange(10**level)
        return Task(f"What is {first} + {second}?", first + second)

    def score(self, task: Task, answer: str) -> float | None:
        if answer == "crash":
            raise KeyError("this rule has a mistake")
        return None if answer == "unknown" else float(answer.strip() == str(task.answer))


def sums(**change: Any) -> TaskEnvironment:
    return TaskEnvironment(Sums(**change))


def right(problem: Problem) -> str:
    assert problem.item is not None
    return str(Sums().task(problem.item.level, problem.item.index).answer)


def attempts(problem: Problem, *texts: str, peer: str = "peer", round_number: int = 0) -> RolloutGroup:
    tried = tuple(Completion(text, (5, 6), (-0.5, -0.25), True) for text in texts)
    return RolloutGroup(problem, tried, peer, round_number, 3)


def item(environment: TaskEnvironment, level: int = 1, index: int = 0) -> Item:
    return Item(environment.name, environment.digest, level, index)
