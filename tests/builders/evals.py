"""Small published sets: rows in the schemas of the real ones, problems and answers of our own."""

import base64
import gzip
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from codezero.code.parsing import fence

Rows = list[dict[str, Any]]

_METADATA = "\n\nMETADATA = {\n    'author': 'us',\n    'dataset': 'test'\n}\n\n\n"


def _human(number: int, prompt: str, entry: str, answer: str, check: str) -> dict[str, Any]:
    test = f"{_METADATA}def check(candidate):\n{check}\n"
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": prompt,
        "entry_point": entry,
        "canonical_solution": answer,
        "test": test,
    }


HUMANEVAL: Rows = [
    _human(0, 'def twice(n: int) -> int:\n    """ Double it.\n    >>> twice(2)\n    4\n    """\n', "twice",
           "    return 2 * n\n", "    assert candidate(2) == 4\n    assert candidate(-3) == -6, \"negative\""),
    _human(1, 'from typing import List\n\n\ndef evens(xs: List[int]) -> List[int]:\n    """ Keep the even ones."""\n',
           "evens", "    return [x for x in xs if x % 2 == 0]\n",
           "    assert True, \"always\"\n    assert candidate([1, 2, 4]) == [2, 4]\n    assert candidate([]) == []"),
    _human(2, 'import math\n\n\ndef area(xs: list) -> float:\n    """ Of a circle of radius xs[0]."""\n', "area",
           "    return math.pi * xs[0] ** 2\n", "    assert abs(candidate([1.0]) - 3.14159265) < 1e-6\n"
           "    assert math.fabs(candidate([2.0]) - 12.5663706) < 1e-6"),
    _human(3, 'def shift(s: str):\n    """ Each letter by one."""\n    return "".join(chr(ord(c) + 1) for c in s)\n\n\n'
           'def back(s: str):\n    """ Undoes shift."""\n', "back", '    return "".join(chr(ord(c) - 1) for c in s)\n',
           "    letters = 'abcxyz'\n    for start in range(5):\n        text = letters[start:]\n"
           "        assert candidate(shift(text)) == text"),
    _human(4, 'def is_small(n: int) -> bool:\n    """ Below ten?"""\n', "is_small", "    return n < 10\n",
           "    limit = 10\n    assert candidate(9)\n    assert not candidate(limit)\n    assert candidate(3) is True"),
]  # fmt: skip


def _mbpp(number: int, text: str, code: str, tests: list[str], setup: str = "") -> dict[str, Any]:
    return {
        "task_id": number, "text": text, "code": code, "test_list": tests, "test_setup_code": setup,
        "challenge_test_list": [],
    }  # fmt: skip


MBPP: Rows = [
    _mbpp(10, "Of the prompt split.", "def no(n):\n    return n", ["assert no(1) == 1"]),
    _mbpp(11, "Write a function to add one.", "def inc(n):\r\n  return n + 1",
          ["assert inc(1) == 2", "assert inc(0) == 1"]),
    _mbpp(12, "Write a function to reverse words.", "def rev(s):\n    return ' '.join(reversed(s.split()))",
          ["assert rev('a b') == 'b a'", "assert rev('') == ''"]),
    _mbpp(13, "Write a function to find shared items.", "def both(a, b):\n    return tuple(x for x in a if x in b)",
          ["assert set(both((1, 2), (2, 3))) == set((2,))"]),
    _mbpp(300, "Write a function for the area of a square.", "def sq(x):\n    return x * x",
          ["assert math.isclose(sq(1.5), 2.25)"], "import math"),
    _mbpp(510, "Write a function to find the largest.", "def top(xs):\n    return max(xs)",
          ["assert top([1, 3, 2]) == 3"]),
    _mbpp(511, "Of the validation split.", "def no(n):\n    return n", ["assert no(1) == 1"]),
]  # fmt: skip


