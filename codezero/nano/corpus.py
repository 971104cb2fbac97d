"""What the embedded models are taught: endless (user text, answer) pairs from the training side of the split.

The solver's are spoilt on purpose, more so at higher levels: a policy that starts half right is one that
reinforcement can improve. The judge's are clean, because it is the ceiling of what the solver can learn.
"""

import json
from collections.abc import Iterator
from random import Random

from codezero.code.parsing import fence
from codezero.problems.synthetic.tasks import LEVELS, SyntheticTask, corrupt_text, make_task, mutate, render
from codezero.proposer.prompts import proposal_prompt

Pair = tuple[str, str]

SOLVER_LEVELS = (0.37, 0.22, 0.22, 0.10, 0.09)
"""How often the solver saw each level."""
JUDGE_LEVELS = (0.10, 0.28, 0.24, 0.10, 0.28)
"""More of the levels with several constants: which belongs where is what is hardest to learn."""
SOLVER_NOISE = (0.20, 0.40, 0.48, 0.70, 0.72)
"""Share of spoilt answers, by level."""
SLIPS = 0.2
"""Share of spoilt answers that are spoilt as text; the rest answer another question."""


def solver_pairs(random: Random) -> Iterator[Pair]:
    while True:
        task = make_task(random, random.choices(LEVELS, SOLVER_LEVELS)[0])
        level = LEVELS.index(task.spec.level)
        spoil = random.random() < SOLVER_NOISE[level]
        yield task.problem.question, _spoilt(task, random) if spoil else fence(_reference(task))


def judge_pairs(random: Random) -> Iterator[Pair]:
    """Canonical code only, because that is what a judge is shown (codezero.code.canonical)."""
    while True:
        task = make_task(random, random.choices(LEVELS, JUDGE_LEVELS)[0])
        yield task.problem.question, fence(_reference(task))


def proposer_pairs(random: Random) -> Iterator[Pair]:
    while True:
        task = make_task(random)
        yield proposal_prompt(task.spec.level), proposal(task)


def proposal(task: SyntheticTask) -> str:
    """The problem as a proposer writes it."""
    content = {"question": task.problem.question, "tests": list(task.problem.tests)}
    return f"```json\n{json.dumps(content)}\n```"


def _reference(task: SyntheticTask) -> str:
    return render(task.spec, task.problem.entry_point)


def _spoilt(task: SyntheticTask, random: Random) -> str:
    """An answer to another question; or a slip of the pen, no fence, or a fence that is never closed."""
    code, name = _reference(task), task.problem.entry_point
    if random.random() >= SLIPS:
        return fence(render(mutate(task.spec, random), name))
    roll = random.random()
    if roll < 0.7:
        return fence(corrupt_text(code, name, random))
    return code if roll < 0.85 else f"```python\n{code}"
