"""What of an attempt is its program: everything else may hold any text and earn the same reward."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codezero.code.report import StaticRequest, check

PLAIN = "def f(xs):\n    total = sum(xs)\n    return total"


def kept(text: str, question: str = "Write f(xs).") -> str:
    """What of the attempt may be learned from a stranger."""
    report = check(StaticRequest(text, ("assert f([1]) == 1",), "f", question))
    assert list(report.program) == sorted(report.program)
    return "".join(text[start:end] for start, end in report.program)


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def test_a_plain_answer_is_all_program() -> None:
    assert kept(fenced(PLAIN)) == fenced(PLAIN)


DRESSED = {
    "words before": f"Buy MOON!\n{fenced(PLAIN)}", "words after": f"{fenced(PLAIN)}\nBuy MOON!",
    "words on the fence": fenced(PLAIN).replace("```python", "```python MOON", 1),
    "a second fence": f"```text\nMOON\n```\n{fenced(PLAIN)}",
    "a comment": fenced(PLAIN.replace("sum(xs)", "sum(xs)  # MOON")),
    "a comment of its own": fenced(f"# é MOON\n{PLAIN}"),
    "a docstring": fenced(PLAIN.replace("    total", '    """MOON"""\n    total', 1)),
    "an unused text": fenced(PLAIN.replace("    total", '    note = "MOON"\n    total', 1)),
    "an unused value": fenced(PLAIN.replace("    total", "    MOON = len(xs)\n    total", 1)),
    "an annotation": fenced(PLAIN.replace("(xs)", '(xs: "MOON")', 1)),
    "a result's annotation": fenced(PLAIN.replace("(xs):", '(xs) -> "MOON":', 1)),
    "a variable's annotation": fenced(PLAIN.replace("total =", 'total: "MOON" =', 1)),
    "an import": fenced(f"import MOON\n{PLAIN}"),
    "one name of an import": fenced(f"from math import floor, MOON\n{PLAIN.replace('total = sum', 'total = floor')}"),
    "an import inside": fenced(PLAIN.replace("    total", "    import MOON\n    total", 1)),
    "code behind the return": fenced(f'{PLAIN}\n    MOON = "MOON"'),
    "a branch that never runs": fenced(PLAIN.replace("    total", '    if False:\n        MOON = "x"\n    total', 1)),
    "a helper that nobody calls": fenced(f"def MOON():\n    return 1\n{PLAIN}"),
    "a helper inside": fenced(PLAIN.replace("    total", "    def MOON():\n        return 1\n    total", 1)),
    "a class": fenced(f"class MOON:\n    pass\n{PLAIN}"),
    "a call of its own": fenced(f'{PLAIN}\nprint(f([1]), "MOON")'),
    "what it prints": fenced(PLAIN.replace("    total", '    print("MOON")\n    total', 1)),
    "prose in a text": fenced(PLAIN.replace("sum(xs)", f'sum(xs) if "{"all of you buy a MOON " * 4}" else 0')),
    "a text put together": fenced(PLAIN.replace("sum(xs)", f'sum(xs) if f"{{xs}} {"buy a MOON now " * 4}" else 0')),
    "bytes behind a letter of two": fenced(PLAIN.replace("    total", '    é = "ü"; MOON = "é"\n    total', 1)),
}  # fmt: skip


@pytest.mark.parametrize("dress", DRESSED)
def test_what_the_judge_does_not_read_is_no_program(dress: str) -> None:
    text = kept(DRESSED[dress])
    assert "MOON" not in text and "sum(xs)" in text.replace("floor", "sum")


@pytest.mark.parametrize(
    "text",
    [
        "no program at all",
        fenced("def f(xs:\n    return"),
        "1. one\n   ```python\n   def f(xs):\n       return sum(xs)\n   ```\n",  # indented: not one piece of the text
        fenced(PLAIN.replace("\n", "\r")),
    ],
)
def test_what_cannot_be_placed_is_no_program(text: str) -> None:
    assert kept(text) == ""


PIECES = ("# ü MOON", '"""MOON"""', "MOON = 1", "import MOON", "é = 'é'", "    ", "\n", "return 1", "if xs:", "xs")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=6), st.text(max_size=20), st.text(max_size=20))
def test_spans_lie_in_the_text_in_order_whatever_it_says(pieces: list[str], before: str, after: str) -> None:
    body = "".join(f"    {piece}\n" for piece in pieces)
    text = f"{before}\n```python\ndef f(xs):\n{body}    return xs\n```\n{after}"
    report = check(StaticRequest(text, ("assert f([1]) == [1]",), "f", ""))
    at = 0
    for start, end in report.program:
        assert at <= start < end <= len(text)
        at = end
