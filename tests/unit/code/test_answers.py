"""What `codezero evaluate` reads in attempts written elsewhere, where training goes on reading strictly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.code.entry_point import read_answer
from codezero.code.parsing import extract_code, fence

F = "def f(x):\n    return x"
G = "def f(x):\n    return x + 1"


def block(code: str, language: str = "") -> str:
    return f"```{language}\n{code}\n```"


@pytest.mark.parametrize(
    "text",
    [
        F,
        f"\n{F}\n",
        block(F),
        block(F, "Python3"),
        block(F, "py3"),
        block(F, " python"),
        block(F, "{.python}"),
        block(F, 'python title="f.py"'),
        f"~~~python\n{F}\n~~~",
        f"```python3\n{F}",
        f"{fence('import math')}\n{fence(F)}",
        f"{fence(G)}\nRather:\n{fence(F)}",
        f"{fence(F)}\nFor example:\n{fence('assert f(1) == 1')}\n{block('f(1)')}",
        f"{block('pip install x', 'bash')}\n{block(F)}\n{block('1', 'text')}",
        f"{block('1')}\nThis prints:\n{block(F, 'python3')}\n{block('def f(x): ...', 'text')}",
        f"{fence('f(1)')}\nwith\n{block(F)}",
        f"{fence(G)}\n{fence(F)}\n{fence('def f(x:')}",
    ],
)
def test_the_last_block_that_defines_the_function_counts(text: str):
    code, flaw = read_answer(text, "f")
    assert code == F and flaw
    assert extract_code(text).code != F


def test_the_form_asked_for_has_no_flaw():
    for text in (fence(F), f"So:\n{fence(F)}\nIt prints:\n{block('1')}", f"```python\n{F}"):
        assert read_answer(text, "f") == (F, "")


@pytest.mark.parametrize("text", ["", "no code", "f(1)", "x = 1", f"Sure:\n{F}", block("1"), "def g(x):\n    return x"])
def test_words_and_other_programs_are_no_answer(text: str):
    assert read_answer(text, "f")[0] is None


def test_code_that_answers_nothing_is_still_what_was_written():
    assert read_answer(fence("def g(x): ..."), "f")[0] == "def g(x): ..."
    assert read_answer(fence("def f(x"), "f")[0] == "def f(x"
    code, flaw = read_answer(fence("a = 1") + "\n" + fence("def f(x"), "f")
    assert code == "def f(x" and "2 fences" in flaw


def test_a_program_is_what_writes():
    program = "print(int(input()) * 2)"
    assert read_answer(program, "")[0] == program
    assert read_answer(f"{block('3')}\n{block(program)}\n{block('6')}", "")[0] == program
    assert read_answer(f"{fence('x = 1')}\n{fence(program)}\n{block('6')}", "")[0] == program
    for text in ("6", "Yes", "I would print it", "x = 6"):
        assert read_answer(text, "")[0] is None


def test_a_lambda_and_an_alias_define_too():
    assert read_answer("f = lambda x: x", "f")[0] == "f = lambda x: x"


@given(st.text(alphabet=st.sampled_from("`~pythn \n\r\tx=():f def"), max_size=200), st.sampled_from(["", "f"]))
def test_never_raises_and_what_is_read_can_be_fenced(text: str, entry: str):
    code, flaw = read_answer(text, entry)
    if flaw:
        assert code is not None and extract_code(fence(code)).code == code.rstrip("\r\n")
