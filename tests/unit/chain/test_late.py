"""A chain that is started beside training: what training sees of it before and after it is there."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codezero.chain.errors import ChainUnreachableError
from codezero.chain.upkeep import ChainParts, LateChain
from codezero.errors import ChainError, CheckpointError
from codezero.system.state import KnownRound


@dataclass
class Chain:
    """Open round 9; made when `ready` is set."""

    ready: threading.Event = field(default_factory=threading.Event)
    makers: list[str] = field(default_factory=list[str])
    points: list[tuple[int, float, str | None]] = field(default_factory=list[tuple[int, float, str | None]])
    away: bool = False
    failure: Exception | None = None

    def make(self) -> ChainParts:
        self.makers.append(threading.current_thread().name)
        self.ready.wait(30)
        if self.failure is not None:
            raise self.failure
        return ChainParts(self, self)

    def current_round(self) -> int:
        if self.away:
            raise ChainError("away")
        return 9

    def add(self, round_number: int, reward: float, vote: str | None) -> None:
        self.points.append((round_number, reward, vote))


@pytest.fixture
def chain() -> Iterator[Chain]:
    chain = Chain()
    yield chain
    chain.ready.set()


@pytest.fixture
def late(chain: Chain) -> LateChain:
    return LateChain(chain.make, KnownRound(4))


def test_nothing_is_made_before_the_first_iteration_is_over(chain: Chain, late: LateChain) -> None:
    assert late.current_round() == 4
    late.close()
    assert late.current_round() == 4
    late.add(4, 0.5, None)
    assert not chain.makers
    assert late.current_round() == 4
    chain.ready.set()
    late.close()
    assert len(chain.makers) == 1 and chain.makers[0].startswith("chain-start")


def test_points_of_a_single_iteration_are_kept(chain: Chain, late: LateChain) -> None:
    late.add(4, 0.5, None)
    chain.ready.set()
    late.close()
    assert chain.points == [(9, 0.5, None)]


def test_training_goes_on_in_the_last_known_round_while_the_chain_is_made(chain: Chain, late: LateChain) -> None:
    late.add(4, 0.5, None)
    late.add(4, 0.25, "peer")
    assert late.current_round() == 4 and not chain.points


def test_points_that_waited_count_in_the_round_that_is_open_and_none_is_lost(chain: Chain, late: LateChain) -> None:
    late.add(4, 0.5, None)
    late.add(4, 0.25, "peer")
    chain.ready.set()
    late.close()
    assert chain.points == [(9, 0.5, None), (9, 0.25, "peer")]
    assert late.current_round() == 9 and len(chain.makers) == 1
    late.add(9, 1.0, None)
    assert chain.points[-1] == (9, 1.0, None)


def test_a_chain_that_is_away_when_points_come_gets_them_later(chain: Chain, late: LateChain) -> None:
    chain.away = True
    late.add(4, 0.5, None)
    chain.ready.set()
    late.close()
    assert not chain.points
    chain.away = False
    late.add(4, 0.75, None)
    assert chain.points == [(9, 0.5, None), (4, 0.75, None)]


def test_why_there_is_no_chain_is_told_where_training_happens(chain: Chain, late: LateChain) -> None:
    chain.failure = ChainError("no chain")
    late.add(4, 0.5, None)
    assert late.current_round() == 4
    chain.ready.set()
    with pytest.raises(ChainError, match="no chain"):
        late.close()
    with pytest.raises(ChainError, match="no chain"):
        late.add(4, 0.5, None)


def test_a_chain_that_does_not_answer_in_time_is_made_again(chain: Chain, late: LateChain) -> None:
    chain.failure = ChainUnreachableError("slow")
    late.add(4, 0.5, None)
    chain.ready.set()
    while len(chain.makers) < 2:  # a round after each failure
        assert late.current_round() == 4
    late.add(4, 0.25, None)
    with pytest.raises(ChainUnreachableError, match="slow"):
        late.close()
    chain.failure = None
    late.close()
    assert chain.points == [(9, 0.5, None), (9, 0.25, None)]


def test_the_known_round_is_kept(tmp_path: Path) -> None:
    KnownRound(12).save(tmp_path)
    known = KnownRound()
    known.load(tmp_path)
    assert known.number == 12


@pytest.mark.parametrize("text", ["", "{}", '{"round": -1}', '{"round": "1"}', "\xff"])
def test_a_damaged_round_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "round.json").write_text(text, encoding="latin-1")
    with pytest.raises(CheckpointError, match=r"round\.json"):
        KnownRound().load(tmp_path)
