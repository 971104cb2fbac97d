"""The ledger of the market: one connection, which several threads use."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from codezero.errors import MarketError
from codezero.market import ledger as ledger_module
from codezero.market.ledger import FILE, Fact, Ledger


def test_threads_that_ask_the_same_at_once_are_answered_whole(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / FILE)) as ledger:
        for number in range(50):
            ledger.put(Fact.VALUES, number, "a", b"n", number)

        def ask(_: int) -> tuple[int, int]:
            return ledger.count(Fact.VALUES), len(ledger.all(Fact.VALUES, int))

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(ask, range(2_000))) == {(50, 50)}


def test_a_damaged_file_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        ledger_module.sqlite3, "connect", lambda *given, **named: opened.append(connect(*given, **named)) or opened[-1]
    )
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(MarketError, match="cannot be used"):
        Ledger(tmp_path / FILE)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
