"""Players settle by themselves, once, whatever is lost, killed or hostile; and what people are shown adds up.

Does not show: real peers (`tests/e2e/test_market.py`), or that the embedded judge is worth anything."""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from builders.market import Table, a_game, peer

from codezero.errors import SandboxError
from codezero.inspection.market import read_game, read_games, read_market
from codezero.market.games import MOST_GAMES, OVER, START, Evidence, Game, GameReport, MarketPost, standing
from codezero.market.ledger import GameRow
from codezero.market.play import NOT_PLAYED, PATIENCE, UNDECIDED
from codezero.types import Post

ROUNDS, ENEMY = 14, "Qm" + "z" * 44


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Eight players, the last two of whom only judge; one judges badly."""
    table = Table(
        tmp_path_factory.mktemp("played"), execute=lambda n: n < 6, skills=lambda n: 0.2 if n == 5 else 0.9,
        settings={"games": 6},
    )  # fmt: skip
    table.turn(ROUNDS)
    yield table
    table.close()


def results(table: Table, number: int) -> dict[bytes, GameRow]:
    with contextlib.closing(table.ledger(number)) as ledger:
        return {row.game.id: row for row in ledger.newest(10_000, settled=True)}


def test_all_who_execute_settle_the_same_games_alike_and_rightly(played: Table) -> None:
    ended = [results(played, number) for number in range(6)]
    decided = 0
    for name in set.intersection(*(set(each) for each in ended)):
        wanted = [row.result for each in ended if (row := each[name]).result and not row.result.void]
        decided += len(wanted)
        for result in wanted:
            assert result.right is ended[0][name].game.code.endswith("+ 1") and result.wins == wanted[0].wins
    assert decided > 20


def test_balances_are_the_sum_of_what_was_won_and_openers_win_nothing(played: Table) -> None:
    total = Counter[str]()
    for row in results(played, 0).values():
        assert row.result
        total.update(row.result.wins)
        assert row.game.opener not in row.result.wins
    with contextlib.closing(played.ledger(0)) as ledger:
        balances = ledger.balances()
    assert balances and all(balances[name] == START + total[name] for name in balances)
    assert balances[peer(1)] > balances[peer(5)]  # a good judge has won more than a bad one


def test_reports_begin_with_the_judge_and_end_with_what_was_executed(played: Table) -> None:
    with contextlib.closing(played.ledger(0)) as ledger:
        rows = [ledger.reports(name)[peer(1)] for name in results(played, 0) if peer(1) in ledger.reports(name)]
        bets = [ledger.reports(name)[peer(7)] for name in results(played, 0) if peer(7) in ledger.reports(name)]
    assert (
        rows and all(last in (200, 9800) for *_, last in rows) and any(first not in (200, 9800) for first, *_ in rows)
    )
    assert bets and all(q is not None for steps in bets for q in steps)


def test_what_people_are_shown_is_what_was_played(played: Table) -> None:
    folder = played.folder / "0"
    view = read_market(folder)
    assert view.why == "" and view.open and view.bets and view.settled and len(view.peers) == 8
    assert json.loads(msgspec.json.encode(view))["round"] == ROUNDS
    line = next(line for line in read_games(folder, None, 1000).games if line.state == "settled" and line.evidence)
    page = read_game(folder, line.id)
    assert page and len(page.reports) >= 5 and page.wins.keys() <= page.reports.keys() and None not in line.evidence
    text = (folder / "prg_record.txt").read_text().splitlines()
    assert len(text) == sum(bet.state in ("settled", "void") for bet in read_market(folder).bets)
    assert all(("program" in line and " -> right, " in line) or " -> wrong, " in line for line in text)


def test_without_execution_the_judge_decides_and_a_judge_that_is_not_sure_decides_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path, 3, execute=lambda n: False, skills=lambda n: 0.5 if n == 2 else 0.9)
    table.turn(OVER + 3)
    assert {row.result.right for row in results(table, 0).values() if row.result} == {True, False}
    assert all(row.result and not row.result.brier for row in results(table, 0).values())
    undecided = [row.result for row in results(table, 2).values()]
    assert undecided and {result and (result.right, result.void, len(result.wins)) for result in undecided} == {
        (None, UNDECIDED, 0)
    }
    with contextlib.closing(table.ledger(2)) as ledger:
        assert not ledger.balances() and not ledger.scores()
    table.close()


def test_a_sandbox_that_cannot_tell_makes_no_attempt_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path, 2, execute=lambda n: n == 0)
    table.turn(OVER - 1)
    fails: list[Any] = []

    def broken(*given: Any) -> Any:
        fails.append(given)
        raise SandboxError("the container engine is gone")

    monkeypatch.setattr(table.players[0]._sandbox, "run", broken)  # pyright: ignore[reportPrivateUsage]
    table.players[0]._executions.clear()  # pyright: ignore[reportPrivateUsage]
    for _ in range(PATIENCE + 3):
        table.round += 1
        with contextlib.suppress(SandboxError):
            table.players[0].play(table.round, [])
    ended = [row.result for row in results(table, 0).values()]
    assert fails and ended and {(result.right, result.void) for result in ended if result} == {(None, UNDECIDED)}
    table.close()


def send(table: Table, round: int, post: MarketPost, sender: str = ENEMY) -> None:
    table.hub.waiting[table.names[0]].append(Post(sender, round, msgspec.msgpack.encode(post)))


def reports_of(table: Table, game: Game, sender: str = ENEMY) -> list[int | None]:
    with contextlib.closing(table.ledger(0)) as ledger:
        return list(ledger.reports(game.id).get(sender, []))


def test_a_report_counts_once_a_step_and_neither_late_nor_early(tmp_path: Path) -> None:
    table, game = Table(tmp_path, 1), a_game(round=10)
    send(table, 10, MarketPost((game,)), game.opener)
    for now, number, q in ((10, 10, 1), (11, 11, 2), (11, 11, 3), (11, 13, 4), (13, 12, 5), (14, 12, 6), (15, 15, 7)):
        send(table, number, MarketPost(reports=(GameReport(game.id, q),)))
        table.players[0].play(now, [])
    assert reports_of(table, game) == [2, 5, None, None]
    send(table, 14, MarketPost(reports=(GameReport(game.id, 8), GameReport(bytes(32), 8))))
    table.players[0].play(14, [])
    assert reports_of(table, game) == [2, 5, None, 8]
    table.players[0].play(16, [])  # it is settled
    send(table, 13, MarketPost(reports=(GameReport(game.id, 9),)))
    table.players[0].play(14, [])
    assert reports_of(table, game) == [2, 5, None, 8]
    table.close()


def test_a_hostile_player_changes_no_other_s_record_and_fills_no_file(tmp_path: Path) -> None:
    table, game = Table(tmp_path, 2, settings={"games": 4}), a_game(round=2)
    send(table, 2, MarketPost((game,)), game.opener)
    for number in range(50):
        games = tuple(a_game(ENEMY, 2, question=f"{number} {n}", code="x = 1") for n in range(2 * MOST_GAMES))
        send(table, 2, MarketPost(games, evidence=(Evidence(game.id, (False,)),)))
        table.hub.waiting[table.names[0]].append(Post(ENEMY, 2, b"\xff" * 50))
    send(table, 2, MarketPost((game,)))  # of somebody else
    assert table.players[0].play(2, [])["market/refused"] == 51
    with contextlib.closing(table.ledger(0)) as ledger:
        rows = ledger.since(0)
        assert Counter(row.game.opener for row in rows) == {ENEMY: MOST_GAMES, game.opener: 1}
        assert not any(row.evidence for row in rows)  # of another's game
    table.players[0].play(3, [])
    assert len(reports_of(table, game, table.names[0])) == 4  # it is played in spite of the flood
    table.players[0].play(2 + OVER, [])
    ended = Counter((row.result.void, row.game.opener) for row in results(table, 0).values() if row.result)
    assert ended[NOT_PLAYED, ENEMY] == MOST_GAMES - 3
    with contextlib.closing(table.ledger(0)) as ledger:
        assert ledger.balance(ENEMY) == START and ENEMY not in ledger.scores()
    table.close()


def test_a_post_is_sent_again_only_when_it_says_more(tmp_path: Path) -> None:
    table = Table(tmp_path, 2, execute=lambda number: False)
    table.turn(3)
    sent = table.hub.posts
    table.players[0].play(table.round, [])
    table.players[0].play(table.round, [])
    assert sent and table.hub.posts == sent
    table.close()


def test_all_together_open_about_as_many_games_as_each_plays(tmp_path: Path) -> None:
    table = Table(tmp_path, 8, execute=lambda number: False, settings={"games": 2})
    table.turn(20, turns=1)
    with contextlib.closing(table.ledger(0)) as ledger:
        opened = sum(row.game.round > 2 for row in ledger.since(0))
    assert 0 < opened < 80  # of 144 that eight players could open
    table.close()


def test_who_is_alone_is_told_why_there_are_no_bets(tmp_path: Path) -> None:
    table = Table(tmp_path, 1)
    table.turn()
    assert read_market(tmp_path / "0").why == "no other player was heard of yet"
    table.close()


def test_a_slow_judge_settles_one_game_at_a_time(tmp_path: Path) -> None:
    table, ticks = Table(tmp_path, 1, execute=lambda n: False), iter(range(10_000))
    for number in range(3):
        game = a_game(peer(30 + number), round=10)
        send(table, 10, MarketPost((game,)), game.opener)
    table.players[0].play(10, [])
    table.players[0]._clock = lambda: 10.0 * next(ticks)  # pyright: ignore[reportPrivateUsage]
    counts = [table.players[0].play(number, [])["market/settled"] for number in (16, 16, 17)]
    assert counts == [1, 2, 3]
    table.close()


class Killed(BaseException):
    pass


def test_a_kill_at_any_write_pays_nothing_twice_and_changes_no_report(tmp_path: Path) -> None:
    """One of four dies once a round, before or after a write that is drawn; what the others settle is not touched."""
    table, chance, killed = Table(tmp_path, 4), Random(7), Counter[str]()

    def deadly(call: Any, kind: str, left: int) -> Any:
        def wrapped(*values: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                killed[kind] += 1
                if chance.random() < 0.5:
                    call(*values, **named)
                raise Killed
            return call(*values, **named)

        return wrapped

    for kind in ("add", "add", *["add_report", "_run"] * 6, *["settle"] * 5):
        part = table.players[2]._ledger  # pyright: ignore[reportPrivateUsage]
        setattr(part, kind, deadly(getattr(part, kind), kind, chance.randrange(1, 30) if kind == "_run" else 1))
        with contextlib.suppress(Killed):
            table.round += 1
            table.players[2].play(table.round, table.judged(2))
        table.round -= 1
        table.restart(2)
        table.turn()
    assert set(killed) >= {"add", "add_report", "_run", "settle"}, killed
    total, others = Counter[str](), results(table, 0)
    for name, row in results(table, 2).items():
        assert row.result and (name not in others or row.result.right is others[name].result.right)  # pyright: ignore
        total.update(row.result.wins)
    with contextlib.closing(table.ledger(2)) as ledger, contextlib.closing(table.ledger(0)) as other:
        balances = ledger.balances()
        assert balances and all(balances[name] == START + total[name] for name in balances)
        for name in others:
            seen, own = other.reports(name).get(peer(2), []), ledger.reports(name).get(peer(2), [])
            assert all(q is None or q == sent for q, sent in zip(seen, own, strict=bool(seen)))
            assert not seen or standing(own) is not None
    table.close()
