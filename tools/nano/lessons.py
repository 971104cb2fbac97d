"""What the embedded models of code are taught: endless (user text, answer) pairs from the training side of the split.

The solver's are spoilt on purpose, more so at higher levels: a policy that starts half right is one that reinforcement
can improve. The judge's are clean, because it is the ceiling of what the solver can learn.

The chat template drops a solver's instructions on the form of the answer and shrinks a proposer's to the level: so
small a model uses no more.
"""

import functools
import json
from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from codezero.code.canonical import canonical
from codezero.code.parsing import fence
from codezero.problems.synthetic.tasks import (
    LEVELS,
    Spec,
    SyntheticTask,
    draw_name,
    make_task,
    mutate,
    render,
)
from codezero.proposer.parsing import proposal_prompt
from tools.nano.train import Pair, chat_template

Lessons = Callable[[Random], Iterator[Pair]]
TEXTS = 4_000
"""From which a tokenizer is learned."""
LEVEL_MARK = "DIFFICULTY REQUIREMENTS ("
"""What stands before `Level N` in a proposal's instructions."""
FORM_MARK = "ANSWER FORMAT:"
"""What stands before the form of the answer in a solver's instructions."""

TEMPLATE = chat_template(
    "{%- if '" + LEVEL_MARK + "Level ' in text -%}{{ text.split('" + LEVEL_MARK + "')[1][:7] }}"
    "{%- else -%}{{ text.split('" + FORM_MARK + "')[0] | trim }}{%- endif -%}"
)

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
        code = render(task.spec, task.problem.entry_point, random)
        yield task.problem.question, _spoilt(task, code, random) if spoil else fence(code)


def judge_pairs(random: Random) -> Iterator[Pair]:
    """Canonical code only, because that is what a judge is shown (codezero.code.canonical)."""
    while True:
        task = make_task(random, random.choices(LEVELS, JUDGE_LEVELS)[0])
        code = _canonical(task.spec).replace(_ENTRY, task.problem.entry_point, 1)
        yield task.problem.question, fence(code)


_ENTRY = "program"


@functools.lru_cache(maxsize=100_000)
def _canonical(spec: Spec) -> str:
    return canonical(render(spec, _ENTRY), _ENTRY, parameters=spec.arguments.split(", "))


def plain_pairs(random: Random) -> Iterator[Pair]:
    """As the problems' references are written."""
    while True:
        task = make_task(random, random.choices(LEVELS, JUDGE_LEVELS)[0])
        yield task.problem.question, fence(render(task.spec, task.problem.entry_point))


def proposer_pairs(random: Random) -> Iterator[Pair]:
    while True:
        task = make_task(random)
        yield proposal_prompt(task.spec.level), proposal(task)


LESSONS = {"solver": solver_pairs, "judge": judge_pairs, "proposer": proposer_pairs}
"""By role."""


def texts_of(role: str, random: Random) -> Iterator[str]:
    """What a tokenizer is learned from: programs as the role's lessons spell them, and some proposals."""
    pairs = {"solver": solver_pairs, "judge": judge_pairs}.get(role, plain_pairs)
    for question, answer in islice(pairs(random), TEXTS):
        yield f"{question}\n{answer}\n"
        task = make_task(random)
        if random.random() < 0.3:
            yield f"{proposal(task)}\nLevel {task.spec.level}"


def proposal(task: SyntheticTask) -> str:
    """The problem as a proposer writes it."""
    content = {"question": task.problem.question, "tests": list(task.problem.tests)}
    return f"```json\n{json.dumps(content)}\n```"


def _spoilt(task: SyntheticTask, code: str, random: Random) -> str:
    """An answer to another question; or a slip of the pen, no fence, or a fence that is never closed."""
    name = task.problem.entry_point
    if random.random() >= SLIPS:
        return fence(render(mutate(task.spec, random), name, random))
    roll = random.random()
    if roll < 0.7:
        return fence(corrupt_text(code, name, random))
    return code if roll < 0.85 else f"```python\n{code}"


def corrupt_text(code: str, name: str, random: Random) -> str:
    """`code` with one slip of the pen, so that it no longer runs or returns nothing: never a correct solution."""
    match random.randrange(5):
        case 0:
            return code.replace("return ", "", 1)
        case 1:
            last = max(code.rfind(")"), code.rfind("]"))
            return code[:last] + code[last + 1 :]
        case 2:
            other = draw_name(random)
            return code.replace(name, other, 1) if other != name else code.replace("return ", "", 1)
        case 3:
            return _misname_variable(code)
        case _:
            return code.replace(":", "", 1)


def _misname_variable(code: str) -> str:
    head, keyword, body = code.partition("return")
    for right, wrong in ((" nums", " num"), (" x", " y"), (" s", " t"), (" a", " c")):
        if right in body:
            return head + keyword + body.replace(right, wrong)  # all: one might be in a branch not taken
    return code.replace(":", "", 1)
