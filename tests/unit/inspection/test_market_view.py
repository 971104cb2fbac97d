"""What a market's file says: lists, pages, worth, and what is said where there is nothing."""

import json
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from builders.market import ME, peer, program_game, small_ledger, value_game

from codezero.errors import MarketError
from codezero.inspection.market_types import OFF
from codezero.inspection.market_view import read_game, read_games, read_market
from codezero.market.ledger import FILE, NOTE, Fact, GameResult, Ledger, LedgerRow, PlayerNote
from codezero.market.pricing import Score


def test_a_run_without_a_market_says_which_setting_it_lacks(tmp_path: Path) -> None:
    view = read_market(tmp_path, ME)
    assert (view.why, view.balance, view.bets) == (OFF, None, [])
    assert read_games(tmp_path, ME).games == [] and read_game(tmp_path, ME, "ab") is None


def test_a_file_that_is_none_is_an_error_of_the_market(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"junk" * 500)
    with pytest.raises(MarketError, match="cannot be used: file is not a database"):
        read_market(tmp_path, ME)


def test_an_own_bet_is_shown_with_its_reports_stake_and_win(tmp_path: Path) -> None:
    *settled, live = small_ledger(tmp_path)
    view = read_market(tmp_path, ME)
    assert (view.why, view.round, view.counts) == ("", 100, {"settled": 3})
    (line,) = view.open
    assert (line.id, line.state, line.phase, line.rounds_left) == (live.id.hex(), "open", "step 2 of 4", 1)
    assert line.own == [[7000, 3000], None, None, None] and line.evidence == [True, None, False] and line.win is None
    assert {bet.id for bet in view.bets} == {game.id.hex() for game in [*settled, live]}
    won = {bet.id: bet.win for bet in view.bets if bet.state == "settled"}
    assert len(won) == len(view.settled) == 3 and all(bet.stake == 10 for bet in view.bets)
    assert view.balance == pytest.approx(100 + sum(win or 0 for win in won.values())) and view.balance != 100


def test_who_has_no_vote_is_told_why(tmp_path: Path) -> None:
    small_ledger(tmp_path)
    with closing(Ledger(tmp_path / FILE)) as ledger:
        for number, gains in {20: [1.0] * 30, 21: [-3.0] * 30, 22: [1.0] * 30}.items():
            for at, gain in enumerate(gains):
                opener = ME if number == 20 else peer(50) if number == 22 else peer(at)
                game = msgspec.structs.replace(program_game(round=number), question=f"{at}")
                scores = {peer(number): Score(opener, gain, gain)}
                ledger.settle(LedgerRow(number, peer(40), game.id, GameResult()), {}, scores)
    reasons = {each.peer_id: each.no_vote for each in read_market(tmp_path, ME).peers}
    assert reasons[peer(20)] == "" and reasons[peer(21)] == "worse than a peer that knows nothing"
    assert reasons[peer(3)] == reasons[peer(22)] == "0 of 20 games that count"  # those of one opener


def test_too_few_games_are_worth_nothing_and_enough_are_compared(tmp_path: Path) -> None:
    small_ledger(tmp_path / "few")
    few = read_market(tmp_path / "few", ME).worth
    assert few.verdict == "the market is worth nothing here: 3 games with a known truth, 20 are needed"
    small_ledger(tmp_path / "many", games=24)
    many = read_market(tmp_path / "many", ME)
    assert many.worth.verdict == "in 24 games the price was better than the own judge"
    assert many.worth.high is not None and many.worth.high < 0 and many.worth.brier["own"] == pytest.approx(0.4)
    (bin,) = many.reliability
    assert (bin.games, bin.right, bin.high) == (24, 1.0, 1.0) and 0.8 < bin.price < 0.9 and bin.low > 0.8
    assert len(many.settled) == 10


@pytest.mark.parametrize(
    ("result", "state"),
    [(None, "pending"), (GameResult(void="why"), "void"), (GameResult(answer=0, contested=True), "disputed")],
)
def test_the_state_of_a_game_that_is_over(tmp_path: Path, result: GameResult | None, state: str) -> None:
    with closing(Ledger(tmp_path / FILE)) as ledger:
        place = 10, peer(40), value_game().id
        ledger.put(Fact.GAME, *place, value_game())
        ledger.put(Fact.NOTE, 0, "", NOTE, PlayerNote(40, "nobody is there", {}))
        if result:
            ledger.put(Fact.RESULT, *place, result)
    assert read_games(tmp_path, ME).games[0].state == state and read_market(tmp_path, ME).why == "nobody is there"


def test_games_are_listed_by_whole_rounds(tmp_path: Path) -> None:
    small_ledger(tmp_path, games=8)  # four in each of two rounds, and one
    first = read_games(tmp_path, ME, None, 4)
    assert [line.round for line in first.games] == [98] and first.older == 98
    second = read_games(tmp_path, ME, first.older, 4)
    assert [line.round for line in second.games] == [90] * 4 and second.older == 90
    assert read_games(tmp_path, ME, 90, 4).older is None


def test_a_game_in_full(tmp_path: Path) -> None:
    game = small_ledger(tmp_path)[0]
    page = read_game(tmp_path, ME, game.id.hex()[:10])
    assert page is not None and page.line.id == game.id.hex()
    assert set(page.reports) == {peer(number) for number in range(7)} and page.hidden == {peer(6): [2]}
    assert page.ballots == {peer(number): 0 for number in range(1, 6)} and sum(page.wins.values()) != 0
    assert (page.values, page.confirmed, page.reference) == (["2"], "2", "def f(n):\n    return n + 1")
    assert json.loads(msgspec.json.encode(page))["names"][ME]
    assert read_game(tmp_path, ME, "") is None and read_game(tmp_path, ME, "%") is None
