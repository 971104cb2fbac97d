"""Rows that a function of one's own returns, as a source, and what is made of one that fails."""

from pathlib import Path

import pytest
from builders.data_sets import mbpp

from codezero.config import DataConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import ConfigError, ProblemError
from codezero.problems import hub
from codezero.problems.dedup import Novelty
from codezero.problems.held_back import canary_rows
from codezero.problems.hub import open_rows
from codezero.problems.stream import MixedStream

ROWS = f"""
from itertools import count

def rows():
    return {[mbpp(number) for number in range(40)]!r}

def endless():
    yield from ({{"n": n}} for n in count())

def failing():
    yield {{"n": 0}}
    raise KeyError("gone")

def strange():
    return [7]

number = 7
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(ROWS)


def test_they_are_a_source_like_any_other() -> None:
    stream = MixedStream(CodeEnvironment(), DataConfig(sources=["own.py:rows:3"]), seed=0, peer_id="a", batch=8)
    assert stream.name == "own.py:rows:3" and stream.probe() == ""
    drawn = [problem.id for _ in range(4) for problem in stream.next_batch([])]
    assert len({*drawn}) == 32 and stream.metrics()["problems/drawn_own.py:rows"] == 32


def test_a_resumed_run_goes_on_with_them(tmp_path: Path) -> None:
    def begun() -> MixedStream:
        return MixedStream(CodeEnvironment(), DataConfig(sources=["own.py:rows"]), seed=0, peer_id="a", batch=8)

    one, other = begun(), begun()
    one.next_batch([])
    one.save(tmp_path)
    other.load(tmp_path)
    assert one.next_batch([]) == other.next_batch([])


def test_the_judge_can_be_measured_on_them() -> None:
    assert canary_rows("own.py:rows", withheld=Novelty(), seconds=10)


def test_no_more_are_taken_than_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MAX_ROWS", 5)
    rows = open_rows("own.py:endless")
    assert list(rows.rows(rows.name, 3)) == [{"n": 3}, {"n": 4}]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("failing", "own.py:failing raised KeyError: 'gone'"),
        ("strange", "returned a row of type int; a row is a dict"),
    ],
)
def test_one_that_fails_is_a_source_that_cannot_be_read(name: str, words: str) -> None:
    rows = open_rows(f"own.py:{name}")
    with pytest.raises(ProblemError, match=words):
        list(rows.rows(rows.name, 0))
    stream = MixedStream(CodeEnvironment(), DataConfig(sources=[f"own.py:{name}"]), seed=0, peer_id="a", batch=2)
    assert len(stream.next_batch([])) == 2 and words in stream.stand_ins


@pytest.mark.parametrize("name", ["own.py:nothing", "away.py:rows", "own.py:number"])
def test_one_that_is_not_there_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^data.sources={name}"):
        MixedStream(CodeEnvironment(), DataConfig(sources=[name]), seed=0, peer_id="a", batch=2)
    with pytest.raises(ConfigError):
        canary_rows(name, withheld=Novelty(), seconds=10)
