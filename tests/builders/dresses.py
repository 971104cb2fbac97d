"""How models dress a right answer: the form asked for, and the others that are seen."""

import ast
import gzip
import json
import textwrap
from collections.abc import Callable, Iterator

from builders.real_data import real_data

from codezero.code.assertions import parse_tests
from codezero.code.parsing import fence


def references() -> Iterator[tuple[str, str]]:
    """(entry point, reference) of all of HumanEval and MBPP."""
    with gzip.open(real_data("HumanEval.jsonl.gz") / "HumanEval.jsonl.gz", "rt") as lines:
        for row in map(json.loads, lines):
            yield row["entry_point"], row["prompt"] + row["canonical_solution"]
    for row in map(json.loads, (real_data("mbpp.jsonl") / "mbpp.jsonl").read_text().splitlines()):
        yield parse_tests(row["test_list"], reference=row["code"])[0], row["code"].replace("\r\n", "\n")


def _example(entry: str) -> str:
    return f"print({entry}(3))"


def _typed(code: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = ast.Constant("int")
            for argument in node.args.args:
                argument.annotation = ast.Name("object")
    return ast.unparse(tree)


def _split(entry: str, code: str) -> str:
    """The helpers in a block of their own, before the function."""
    body = ast.parse(code).body
    apart = [node for node in body if getattr(node, "name", "") != entry]
    function = [node for node in body if getattr(node, "name", "") == entry]
    if not function or any(not isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef) for node in apart):
        return fence("import math") + "\n" + fence(code)
    return fence("\n".join(map(ast.unparse, apart))) + "\nThen:\n" + fence(ast.unparse(function[-1]))


def _draft(entry: str) -> str:
    return f"def {entry}(*values):\n    return None"


def _item(code: str) -> str:
    return "1. Write it:\n" + textwrap.indent(fence(code), "   ", lambda line: True)


_SESSION = "```python\n>>> {0}(3)\n9\n```"
_TESTS = "import unittest\n\nclass TestIt(unittest.TestCase):\n    def test_it(self):\n        self.assertTrue({0}(3))"
_GUARD = '\n\nif __name__ == "__main__":\n    main = {0}\n    print(main(3))'

DRESSES: dict[str, Callable[[str, str], str]] = {
    "one block": lambda entry, code: fence(code),
    "prose around": lambda entry, code: f"Sure! Here is `{entry}`:\n\n{fence(code)}\n\nIt works **in O(n)**.",
    "cut off behind the code": lambda entry, code: f"```python\n{code}\n",
    "output in a block": lambda entry, code: f"{fence(code)}\nOutput:\n```\n[9]\n```",
    "an example after it": lambda entry, code: fence(f"{code}\n\n# Example\n{_example(entry)}"),
    "a main guard": lambda entry, code: fence(code + _GUARD.format(entry)),
    "type hints": lambda entry, code: fence(_typed(code)),
    "Windows line ends": lambda entry, code: fence(code).replace("\n", "\r\n"),
    "tabs": lambda entry, code: fence(ast.unparse(ast.parse(code)).replace("    ", "\t")),
    "no tag": lambda entry, code: f"```\n{code}\n```", "python3": lambda entry, code: f"```python3\n{code}\n```",
    "tildes": lambda entry, code: f"~~~python\n{code}\n~~~",
    "a longer fence": lambda entry, code: f"````python\n{code}\n````",
    "an item of a list": lambda entry, code: _item(code),
    "behind a bullet": lambda entry, code: textwrap.indent(fence(code), "  ").replace("  ```", "- ```", 1),
    "example in a second block": lambda entry, code: f"{fence(code)}\nUse:\n{fence(_example(entry))}\n```\n9\n```",
    "tests in a second block": lambda entry, code: f"{fence(code)}\n{fence(_TESTS.format(entry))}",
    "a session in a second block": lambda entry, code: f"{fence(code)}\n{_SESSION.format(entry)}",
    "a command before it": lambda entry, code: f"```bash\npip install it\n```\n```sh\nls\n```\n{fence(code)}",
    "a draft before it": lambda entry, code: f"{fence(_draft(entry))}\nThat is wrong. Rather:\n{fence(code)}",
    "the same twice": lambda entry, code: f"{fence(code)}\nIn all:\n{fence(code)}",
    "helpers in an earlier block": _split, "bare code": lambda entry, code: code,
}  # fmt: skip
