"""Games and reports: what decodes is well-formed, what is changed has another id, and each round has one meaning."""

import msgspec
import pytest
from builders.market import SALT, opening_of, peer, program_game, reports_on, value_game
from hypothesis import given
from hypothesis import strategies as st

from codezero.market.games import NONE, ONE, OVER, Game, GameKind, Opening, Phase, StepReport, phase

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


@pytest.mark.parametrize("game", [program_game(), value_game(), value_game(reference="")])
def test_a_game_comes_back_from_its_bytes_with_the_same_id(game: Game) -> None:
    assert decode(encode(game), type=Game) == game
    assert decode(encode(game), type=Game).id == game.id


@pytest.mark.parametrize(
    "change", [{"swarm": "other"}, {"opener": peer(3)}, {"round": 11}, {"question": "f(n) adds two"}, {"code": "x"}]
)
def test_another_game_has_another_id(change: dict[str, object]) -> None:
    game = program_game()
    assert msgspec.structs.replace(game, **change).id != game.id


@pytest.mark.parametrize(
    "change",
    [
        {"answers": ["right", "wrong", "perhaps"]}, {"answers": ["right"]}, {"opener": "nobody"}, {"round": -1},
        {"round": 2**53}, {"question": "x" * 70_000}, {"tests": []}, {"tests": ["t"] * 65}, {"code": ""},
        {"kind": "war"}, {"commitment": SALT}, {"extra": 1}, {"swarm": ""},
    ],
)  # fmt: skip
def test_a_malformed_program_game_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(msgspec.to_builtins(program_game(), builtin_types=(bytes,)) | change), type=Game)


@pytest.mark.parametrize(
    "change",
    [
        {"answers": ["1", "2"]}, {"answers": [NONE, "1"]}, {"answers": ["1", "1", NONE]},
        {"answers": ["1", NONE, NONE]},
        {"answers": [str(n) for n in range(8)] + [NONE]}, {"answers": ["1" * 1025, NONE]}, {"code": "x"},
        {"commitment": None}, {"commitment": b"short"}, {"tests": ["f(1)", "f(2)"]}, {"answers": []},
    ],
)  # fmt: skip
def test_a_malformed_value_game_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode(msgspec.to_builtins(value_game(), builtin_types=(bytes,)) | change), type=Game)


@pytest.mark.parametrize("q", [(ONE,), (5000, 5001), (-1, ONE + 1), (0.5, 0.5), (True,) * 2, (1250,) * 8 + (0,), ()])
def test_a_malformed_report_is_refused(q: tuple[float, ...]) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode({"game": SALT, "step": 0, "q": q}), type=StepReport)
    if type(sum(q)) is int and len(q) == 2:
        with pytest.raises(ValueError, match="whole numbers"):
            StepReport(SALT, 0, q)  # pyright: ignore[reportArgumentType]


def test_a_report_comes_back_from_its_bytes_and_is_small() -> None:
    (report,) = reports_on(value_game(), (9000, 600, 400))
    assert decode(encode(report), type=StepReport) == report
    assert len(encode(report)) <= 64


@given(st.binary(max_size=200))
def test_any_bytes_are_a_game_or_refused(text: bytes) -> None:
    for kind in (Game, StepReport, Opening):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
            decode(text, type=kind)


def test_a_commitment_hides_whether_a_game_is_a_sentinel() -> None:
    sentinel, real = value_game(), value_game(reference="")
    assert sentinel.commitment != real.commitment and len(encode(sentinel)) == len(encode(real))
    assert opening_of(sentinel)[sentinel.id].commitment == sentinel.commitment


def test_every_round_means_one_thing() -> None:
    meant = [phase(program_game(round=10), round) for round in range(9, 21)]
    steps = [(Phase.STEP, step) for step in range(4)]
    rest = [Phase.REVEALING, Phase.BALLOTS, Phase.APPEAL, Phase.APPEAL, Phase.OVER, Phase.OVER]
    assert meant == [(Phase.AHEAD, None), (Phase.ANNOUNCED, None), *steps, *((name, None) for name in rest)]
    assert phase(program_game(round=10), 10 + OVER)[0] is Phase.OVER
    assert GameKind("value") is GameKind.VALUE
