"""Tasks of the library reasoning-gym: a generator for each name, with the levels of its own curriculum.

Anybody chooses level and index, and answers with any text. So those names are refused where the library would run an
answer as Python, be held up by one, take long to draw a task, or draw another one in another process."""

# pyright: reportUnknownMemberType=false

import difflib
import importlib
import re
import warnings
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from typing import Any, cast

from codezero.environments.tasks import Task
from codezero.errors import ConfigError

# what the embedded solver was taught
DEFAULT_TASKS = ("family_relationships", "leg_counting", "spell_backward", "syllogism")
SOLVER = "nano-gym"
# why, and which; found with 0.1.25
REFUSED = {
    "it runs answers as Python": "binary_matrix countdown intermediate_integration n_queens polynomial_multiplication "
    "puzzle24 simple_integration spiral_matrix string_insertion",
    "a short answer can hold it up": "coin_flip rubiks_cube",
    "it calls every answer right": "game_of_life_halting",
    "it draws other tasks in another process": "codeio isomorphic_strings list_functions ransom_note",
    "it takes long": "acre arc_1d basic_arithmetic bf futoshiki game_of_life jugs number_sequence sokoban tsumego "
    "word_ladder zebra_puzzles",
    "its levels are not valid settings of its own": "caesar_cipher composite knight_swap survo",
}
LONGEST = 4_000  # characters of an answer; a longer one is wrong
ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class ReasoningGym:
    """Implements `tasks.Taskset`. Raises ConfigError for a name that the library lacks or that is refused."""

    levels, size, solver = (1, 2, 3, 4, 5), 1_000_000, ""

    def __init__(self, tasks: Sequence[str] = DEFAULT_TASKS, name: str = "gym") -> None:
        self.name, self._tasks = name, tuple(tasks)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # of what it needs, when that is first compiled
                self._library: Any = importlib.import_module("reasoning_gym.factory")
        except ImportError as error:
            remedy = "run `uv sync --no-dev --extra gym`"
            raise ConfigError(f"environment: reasoning-gym is not installed; {remedy}") from error
        self.solver = SOLVER if self._tasks == DEFAULT_TASKS else ""
        known: list[str] = list(self._library.DATASETS)
        for task in self._tasks:
            if why := next((why for why, names in REFUSED.items() if task in names.split()), ""):
                raise ConfigError(f"environment: reasoning-gym's {task} is refused: {why}")
            if task not in known:
                near = ", ".join(difflib.get_close_matches(task, known, cutoff=0.4)) or "none"
                raise ConfigError(f"environment: reasoning-gym has no task {task}; near are: {near}")
        self.version = " ".join((metadata.version("reasoning-gym"), *self._tasks))
        self._generator = cache(self._make)

    def task(self, level: int, index: int) -> Task:
        """The generators take turns. Raises what the generator does: some places divide by zero."""
        name = self._tasks[index % len(self._tasks)]
        entry = self._generator(name, level)[index]
        return Task(entry["question"], (name, level, entry))

    def score(self, task: Task, answer: str) -> float | None:
        """As the library scores what stands in <answer> tags, or else the whole: some of its generators give a part for
        what is nearly right."""
        name, level, entry = cast("tuple[str, int, dict[str, Any]]", task.answer)
        if len(answer) > LONGEST:
            return 0.0
        tagged = ANSWER.findall(answer)
        score = self._generator(name, level).score_answer((tagged[-1] if tagged else answer).strip(), entry)
        return min(1.0, max(0.0, float(score)))

    def pair(self, level: int, index: int) -> tuple[str, str]:
        """A question, and the answer that its generator gives: a lesson of tools/nano."""
        task = self.task(level, index)
        return task.question, str(cast("tuple[str, int, dict[str, Any]]", task.answer)[2]["answer"])

    def _make(self, name: str, level: int) -> Any:
        """No two levels share a seed, so that none asks what another does."""
        make, configure = self._library.DATASETS[name]
        given = {"seed": level * self.size, "size": self.size}
        if not self._library.has_curriculum(name):
            return make(config=configure(**given))
        curriculum = self._library.create_curriculum(name)
        curriculum.set_global_level(level - 1)  # what has fewer levels stays at its highest
        return make(config=curriculum.generate_configuration(given))
