"""The ledger of the market: one connection, which several threads use, and a file that stays small."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from builders.market import a_game

from codezero.errors import MarketError
from codezero.market import ledger as ledger_module
from codezero.market.games import START
from codezero.market.ledger import FILE, GameResult, Ledger


def test_threads_that_ask_the_same_at_once_are_answered_whole(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / FILE)) as ledger:
        for number in range(50):
            ledger.add(a_game(round=number))

        def ask(_: int) -> tuple[int, int]:
            return len(ledger.since(0)), len(ledger.newest(100))

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(ask, range(200))) == {(50, 50)}


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(MarketError, match="cannot be used"):
        Ledger(tmp_path / FILE)


def test_a_game_is_settled_and_paid_once(tmp_path: Path) -> None:
    game = a_game()
    for expected in (True, False):
        with closing(Ledger(tmp_path / FILE)) as ledger:
            ledger.add(game)
            assert ledger.settle(game, GameResult(right=True, wins={"a": 5, "b": -2 * START}), {}) is expected
            assert (ledger.balance("a"), ledger.balance("b"), ledger.balance("c")) == (START + 5, 0, START)


def test_a_file_that_fills_drops_its_oldest_rounds_and_no_balance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_BYTES", 200_000)
    with closing(Ledger(tmp_path / FILE)) as ledger:
        ledger.add(a_game(round=1))
        ledger.settle(a_game(round=1), GameResult(wins={"a": 5}), {})
        for number in range(2, 120):
            game = a_game(round=number, code="x" * 15_000)
            ledger.add(game)
            assert ledger.add_report(game.id, "a", number + 1, 1)
            ledger.forget(number)
        kept = [row.game.round for row in ledger.since(0)]
        assert kept[-1] == 119 and len(kept) < 25 and ledger.balance("a") == START + 5
        assert not ledger.reports(a_game(round=2, code="x" * 15_000).id)
    assert (tmp_path / FILE).stat().st_size < 1_000_000