def packed(text: str, protocol: int = 4) -> str:
    """As LiveCodeBench packs its private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(text, protocol))).decode()


def _case(given: str, wanted: str, kind: str) -> dict[str, str]:
    return {"input": given, "output": wanted, "testtype": kind}


def _live(number: int, content: str, public: list[dict[str, str]], private: list[dict[str, str]], *,
          starter: str = "", method: str = "", difficulty: str = "easy") -> dict[str, Any]:  # fmt: skip
    return {
        "question_title": f"title {number}", "question_content": content,
        "platform": "leetcode" if method else "atcoder", "question_id": f"q{number}", "contest_id": "c",
        "contest_date": "2024-10-01T00:00:00", "starter_code": starter, "difficulty": difficulty,
        "public_test_cases": json.dumps(public), "private_test_cases": packed(json.dumps(private)),
        "metadata": json.dumps({"func_name": method} if method else {}),
    }  # fmt: skip


_SUM = [_case(f"{a} {b}\n", f"{a + b}\n", "stdin") for a, b in ((1, 2), (0, 0), (-5, 3))]
LIVECODEBENCH: Rows = [
    _live(1, "Add two numbers.", _SUM[:1], _SUM[1:] + [_case(f"{n} 1", str(n + 1), "stdin") for n in range(40)]),
    _live(2, "Print the words backwards.", [_case("a b c\n", "c b a\n", "stdin")], [_case("x\n", "x\n", "stdin")]),
    _live(3, "Indices that sum to the target.", [_case("[2, 7]\n9", "[0, 1]", "functional")],
          [_case("[3, 3]\n6", "[0, 1]", "functional")], method="twoSum", difficulty="medium",
          starter="class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        "),
    _live(4, "The mean of the list.", [_case("[1, 3]", "2.0", "functional")], [_case("[1, 2]", "1.5", "functional")],
          method="mean", starter="class Solution:\n    def mean(self, nums: List[int]) -> float:\n        "),
    _live(5, "Is it a palindrome?", [_case('"abba"', "true", "functional")], [_case('"ab c"', "false", "functional")],
          method="same", difficulty="hard", starter="class Solution:\n    def same(self, s: str) -> bool:\n        "),
]  # fmt: skip


def plus(task: str, entry: str, body: str, base: list[Any], added: Any, *, asked: str = "", atol: float = 0,
         **others: Any) -> dict[str, Any]:  # fmt: skip
    """A row in EvalPlus's schema; `body`: of the reference, behind `(x)` or `asked`."""
    head = f'def {entry}({asked or "x"}):\n    """Our own."""\n'
    mbpp = task.startswith("Mbpp")
    return {
        "task_id": task, "prompt": f'"""\nOur own {entry}.\n"""\n' if mbpp else head, "entry_point": entry,
        "canonical_solution": (head if mbpp else "") + f"    {body}\n", "base_input": base, "plus_input": added,
        "contract": "", "atol": atol, **others,
    }  # fmt: skip


_PLUS = [("double", "return 2 * x"), ("third", "return x / 3"), ("pair", "return (x, x + 1)"),
         ("up", "return list(range(x))"), ("even", "return x % 2 == 0")]  # fmt: skip
HUMANEVALPLUS: Rows = [plus(f"HumanEval/{n}", *each, [[1], [2]], [[3], [4]]) for n, each in enumerate(_PLUS)]
MBPPPLUS: Rows = [
    plus(f"Mbpp/{n + 3}", *each, [[1], [2]], [[3], [4]], assertion=f"assert {each[0]}(1) is not None")
    for n, each in enumerate(_PLUS)
]
SETS = {"humaneval": HUMANEVAL, "mbpp": MBPP, "livecodebench": LIVECODEBENCH, "humanevalplus": HUMANEVALPLUS,
        "mbppplus": MBPPPLUS}  # fmt: skip

RIGHT: dict[str, list[str]] = {
    "humaneval": [
        f"def {row['entry_point']}({'xs' if 'xs' in row['prompt'] else 's' if 's: str' in row['prompt'] else 'n'}):\n"
        f"{row['canonical_solution']}"
        for row in HUMANEVAL
    ],
    "mbpp": [row["code"].replace("\r\n", "\n") for row in MBPP if 11 <= row["task_id"] <= 510],
    "livecodebench": [
        "print(sum(map(int, input().split())))",
        "print(*reversed(input().split()))",
        "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n"
        "        print('looking')\n        seen = {}\n        for i, n in enumerate(nums):\n"
        "            if target - n in seen:\n                return (seen[target - n], i)\n            seen[n] = i\n",
        "class Solution:\n    def mean(self, nums: List[int]) -> float:\n        return sum(nums) / len(nums)",
        "class Solution:\n    def same(self, s: str) -> bool:\n        return s == s[::-1]",
    ],
    **{key: [f"def {name}(x):\n    {body}" for name, body in _PLUS] for key in ("humanevalplus", "mbppplus")},
}
WRONG: dict[str, list[str]] = {
    "humaneval": [f"def {row['entry_point']}(x):\n    return x" for row in HUMANEVAL],
    "mbpp": [f"def {name}(*given):\n    return 'no'" for name in ("inc", "rev", "both", "sq", "top")],
    **{key: [f"def {name}(x):\n    return 1" for name, _ in _PLUS] for key in ("humanevalplus", "mbppplus")},
    "livecodebench": ["print(4)", "print(input())", *("class Solution:\n    def f(self):\n        pass",) * 3],
}


def answers(name: str, *, right: bool = True) -> list[str]:
    """Whole completions, one for each task."""
    return [fence(code) for code in (RIGHT if right else WRONG)[name]]


def write_rows(path: Path, rows: Rows) -> Path:
    """By its suffix: .jsonl, .jsonl.gz or .parquet."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.name.endswith(".parquet"):
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(lines)
    return path
