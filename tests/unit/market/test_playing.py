"""Players settle alike, once, whatever is lost, killed or hostile; and what people are shown adds up.

Does not show: real peers and chains (`tests/e2e/test_market.py`), or that the embedded judge is worth anything.
"""

import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from builders.market import program_game
from builders.market_play import Table
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import ConfigError, MarketError
from codezero.inspection.market_view import read_game, read_games, read_market, verify_game
from codezero.market import ledger as ledger_module
from codezero.market.closing import Cast
from codezero.market.games import GameKind, MarketPost, Opening, Reveal, StepReport, is_call, parse_post
from codezero.market.ledger import FILE, Fact, GameResult, Ledger, LedgerRow
from codezero.market.payout import START, Sealed, seal_root
from codezero.types import Post

ROUNDS = 14


def results(table: Table, number: int) -> dict[bytes, GameResult]:
    with contextlib.closing(Ledger(table.folder / str(number) / FILE, read_only=True)) as ledger:
        return {row.name: row.data for row in ledger.all(Fact.RESULT, GameResult)}


def wins(table: Table, number: int) -> dict[bytes, tuple[Any, ...]]:
    return {
        name: (row.answer, sorted(row.wins.items())) for name, row in results(table, number).items() if not row.void
    }


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Six players, four of whom execute; posts are lost now and then, one player is killed and begins again."""
    table, chance = Table(tmp_path_factory.mktemp("market"), count=6, execute=lambda n: n < 4), Random(3)
    table.hub.lost = lambda sender, receiver: chance.random() < 0.05
    for number in range(ROUNDS):
        if number == 5:
            table.restart(2)
        table.turn()
    yield table
    table.close()


@pytest.mark.slow
def test_all_players_settle_the_same_games_alike(played: Table) -> None:
    settled = [wins(played, number) for number in range(played.count)]
    assert len(settled[0]) > 10
    shared = [name for name in settled[0] if all(name in each for each in settled)]
    assert len(shared) > 8 and all(each[name] == settled[0][name] for each in settled for name in shared)


def test_right_answers_are_paid_and_balances_are_their_sum(played: Table) -> None:
    assert all(row.truth in (None, row.answer) for row in results(played, 0).values() if not row.void)
    ledger = played.players[0]._ledger  # pyright: ignore[reportPrivateUsage]
    sums = Counter[str]()
    for row in results(played, 0).values():
        sums.update(row.wins)
    assert sums and all(ledger.balance(peer) == START + win for peer, win in sums.items())


def test_an_opener_wins_nothing_with_its_own_game(played: Table) -> None:
    ledger = played.players[0]._ledger  # pyright: ignore[reportPrivateUsage]
    rows = ledger.all(Fact.RESULT, GameResult)
    assert rows and all(not row.data.wins.get(row.peer) for row in rows)


def test_sentinels_are_opened_and_settle_as_their_reference_says(played: Table) -> None:
    ledger = played.players[0]._ledger  # pyright: ignore[reportPrivateUsage]
    games = {row.name: row.data for row in ledger.all(Fact.GAME, Any)}
    kinds = {games[name]["kind"] for name, row in results(played, 0).items() if not row.void}
    assert kinds == {"program", "value"}
    assert any(row.data.reference for row in ledger.all(Fact.OPENING, Opening))


def test_a_lost_game_does_not_settle_twice_after_a_kill(played: Table) -> None:
    ledger = played.players[2]._ledger  # pyright: ignore[reportPrivateUsage]
    before = {peer: ledger.balance(peer) for peer in played.names}
    row = ledger.all(Fact.RESULT, GameResult)[0]
    assert not ledger.settle(row, dict.fromkeys(played.names, 1000), {})
    assert before == {peer: ledger.balance(peer) for peer in played.names}


def test_verify_holds_on_every_player_and_finds_what_was_changed(played: Table, tmp_path: Path) -> None:
    names = [name.hex() for name, row in results(played, 0).items() if not row.void]
    folders = [played.folder / str(number) for number in range(played.count)]
    checks = [verify_game(folder, name) for folder in folders for name in names]
    assert [check.words for check in checks if check and not check.holds] == []
    name = next(name for name, row in results(played, 0).items() if row.wins)
    source = played.players[0]._ledger  # pyright: ignore[reportPrivateUsage]
    for change in ("wins", "report", "game"):
        (folder := tmp_path / change).mkdir()
        with contextlib.closing(Ledger(folder / FILE)) as copy:
            source._connection.backup(copy._connection)  # pyright: ignore[reportPrivateUsage]
            if change == "wins":
                (row,) = copy.named(Fact.RESULT, name, GameResult)
                peer = next(iter(row.data.wins))
                altered = msgspec.structs.replace(row.data, wins=row.data.wins | {peer: row.data.wins[peer] + 1})
                copy.put(Fact.RESULT, *row[:3], altered, replace=True)
            elif change == "report":
                (game,) = copy.named(Fact.GAME, name, Any)
                row = copy.all(Fact.REVEAL, Sealed, [game.round + 1])[0]
                copy.put(Fact.REVEAL, *row[:3], (bytes(32), row.data[1]), replace=True)
            else:
                (row,) = copy.named(Fact.GAME, name, Any)
                copy.put(Fact.GAME, *row[:3], row.data | {"question": "another"}, replace=True)
        check = verify_game(folder, name.hex())
        assert check is not None and not check.holds, change


def test_what_people_are_shown_is_what_was_played(played: Table) -> None:
    folder, me = played.folder / "5", played.names[5]
    view = read_market(folder, me)
    assert view.why == "" and view.round == ROUNDS and view.open and view.settled and view.bets
    assert view.balance == pytest.approx(played.players[5]._ledger.balance(me) / 1000)  # pyright: ignore
    assert {peer.peer_id for peer in view.peers} >= set(played.names) - {me}
    page = read_games(folder, me, None, 10)
    line = next(line for line in view.bets if line.win is not None)
    game = read_game(folder, me, line.id[:16])
    assert page.games and game is not None and me in game.reports and game.ballots
    assert read_game(folder, me, "zz") is None
    lines = (folder / "prg_record.txt").read_text().splitlines()
    assert len(lines) >= 5 and all(" -> " in text and "round" in text for text in lines)


def test_without_a_chain_records_are_kept_and_points_are_not(tmp_path: Path) -> None:
    table = Table(tmp_path, count=3, chained=False)
    for _ in range(12):
        table.turn(turns=1)
    rows = results(table, 0)
    assert rows and all("no chain" in row.void for row in rows.values()) and not any(row.wins for row in rows.values())
    assert table.players[0]._ledger.scores()  # pyright: ignore[reportPrivateUsage]
    assert "no market" in read_market(tmp_path / "0", table.names[0]).why
    table.close()


def test_nothing_is_executed_and_nothing_stuck_where_nobody_may_execute(tmp_path: Path) -> None:
    table = Table(tmp_path, count=3, execute=lambda _: False)
    for _ in range(12):
        table.turn(turns=1)
    rows = results(table, 0)
    assert rows and {row.void for row in rows.values()} == {"too few jurors voted"}
    table.close()


@pytest.mark.slow
def test_a_chain_that_is_away_delays_settling_and_loses_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path, count=6, execute=lambda n: n < 4)
    for number in range(15):
        table.chain.down = 9 <= number < 12
        table.turn(turns=1)
    settled = [wins(table, number) for number in range(6)]
    assert settled[0] and all(each == settled[0] for each in settled)
    table.close()


def hostile(**fields: Any) -> bytes:
    return msgspec.msgpack.encode({"root": None} | fields)


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc1", hostile(games=[program_game()]), hostile(reveals=[Reveal(9, bytes(32), ())] * 2),
        hostile(reveals=[Reveal(2, bytes(32), ())]), hostile(reveals=[Reveal(10, bytes(32), ())]),
        hostile(unknown=1), b"\x91" * 100_000,
    ],
)  # fmt: skip
def test_a_post_that_breaks_a_rule_is_refused_whole(payload: bytes) -> None:
    with pytest.raises(MarketError):
        parse_post(payload, peer="Qm" + "z" * 44, round=10, swarm="swarm")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_post_or_refused(payload: bytes) -> None:
    with contextlib.suppress(MarketError):
        assert isinstance(parse_post(payload, peer="Qm" + "z" * 44, round=10, swarm="swarm"), MarketPost)


def test_a_hostile_player_changes_no_other_s_record_and_fills_no_file(tmp_path: Path) -> None:
    table = Table(tmp_path, count=2)
    table.turn()
    player, enemy = table.players[0], "Qm" + "z" * 44
    inbox = table.hub.waiting[table.names[0]]
    root = seal_root(enemy, bytes(32), ())
    for salt in range(50):  # many reveals of one round, openings of others' games, garbage
        inbox.append(Post(enemy, 2, msgspec.msgpack.encode(MarketPost(reveals=(Reveal(1, bytes([salt]) * 32, ()),)))))
        inbox.append(Post(enemy, 2, b"\xff" * 50))
    game = player._ledger.all(Fact.GAME, Any)[0]  # pyright: ignore[reportPrivateUsage]
    forged = Opening(game.name, bytes(32), "def f(n): return 1")
    inbox.append(Post(enemy, 2, msgspec.msgpack.encode(MarketPost(root=root, openings=(forged,)))))
    table.turn()
    ledger = player._ledger  # pyright: ignore[reportPrivateUsage]
    kept = [row for fact in (Fact.REVEAL, Fact.LATE) for row in ledger.all(fact, Sealed) if row.peer == enemy]
    assert len(kept) <= 4 and not ledger.all(Fact.OPENING, Opening) and ledger.balance(enemy) == START
    assert player.play(table.chain.open, [])["market/refused"] == 50
    table.close()


def test_the_same_root_is_anchored_again_after_a_kill(tmp_path: Path) -> None:
    table = Table(tmp_path, count=2)
    for number in range(5):  # the chain asserts that there is one root a round
        table.turn(turns=2)
        table.restart(number % 2)
        for player in table.players:
            player.play(table.chain.open, [])
    table.close()


def test_a_post_is_sent_again_only_when_it_says_more(tmp_path: Path) -> None:
    table = Table(tmp_path, count=2, execute=lambda number: False)
    for _ in range(3):
        table.turn(turns=1)
    sent, player = table.hub.bytes, table.players[0]
    player.play(table.chain.open, [])
    player.play(table.chain.open, [])
    assert sent and table.hub.bytes == sent
    table.close()


def test_all_together_open_about_as_many_games_as_each_plays(tmp_path: Path) -> None:
    table = Table(tmp_path, count=8, execute=lambda number: False, settings={"games": 4})
    for _ in range(10):
        table.turn(turns=1)
    opened = [row.round for row in table.players[0]._ledger.all(Fact.GAME, Any)]  # pyright: ignore[reportPrivateUsage]
    assert 0 < sum(number > 2 for number in opened) / 8 < 8  # of 8 players who open up to 2 each
    table.close()


def test_who_looks_is_told_that_two_accounts_are_no_jury(tmp_path: Path) -> None:
    table = Table(tmp_path, count=2, execute=lambda number: False)
    for _ in range(4):
        table.turn()
    why = read_market(tmp_path / "0", table.names[0]).why
    assert why == "no jury, so no points: the players are of 2 accounts, and 3 are needed"
    table.close()


def test_a_file_that_fills_drops_its_oldest_rounds_and_no_balance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "MOST_BYTES", 200_000)
    with contextlib.closing(Ledger(tmp_path / FILE)) as ledger:
        ledger.settle(LedgerRow(1, "a", bytes(32), GameResult()), {"a": 5}, {})
        for number in range(1, 120):
            ledger.put(Fact.EVIDENCE, number, "a", bytes(32), "x" * 20_000)
            ledger.forget(number)
        kept = [row.round for row in ledger.all(Fact.EVIDENCE, str)]
        assert kept[-1] == 119 and len(kept) < 20 and ledger.balance("a") == START + 5
    assert (tmp_path / FILE).stat().st_size < 1_000_000


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_a_kill_at_any_write_pays_nothing_twice_and_anchors_one_root(tmp_path: Path) -> None:
    """One of six dies once a round, before or after a write that is drawn; what the others settle is not touched."""
    table, chance, killed = Table(tmp_path, count=6, execute=lambda n: n < 4), Random(7), Counter[str]()

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

    for kind in ("put", "put", "anchor", "put", "anchor", "put", "put", "vote", "vote", *(["settle"] * 5)):
        player = table.players[2]
        part = player._ledger if kind in ("put", "settle") else player._chain  # pyright: ignore[reportPrivateUsage]
        setattr(part, kind, deadly(getattr(part, kind), kind, chance.randrange(1, 30) if kind == "put" else 1))
        with contextlib.suppress(Killed):
            table.turn(turns=1, playing=lambda number: number == 2)
        table.chain.open -= 1
        table.restart(2)
        table.turn()
    assert set(killed) >= {"put", "settle", "anchor"}, killed
    kept = [wins(table, number) for number in range(6)]
    assert kept[2] and all(kept[2][name] == kept[0][name] for name in {*kept[0]} & {*kept[2]})
    total = Counter[str]()
    for row in results(table, 2).values():
        total.update(row.wins)
    with contextlib.closing(Ledger(tmp_path / "2" / FILE, read_only=True)) as ledger:
        balances = ledger.balances()
    assert all(balances[name] == START + total[name] for name in balances)
    table.close()


@pytest.mark.parametrize(("text", "yes"), [("f(1)", True), ("f([1, 2], 'x')", True), ("f(g(1))", False),
                                           ("f(1) + f(2)", False), ("f(x)", False), ("f(*[1])", False)])  # fmt: skip
def test_a_question_of_a_game_is_one_call_with_literals(text: str, yes: bool) -> None:
    assert is_call(text) is yes


def test_a_report_is_of_whole_basis_points_and_json_shows_the_market(played: Table) -> None:
    seals = played.players[5]._ledger.all(Fact.SEAL, Sealed)  # pyright: ignore[reportPrivateUsage]
    reports: list[StepReport] = [report for row in seals for report in row.data[1]]
    assert reports and all(sum(report.q) == 10_000 for report in reports)
    assert json.loads(msgspec.json.encode(read_market(played.folder / "5", played.names[5])))["round"] == ROUNDS
    assert GameKind.VALUE in {GameKind(row.data["kind"]) for row in played.players[5]._ledger.all(Fact.GAME, Any)}  # pyright: ignore
    cast = played.players[0]._ledger.all(Fact.BALLOT, Cast)  # pyright: ignore[reportPrivateUsage]
    assert cast and all(len(row.data[0]) == len(row.data[1]) for row in cast)


def test_confirming_without_executing_is_refused_by_name() -> None:
    from contextlib import ExitStack
    from types import SimpleNamespace

    from codezero.settings import compose
    from codezero.wiring.market import build_market

    config = compose(["market.enabled=true", "market.confirm=true", "swarm.kind=hivemind"])
    nothing: Any = SimpleNamespace()
    with ExitStack() as stack, pytest.raises(ConfigError, match=r"market\.confirm"):
        build_market(config, nothing, nothing, nothing, Path(), stack)
