"""What a market's file says: lists, pages, worth, and what is said where there is nothing."""

import json
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from builders.market import ME, a_game, peer, small_ledger

from codezero.errors import MarketError
from codezero.inspection.market import OFF, read_game, read_games, read_market
from codezero.market.games import Score
from codezero.market.ledger import FILE, GameResult, Ledger, PlayerNote


def test_a_run_without_a_market_says_which_setting_it_lacks(tmp_path: Path) -> None:
    view = read_market(tmp_path)
    assert (view.why, view.balance, view.bets) == (OFF, None, [])
    assert read_games(tmp_path).games == [] and read_game(tmp_path, "ab") is None


def test_a_file_that_is_none_is_an_error_of_the_market(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"junk" * 500)
    with pytest.raises(MarketError, match="cannot be used: file is not a database"):
        read_market(tmp_path)


def test_an_own_bet_is_shown_with_its_reports_and_win(tmp_path: Path) -> None:
    *settled, live = small_ledger(tmp_path)
    view = read_market(tmp_path)
    assert (view.why, view.round) == ("", 100)
    (line,) = view.open
    assert (line.id, line.state, line.phase, line.rounds_left) == (live.id.hex(), "open", "step 2 of 4", 4)
    assert line.own == [7000, None, None, None] and line.evidence == [True, None, False] and line.win is None
    assert line.price and (line.price.steps, line.price.voters) == ([0.5, 0.5], 0)
    assert {bet.id for bet in view.bets} == {game.id.hex() for game in [*settled, live]}
    won = {bet.id: bet.win for bet in view.bets if bet.state == "settled"}
    assert len(won) == len(view.settled) == 3 and all(line.right for line in view.settled)
    assert view.balance == pytest.approx(100 + sum(win or 0 for win in won.values())) and view.balance != 100


def test_who_has_no_vote_is_told_why(tmp_path: Path) -> None:
    small_ledger(tmp_path)
    with closing(Ledger(tmp_path / FILE)) as ledger:
        for number, gains in {20: [1.0] * 30, 21: [-3.0] * 30, 22: [1.0] * 30}.items():
            for at, gain in enumerate(gains):
                opener = ME if number == 20 else peer(50) if number == 22 else peer(at)
                game = a_game(peer(at), round=number, question=f"{at}")
                ledger.add(game)
                ledger.settle(game, GameResult(), {peer(number): Score(opener, gain, gain)})
    reasons = {each.peer_id: each.no_vote for each in read_market(tmp_path).peers}
    assert reasons[peer(20)] == "" and reasons[peer(21)] == "worse than a peer that knows nothing"
    assert reasons[peer(3)] == reasons[peer(22)] == "0 of 20 games that count"  # those of few openers


def test_too_few_games_are_worth_nothing_and_enough_are_compared(tmp_path: Path) -> None:
    small_ledger(tmp_path / "few")
    few = read_market(tmp_path / "few").worth
    assert few.verdict == "the market is worth nothing here: 3 games with a known truth, 20 are needed"
    small_ledger(tmp_path / "many", games=24)
    many = read_market(tmp_path / "many")
    assert many.worth.verdict == "in 24 games the price was better than the own judge"
    assert many.worth.high is not None and many.worth.high < 0 and many.worth.brier["own"] == pytest.approx(0.4)
    assert len(many.settled) == 10


@pytest.mark.parametrize(
    ("result", "state"), [(None, "pending"), (GameResult(void="why"), "void"), (GameResult(right=False), "settled")]
)
def test_the_state_of_a_game_that_is_over(tmp_path: Path, result: GameResult | None, state: str) -> None:
    with closing(Ledger(tmp_path / FILE)) as ledger:
        ledger.add(a_game())
        ledger.write_note(PlayerNote(40, "nobody is there"))
        if result:
            ledger.settle(a_game(), result, {})
    assert read_games(tmp_path).games[0].state == state and read_market(tmp_path).why == "nobody is there"


def test_games_are_listed_by_whole_rounds(tmp_path: Path) -> None:
    small_ledger(tmp_path, games=8)  # four in each of two rounds, and one
    first = read_games(tmp_path, None, 4)
    assert [line.round for line in first.games] == [98] and first.older == 98
    second = read_games(tmp_path, first.older, 4)
    assert [line.round for line in second.games] == [90] * 4 and second.older == 90
    assert read_games(tmp_path, 90, 4).older is None


def test_a_game_in_full(tmp_path: Path) -> None:
    game = small_ledger(tmp_path)[0]
    page = read_game(tmp_path, game.id.hex()[:10])
    assert page is not None and page.line.id == game.id.hex()
    assert set(page.reports) == set(page.wins) == {peer(number) for number in range(7)}
    assert page.reports[peer(6)] == [8600] * 4 and page.wins[peer(6)] > 0
    assert json.loads(msgspec.json.encode(page))["names"][ME]
    assert read_game(tmp_path, "") is None and read_game(tmp_path, "%") is None
