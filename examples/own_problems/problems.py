"""Problems of your own, from a function:

    codezero run data.sources=[examples/own_problems/problems.py:rows] run.max_iterations=3

or from a file: data.sources=[examples/own_problems/problems.jsonl]. A row has what MBPP's have: a question, a solution
that is right, and tests. `codezero data check examples/own_problems/problems.py:rows` says which rows are usable.
"""

from collections.abc import Iterator

LISTS = ([3, -1, 8, 4], [10, 7, 7], [-5, 2, 0, 6, 9])
TASKS = {
    "total": ("the sum of all numbers in nums", "sum(nums)"),
    "spread": ("how far the largest of nums lies above the smallest", "max(nums) - min(nums)"),
    "ends": ("the first plus the last element of nums", "nums[0] + nums[-1]"),
    "backwards": ("nums in reverse order", "nums[::-1]"),
    "halves": ("each x in nums divided by 2, rounded down", "[x // 2 for x in nums]"),
    "evens": ("the even numbers of nums", "[x for x in nums if x % 2 == 0]"),
    "distinct": ("how many different values nums has", "len(set(nums))"),
    "ranked": ("nums from the largest to the smallest", "sorted(nums, reverse=True)"),
    "squares": ("the sum of the squares of nums", "sum(x * x for x in nums)"),
    "negatives": ("whether any number in nums is below zero", "any(x < 0 for x in nums)"),
    "middle": ("the element of nums at half its length", "nums[len(nums) // 2]"),
    "steps": ("the differences of neighbours in nums", "[b - a for a, b in zip(nums, nums[1:])]"),
}


def rows() -> Iterator[dict[str, object]]:
    """The same rows each time: a run that goes on reads them again, from where it was."""
    for name, (words, expression) in TASKS.items():
        expected = [eval(expression, {"nums": nums}) for nums in LISTS]  # of our own text above
        yield {
            "text": f"Write a function {name}(nums) that returns {words}.",
            "code": f"def {name}(nums):\n    return {expression}",
            "test_list": [f"assert {name}({nums}) == {wanted}" for nums, wanted in zip(LISTS, expected, strict=True)],
        }
