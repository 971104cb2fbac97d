"""`codezero market`: every page of it, and what `verify` finds changed."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from builders.market import ME, SALT, opening_of, peer, small_ledger

from codezero.cli import main
from codezero.market.games import Game
from codezero.market.ledger import FILE, Fact, GameResult, Ledger
from codezero.market.payout import Sealed


@pytest.fixture
def games(tmp_path: Path) -> list[Game]:
    made = small_ledger(tmp_path / "one")
    (tmp_path / "one" / "node.json").write_text(json.dumps({"pid": 1, "peer_id": ME}))
    return made


@pytest.fixture
def market(tmp_path: Path, games: list[Game]) -> Callable[..., int]:
    return lambda *words: main(["market", *words, f"run.directory={tmp_path}"])


def change(folder: Path, entry: Fact, data: object, where: str = "1") -> None:
    with closing(sqlite3.connect(folder / "one" / FILE)) as connection, connection:
        query = f"UPDATE items SET data=? WHERE kind=? AND {where}"
        assert connection.execute(query, (msgspec.msgpack.encode(data), entry)).rowcount == 1


@pytest.mark.parametrize("words", [[], ["page"], ["games", "--limit", "2"], ["peers"]])
def test_every_page_is_printed_and_is_json(
    market: Callable[..., int], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert market(*words) == 0
    assert capsys.readouterr().out.strip()
    assert market(*words, "--json") == 0
    assert json.loads(capsys.readouterr().out)


def test_the_bare_command_is_the_page(market: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert market() == 0
    text = capsys.readouterr().out
    assert "in the market" in text and "play points" in text and "your bets" in text and "20 are needed" in text
    assert "\u202e" not in text


def test_a_game_is_shown_by_its_first_digits(
    market: Callable[..., int], games: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    assert market("show", games[0].id.hex()[:12]) == 0
    text = capsys.readouterr().out
    assert "question 0" in text and "none of these" in text and "ballots" in text


@pytest.mark.parametrize("words", [["show", "zz"], ["verify", "0000000000"], ["games", "--limit", "0"]])
def test_a_game_that_is_none_is_one_line_and_2(
    market: Callable[..., int], capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert market(*words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_without_a_market_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "two").mkdir()
    assert main(["market", f"run.directory={tmp_path}", "run.name=two"]) == 0
    assert capsys.readouterr().out == "no bets: this run plays no market: market.enabled=false\n"


def test_what_was_recorded_as_it_was_holds(
    market: Callable[..., int], games: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    for game in games:
        assert market("verify", game.id.hex()) == 0
    assert "not settled yet" in capsys.readouterr().out


def test_a_changed_report_is_found(
    tmp_path: Path, market: Callable[..., int], games: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(Ledger(tmp_path / "one" / FILE)) as ledger:
        (item, *_) = ledger.all(Fact.REVEAL, Sealed, [games[0].round + 1])
    changed = [msgspec.structs.replace(report, q=(9998, 1, 1)) for report in item.data[1]]
    change(tmp_path, Fact.REVEAL, (SALT, changed), f"round={item.round} AND peer='{item.peer}'")
    assert market("verify", games[0].id.hex()) == 1
    assert "not those under their root" in capsys.readouterr().out


def test_a_wrong_win_is_found(
    tmp_path: Path, market: Callable[..., int], games: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    game = games[0]
    with closing(Ledger(tmp_path / "one" / FILE)) as ledger:
        result = ledger.get(Fact.RESULT, game.round, game.opener, game.id, GameResult)
    assert result is not None
    wins = result.wins | {peer(3): result.wins[peer(3)] + 1}
    change(tmp_path, Fact.RESULT, msgspec.structs.replace(result, wins=wins), f"name=x'{game.id.hex()}'")
    assert market("verify", game.id.hex()) == 1
    assert f"the game pays {result.wins[peer(3)]} milli-points" in capsys.readouterr().out


def test_a_wrong_opening_is_found(
    tmp_path: Path, market: Callable[..., int], games: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    game = games[0]
    forged = opening_of(game, "def f(n):\n    return n")[game.id]
    change(tmp_path, Fact.OPENING, forged, f"name=x'{game.id.hex()}'")
    assert market("verify", game.id.hex()) == 1
    assert "the opening is not what the game commits to" in capsys.readouterr().out


def test_a_changed_game_and_a_void_one_are_called_so(
    tmp_path: Path, market: Callable[..., int], games: list[Game], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = games[:2]
    change(tmp_path, Fact.GAME, msgspec.structs.replace(first, question="x"), f"name=x'{first.id.hex()}'")
    assert market("verify", first.id.hex()) == 1
    change(tmp_path, Fact.RESULT, GameResult(void="too few jurors voted"), f"name=x'{second.id.hex()}'")
    assert market("verify", second.id.hex()) == 0
    assert "void: too few jurors voted" in capsys.readouterr().out
