"""`codezero market`: every page of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.market import ME, small_ledger

from codezero.cli import main
from codezero.market.games import Game


@pytest.fixture
def games(tmp_path: Path) -> list[Game]:
    listed = small_ledger(tmp_path / "one")
    (tmp_path / "one" / "node.json").write_text(json.dumps({"pid": 1, "peer_id": ME}))
    return listed


@pytest.fixture
def market(tmp_path: Path, games: list[Game]) -> Callable[..., int]:
    return lambda *words: main(["market", *words, f"run.directory={tmp_path}"])


@pytest.mark.parametrize("words", [[], ["page"], ["games", "--limit", "2"], ["peers"]])
def test_every_page_is_printed_and_is_json(
    market: Callable[..., int], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert market(*words) == 0
    assert capsys.readouterr().out.strip()
    assert market(*words, "--json") == 0
    assert json.loads(capsys.readouterr().out)


def test_a_game_is_shown_by_its_first_digits(
    market: Callable[..., int], games: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    assert market("show", games[0].id.hex()[:12]) == 0
    text = capsys.readouterr().out
    assert "question 0" in text and "settled: right" in text and "0.800" in text


@pytest.mark.parametrize("words", [["show", "zz"], ["games", "--limit", "0"]])
def test_a_game_that_is_none_is_one_line_and_2(
    market: Callable[..., int], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert market(*words) == 2
    assert capsys.readouterr().err.count("\n") == 1
