"""What a proposer is asked: one template and a table of five levels."""

from collections.abc import Sequence

REQUIREMENTS = {
    1: ("Very easy", "one built-in operation on a number, a string or a list; no condition, no loop",
        "Write a function get_value(x) that returns x plus 3."),
    2: ("Easy", "one or two operations in a row, or one comparison of a number",
        "Write a function find_total(x) that takes x and will add 4 then multiply by 2."),
    3: ("Medium", "one loop over a list, or one condition with two branches",
        "Write a function make_list(nums) that returns a list of the square of x for each x in nums."),
    4: ("Hard", "two of these combined over a list: select, transform, sort, sum up",
        "Write a function count_score(nums) that returns the sum of the numbers in nums that are even."),
    5: ("Very hard", "three or more steps combined, with a condition on each element",
        "Write a function solve_order(nums) that returns a list of x times 2 for each x in nums that is odd, "
        "sorted in descending order."),
}  # fmt: skip
"""Of each level: its title, what solving takes, and an example."""

_TEMPLATE = """\
Write one new Python programming problem and three tests for it.

DIFFICULTY REQUIREMENTS (Level {level} - {title}):
- Solving it takes {asks}.
- A problem of this level: "{example}" Write a different one.

RULES
- The question is one sentence or a short paragraph, starts with "Write a function NAME(arguments) that", and says
  exactly what is returned. It can be solved in plain Python without imports, input, files or randomness.
- Every test is one line of the form: assert NAME(arguments) == expected
- The tests call the function that the question names, differ in their arguments, and do not contradict the question.\
{taken}

Answer with one block of JSON and nothing else:
```json
{{"question": "...", "tests": ["assert ...", "assert ...", "assert ..."]}}
```"""
_TAKEN = """
- These were written already, write something else under another name: {}"""


def proposal_prompt(level: int, taken: Sequence[str] = ()) -> str:
    """The user's turn that asks for one problem of `level` 1..5. taken: names of functions that it may not have."""
    title, asks, example = REQUIREMENTS[level]
    shown = _TAKEN.format(", ".join(taken)) if taken else ""
    return _TEMPLATE.format(level=level, title=title, asks=asks, example=example, taken=shown)
