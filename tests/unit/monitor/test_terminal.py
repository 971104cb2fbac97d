import io
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from builders.monitor import PEER, after, group, learned, row, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from codezero.monitor.run_types import RunView
from codezero.monitor.run_view import best_and_worst, code_of, most_telling
from codezero.monitor.terminal import LiveView, render, save_picture
from codezero.monitor.text import (
    ADJECTIVES,
    ANIMALS,
    BLOCKS,
    INVISIBLE,
    clean,
    readable_name,
    sparkline,
)
from codezero.types import ScoredGroup

HOSTILE = (
    "[bold red]x[/] [link=http://a] [/nope] \x1b[2J\x1b]0;owned\x07 \u202e\u200b\r\x08 \ud800 "
    + "a" * 5_000
    + "\n" * 300
)


def drawn(view: RunView, *scored: ScoredGroup, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, force_terminal=True, color_system=None, file=io.StringIO())
    with console.capture() as captured:
        console.print(render(view, next(iter(scored), None), height, now=252.0))
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("shown", [(after(),), (learned(0),), (learned(1),), (learned(9), group())])
def test_every_stage_fits_its_screen(shown: tuple[RunView, *tuple[ScoredGroup, ...]], width: int) -> None:
    lines = drawn(*shown, width=width)
    assert len(lines) <= 23  # one row stays for the cursor
    assert max(map(len, lines)) <= width
    boxed = [line for line in lines if line.startswith(("│", "╭", "╰"))]
    assert all(len(line) == width and line[-1] in "│╮╯" for line in boxed)


def test_the_view_tells_what_a_person_asks() -> None:
    text = "\n".join(
        drawn(
            after(*rows_of(5), row(125, 0.7) | {"tolerated/SwarmError": 3}),
            group("Return the sum.", ("right", "wrong"), "returns too early"),
            width=120,
        )
    )
    for wanted in (
        readable_name(PEER), "hivemind swarm · 2 peers", "18 % from them", "iteration 125", "round 12",
        "●●●○○ 3", "executed average@8", "61.0 % [58.0, 64.0]", "from 21.0 % ▲ +40.0", "0.70", "from 0.30",
        "believes 61.0 %, executed 61.0 %, AUROC 0.71 [0.64, 0.77] within groups, 0.98 over problems",
        "12,346 tokens/s", "0.6 s an iteration",
        "SwarmError (3)", "Return the sum.", "best 0.90", "worst 0.10", "returns too early", "Ctrl-C",
        "running 4 m 12 s",
    ):  # fmt: skip
        assert wanted in text, wanted


def test_hostile_text_neither_acts_nor_is_read_as_markup() -> None:
    lines = drawn(learned(2), group(HOSTILE, ("```python\n" + HOSTILE, HOSTILE), HOSTILE))
    text = "".join(lines)
    assert not any(unicodedata.category(character) in INVISIBLE for character in text)
    assert "[bold red]x[/]" in text
    assert len(lines) <= 23 and max(map(len, lines)) <= 80


@given(question=st.text(max_size=200), attempt=st.text(max_size=300), reason=st.text(max_size=80))
@settings(max_examples=40, deadline=None)
def test_any_text_keeps_the_frame(question: str, attempt: str, reason: str) -> None:
    assert len(drawn(after(row(1)), group(question, (attempt, attempt), reason))) <= 23


@given(st.text(max_size=80), st.integers(2, 60))
def test_clean_text_is_printable_bounded_and_stable(text: str, limit: int) -> None:
    shown = clean(text, limit, lines=True)
    assert len(shown) <= limit
    assert not any(unicodedata.category(c) in INVISIBLE for c in shown if c != "\n")
    assert clean(shown, limit, lines=True) == shown
    assert "\n" not in clean(text, limit)
    shown.encode()


def test_combining_marks_do_not_pile_up() -> None:
    assert len(clean("a" + "\u0301" * 100)) == 2


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.integers(1, 50))
def test_sparkline_is_blocks_within_its_width(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == width
    assert set(line) <= set(BLOCKS)


def test_the_last_problem_is_the_one_whose_attempts_differ_most() -> None:
    dull, telling = group("dull", ("same",)), group("telling")
    shown = most_telling([dull, telling, dull])
    assert shown is telling
    (_, best), (_, worst) = best_and_worst(shown)
    assert best.reward > worst.reward
    assert most_telling([]) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("x\n```python\na = 1\n```\nend", "a = 1"),
        ("```\na\n```", "a"),
        ("a = 1\n", "a = 1"),
        ("```a```", "a"),
        ("```", ""),
    ],
)
def test_code_is_taken_out_of_its_fence(text: str, code: str) -> None:
    assert code_of(text, "f") == code


def test_the_picture_is_whole_and_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "view.svg"
    save_picture(path, learned(6), group(HOSTILE))
    svg = path.read_text()
    ElementTree.fromstring(svg)
    assert "average@8" in svg
    assert not re.search(r"(url\(|href=|src=)\s*[\"']?http", svg)
    assert "@font-face" not in svg


def test_the_live_view_draws_and_gives_the_terminal_back() -> None:
    stream = io.StringIO()
    view = LiveView(Console(file=stream, width=80, height=24, force_terminal=True))
    view.show(after())
    view.show(learned(3), group())
    view.close()
    shown = stream.getvalue()
    assert "iteration " in shown and "average@8" in shown
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l")  # the cursor is back


def test_names_are_words_and_the_same_everywhere() -> None:
    assert len(set(ADJECTIVES)) == len(set(ANIMALS)) == 64
    assert readable_name("12D3KooW") == "eager-magpie"
    assert len({readable_name(str(peer)) for peer in range(200)}) > 180
    assert readable_name("\ud800")
