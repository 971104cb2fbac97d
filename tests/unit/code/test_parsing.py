"""Extraction takes exactly one fenced Python block and survives anything else."""

from hypothesis import given
from hypothesis import strategies as st

from codezero.code.parsing import extract_code, fence


def test_takes_the_code_between_the_fences():
    found = extract_code("Here you go:\n```python\ndef f(x):\n    return x\n```\nDone.")
    assert found.code == "def f(x):\n    return x"
    assert found.fences == 1 and found.closed


def test_py_and_capitals_and_windows_line_ends_are_fences_too():
    assert extract_code("```py\nx = 1\n```").code == "x = 1"
    assert extract_code("```Python\r\nx = 1\r\n```\r\n").code == "x = 1"


def test_two_blocks_are_ambiguous():
    text = fence("a = 1") + "\n" + fence("a = 2")
    assert extract_code(text).code is None
    assert extract_code(text).fences == 2


def test_other_fences_do_not_count():
    text = '```json\n{"is_correct": true}\n```'
    assert extract_code(text) == extract_code("")
    assert extract_code(fence("a = 1") + "\n" + text).code == "a = 1"


def test_a_block_that_is_cut_off_is_not_closed():
    found = extract_code("```python\ndef f(x):\n    ret")
    assert found.code == "def f(x):\n    ret"
    assert not found.closed


def test_an_opening_at_the_very_end_holds_no_code():
    assert extract_code("```python").code == ""


@given(st.text(alphabet=st.sampled_from("`pythn \n\r\tx="), max_size=200))
def test_never_raises_and_never_returns_a_fence(text: str):
    found = extract_code(text)
    assert (found.code is None) == (found.fences != 1)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="`\r"), max_size=200))
def test_fencing_is_undone(code: str):
    assert extract_code(fence(code)).code == code.rstrip("\n")
