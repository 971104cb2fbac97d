"""An environment of one's own: how many vowels does a word have? Scored exactly, learned by two nodes or one.

    codezero run environment=examples/own_environment.py:Vowels run.max_iterations=20

A taskset needs `name`, `version`, `task` and `score`. docs/environments.md says the rest.
"""

import random
import re

from codezero.environments.tasks import Task


class Vowels:
    name = "vowels"
    version = "1"  # raise it whenever a task or a score changes: nodes of another version then skip these problems
    levels = (1, 2, 3, 4, 5)

    def task(self, level: int, index: int) -> Task:
        """The same everywhere for the same level and index."""
        draw = random.Random(f"{level} {index}")
        word = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=2 * level))
        return Task(f"How many of the letters a, e, i, o and u are in {word}?", sum(map(word.count, "aeiou")))

    def score(self, task: Task, answer: str) -> float:
        """1 for the right number; a tenth for some number, so that there is a way to begin."""
        number = re.search(r"\d+", answer)
        if number is None:
            return 0.0
        return 1.0 if int(number[0]) == task.answer else 0.1
