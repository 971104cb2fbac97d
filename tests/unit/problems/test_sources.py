"""A data set or a function of one's own as a source: each peer's own order, nothing twice, resumed as left."""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from builders.data_sets import contests, mbpp, write

from codezero.config import DataConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import ConfigError, ProblemError
from codezero.problems import sources as module
from codezero.problems.filters import Novelty, Screen
from codezero.problems.sources import DataSource, canary_rows, open_rows
from codezero.problems.stream import MixedStream
from codezero.types import Problem, Source


class Memory:
    """Shards in memory, that can be lost, slow, or laid out anew."""

    def __init__(self, *shards: list[dict], remote: bool = False) -> None:
        self.parts = {f"shard {number}": rows for number, rows in enumerate(shards)}
        self.remote = remote
        self.lost, self.opened = False, 0
        self.gate = threading.Event()
        self.gate.set()

    def shards(self) -> list[str]:
        self.gate.wait()
        return list(self.unlost(self.parts))

    def rows(self, shard: str, start: int) -> Iterator[dict]:
        self.opened += 1
        yield from self.unlost(self.parts[shard][start:])

    def unlost(self, parts: Iterable) -> Iterator:
        for part in parts:
            if self.lost:
                raise ProblemError("the set cannot be read: lost")
            yield part


def shelf(rows: Memory, peer: str = "a", fits=lambda _: True, wait_seconds: float = 10.0) -> DataSource:
    return DataSource("set", rows, f"0 {peer}", Screen(CodeEnvironment(), fits), Counter(), wait_seconds)


def mixed(*sources: str, batch: int = 8) -> MixedStream:
    return MixedStream(CodeEnvironment(), DataConfig(sources=list(sources)), seed=0, peer_id="a", batch=batch)


def draw(source: DataSource, count: int) -> list[str]:
    return [problem.id for problem in (source.draw() for _ in range(count)) if problem is not None]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 8)
    monkeypatch.setattr(module, "REST_SECONDS", 0.0)


def three() -> Memory:
    return Memory(*[[mbpp(10 * shard + number) for number in range(10)] for shard in range(3)])


def test_an_epoch_has_everything_once_and_each_peer_its_own_order():
    ours, theirs = shelf(three()), shelf(three(), "b")
    mine, other = draw(ours, 30), draw(theirs, 30)
    assert len(set(mine)) == 30 and set(mine) == set(other) and mine != other
    second = draw(ours, 30)
    assert set(second) == set(mine) and second != mine


@pytest.mark.parametrize("before", [0, 5, 8, 10, 29, 30, 31])
def test_it_goes_on_where_it_was_left(before: int):
    whole, first, second = shelf(three()), shelf(three()), shelf(three())
    assert draw(whole, before) == draw(first, before)
    second.restore(first.state())
    assert draw(whole, 35) == draw(second, 35)


def test_a_shard_is_opened_once_in_an_epoch():
    rows = three()
    draw(source := shelf(rows), 30)
    assert rows.opened == 3
    source.restore(source.state())
    draw(source, 5)  # of the next epoch, behind the last block of this one
    assert rows.opened == 5


def test_the_order_is_that_of_earlier_versions_whose_checkpoints_are_resumed():
    drawn = " ".join(draw(shelf(three()), 70))
    assert sha256(drawn.encode()).hexdigest()[:16] == "8ade065409c48fdb"


def test_a_cursor_behind_every_shard_begins_the_next_epoch():
    source = shelf(three())
    draw(source, 5)
    source.restore(msgspec.structs.replace(source.state(), shard=99))
    assert len({*draw(source, 30)}) == 30 and source.state().epoch == 1


def test_what_the_context_cannot_hold_and_what_comes_again_is_counted():
    rows = Memory([mbpp(1), mbpp(1), mbpp(2), mbpp(3), {"nothing": 1}])
    source = shelf(rows, fits=lambda problem: "case 2" not in problem.question)
    assert len(draw(source, 2)) == 2
    draw(source, 1)  # the next epoch
    counts = source._counts
    draw(source, 20)
    assert counts["refused_context"] == counts["refused_duplicate"] == counts["refused_malformed"] == 1, "in one epoch"


def test_no_batch_is_short_where_an_epoch_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("codezero.problems.stream.open_rows", lambda name: three())  # 30 rows
    stream = mixed("mbpp", batch=16)
    batches = [[problem.id for problem in stream.next_batch([])] for _ in range(8)]
    assert [len(batch) for batch in batches] == [16] * 8
    assert stream.metrics()["problems/drawn_mbpp"] == 128 and len({*batches[0], *batches[1][:14]}) == 30


def test_a_lost_set_gives_nothing_and_goes_on_when_it_is_back(caplog: pytest.LogCaptureFixture):
    rows = three()
    source = shelf(rows)
    got = draw(source, 8)
    rows.lost = True
    assert draw(source, 5) == [] and source._counts["outages"] == 5
    assert sum("stand in" in record.message for record in caplog.records) == 1
    rows.lost = False
    assert len({*got, *draw(source, 22)}) == 30


