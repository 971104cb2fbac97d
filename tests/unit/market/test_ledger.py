"""The ledger of the market: one connection, which several threads use."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

from codezero.market.ledger import FILE, Fact, Ledger


def test_threads_that_ask_the_same_at_once_are_answered_whole(tmp_path: Path) -> None:
    with closing(Ledger(tmp_path / FILE)) as ledger:
        for number in range(50):
            ledger.put(Fact.VALUES, number, "a", b"n", number)

        def ask(_: int) -> tuple[int, int]:
            return ledger.count(Fact.VALUES), len(ledger.all(Fact.VALUES, int))

        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(ask, range(2_000))) == {(50, 50)}
