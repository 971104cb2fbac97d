"""A real judge, where CODEZERO_REAL_JUDGE names the directory of Qwen2.5-Coder-1.5B-Instruct."""

import os

import pytest

from codezero.code.assertions import Example
from codezero.evaluator.build import find_probe
from codezero.evaluator.judge import LikelihoodJudge
from codezero.evaluator.judge_prompts import PROBE
from codezero.evaluator.types import Program
from codezero.models.load import load_model

NAMED = os.environ.get("CODEZERO_REAL_JUDGE", "")
PAIRS = [
    ("Write a function f(xs) that returns the largest number of a list.", "f([1, 3, 2])", "3", "max(v0)", "v0[-1]"),
    ("Write a function f(s) that counts the vowels of a text.", "f('tree')", "2",
     "sum(v1 in 'aeiou' for v1 in v0)", "len(v0) - 2"),
    ("Write a function f(n) that says whether a number is even.", "f(4)", "True", "v0 % 2 == 0", "v0 % 2 == 1"),
    ("Write a function f(xs) that removes duplicates, in order.", "f([1, 1, 2])", "[1, 2]",
     "list(dict.fromkeys(v0))", "v0[1:]"),
    ("Write a function f(s) that reverses a text.", "f('ab')", "'ba'", "v0[::-1]", "''.join(sorted(v0))"),
    ("Write a function f(n) that returns the sum of the digits of n.", "f(123)", "6",
     "sum(int(v1) for v1 in str(v0))", "len(str(v0)) * 2"),
]  # fmt: skip


@pytest.mark.skipif(not NAMED, reason="CODEZERO_REAL_JUDGE names no directory of a real judge")
@pytest.mark.timeout(900)
def test_the_shipped_probe_is_of_it_and_orders_right_before_wrong() -> None:
    loaded = load_model(NAMED, device="cpu", role="judge")
    probe = find_probe(loaded, "auto")
    assert probe is not None and probe.within[1] > 0.75
    programs = [
        Program(question, f"def f(v0):\n    return {body}", (Example(call, value),), entry_point="f")
        for question, call, value, right, wrong in PAIRS
        for body in (right, wrong)
    ]
    readings = LikelihoodJudge(loaded, questions=[PROBE], probe=probe).read(programs, frozenset([PROBE]))
    scores = [reading.scores[0] for reading in readings if reading.scores]
    pairs = zip(scores[::2], scores[1::2], strict=True)
    ahead = [right > wrong for right, wrong in pairs if right is not None and wrong is not None]
    assert sum(ahead) >= len(PAIRS) - 1