def test_other_shards_of_the_same_set_bring_nothing_twice():
    rows = three()
    source = shelf(rows)
    got = draw(source, 13)
    rows.parts = {"cache": [row for part in rows.parts.values() for row in part]}
    rows_left = draw(source, 17)
    assert len({*got, *rows_left}) == 30


def test_a_slow_set_is_not_waited_for_twice(caplog: pytest.LogCaptureFixture):
    rows = Memory([mbpp(1), mbpp(2)], remote=True)
    rows.gate.clear()
    source = shelf(rows, wait_seconds=0.05)
    assert draw(source, 3) == []
    assert sum("takes long" in record.message for record in caplog.records) == 1
    rows.gate.set()
    for thread in threading.enumerate():
        if thread.name == "problems":
            thread.join(10)
    assert len(draw(source, 2)) == 2


def test_a_set_without_a_usable_problem_does_not_turn_for_ever(caplog: pytest.LogCaptureFixture):
    source = shelf(Memory([{"nothing": 1}] * 20))
    assert draw(source, 3) == []
    assert sum("no usable problem" in record.message for record in caplog.records) == 1


def test_what_stands_in_is_said_while_it_does(monkeypatch: pytest.MonkeyPatch):
    sets = {"mbpp": three(), "code_contests": Memory(contests(20))}
    monkeypatch.setattr("codezero.problems.stream.open_rows", sets.__getitem__)
    stream = mixed("mbpp:3", "code_contests")
    assert stream.probe() == "" and "problems/stand_ins" not in stream.metrics()
    sets["code_contests"].lost = True
    stream.next_batch([])
    assert stream.stand_ins == "problems of mbpp stand in: the set cannot be read: lost"
    sets["mbpp"].lost = True
    drawn = stream.next_batch([])
    assert {problem.source for problem in drawn} == {Source.SYNTHETIC}
    assert str(stream.metrics()["problems/stand_ins"]).startswith("embedded problems: a rehearsal: the set cannot")
    sets["mbpp"].lost = sets["code_contests"].lost = False
    drawn = [problem for _ in range(4) for problem in stream.next_batch([])]
    assert {problem.source for problem in drawn} == {Source.MBPP, Source.CODE_CONTESTS}
    assert stream.stand_ins == "" and "problems/stand_ins" not in stream.metrics()


def test_a_path_where_nothing_is_ends_the_start(tmp_path: Path):
    stream = mixed(f"{tmp_path}/none.jsonl")
    with pytest.raises(ConfigError, match=r"data\.sources: .*none\.jsonl is neither a file nor"):
        stream.probe()


def test_looking_for_a_set_reads_no_row_and_moves_no_cursor():
    looked, plain = shelf(three()), shelf(three())
    before = looked.state()
    looked.probe()
    assert looked.state() == before and draw(looked, 12) == draw(plain, 12)


def test_sources_are_mixed_by_weight_and_the_mix_is_resumed(tmp_path: Path):
    path = write(tmp_path / "rows.jsonl", [*contests(50), *[mbpp(number) for number in range(100, 150)]])
    whole, first, second = (mixed(f"{path}:3", "synthetic") for _ in range(3))
    drawn: list[Problem] = [problem for _ in range(10) for problem in whole.next_batch([])]
    kinds = Counter(problem.source for problem in drawn)
    assert 10 <= kinds[Source.SYNTHETIC] <= 30 and set(kinds) == {Source.SYNTHETIC, Source.MBPP, Source.CODE_CONTESTS}
    assert drawn[:24] == [problem for _ in range(3) for problem in first.next_batch([])]
    first.save(tmp_path)
    second.load(tmp_path)
    assert drawn[24:] == [problem for _ in range(7) for problem in second.next_batch([])]
    assert second.metrics() == whole.metrics()


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
    stream = mixed("own.py:rows:3")
    assert stream.name == "own.py:rows:3" and stream.probe() == ""
    drawn = [problem.id for _ in range(4) for problem in stream.next_batch([])]
    assert len({*drawn}) == 32 and stream.metrics()["problems/drawn_own.py:rows"] == 32


def test_no_more_are_taken_than_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 5)
    rows = open_rows("own.py:endless")
    assert list(rows.rows(rows.name, 3)) == [{"n": 3}, {"n": 4}]


@pytest.mark.parametrize(
    ("name", "words"),
    [("failing", "own.py:failing raised KeyError: 'gone'"), ("strange", "returned a row of type int; a row is a dict")],
)
def test_one_that_fails_is_a_source_that_cannot_be_read(
    name: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows = open_rows(f"own.py:{name}")
    with pytest.raises(ProblemError, match=words):
        list(rows.rows(rows.name, 0))
    stream = mixed(f"own.py:{name}", batch=2)
    assert len(stream.next_batch([])) == len(stream.next_batch([])) == 2 and words in stream.stand_ins
    assert sum("stand in" in record.message for record in caplog.records) == 1, "it is tried again, and said once"


@pytest.mark.parametrize("name", ["own.py:nothing", "away.py:rows", "own.py:number"])
def test_one_that_is_not_there_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^data.sources={name}"):
        MixedStream(CodeEnvironment(), DataConfig(sources=[name]), seed=0, peer_id="a", batch=2)
    with pytest.raises(ConfigError):
        canary_rows(name, withheld=Novelty(), seconds=10)
