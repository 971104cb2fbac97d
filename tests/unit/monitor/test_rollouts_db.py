"""The file of judged groups: what is kept, how much, and what it costs when it cannot be written.

Does not show: what a power cut leaves. The file is begun anew when it is broken."""

import contextlib
import dataclasses
import logging
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from builders.api_server import OTHER
from builders.monitor import BAD, GOOD, PEER, group, verdict

from codezero.errors import UnreadableError
from codezero.monitor import rollouts_db as rollouts
from codezero.monitor.rollouts_db import (
    BURST,
    FILE,
    MAX_GROUPS,
    MAX_TEXT,
    RolloutStore,
    measured_levels,
    read_page,
    read_rollout,
)
from codezero.monitor.run_types import Rollout, RolloutLine
from codezero.types import ScoredGroup, Source, Status

HOSTILE = '<img src=x onerror="alert(1)">\x00\x1b[2J\u202eevil\u2066 </script>\ud800\u2028'


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 0.5
        return self.now


def store(folder: Path, clock: Clock | None = None) -> RolloutStore:
    made = RolloutStore(folder, PEER, clock=clock or Clock())
    made.begin(0)
    return made


def by(peer: str, scored: ScoredGroup) -> ScoredGroup:
    return dataclasses.replace(scored, group=dataclasses.replace(scored.group, peer_id=peer))


def saying(text: str, count: int = 2) -> ScoredGroup:
    return group("What?", (text,) * count)


def kept_of(folder: Path, scored: ScoredGroup) -> tuple[RolloutLine, Rollout]:
    """The only group of a store, as a list and as its own page show it."""
    made = store(folder)
    made.add(1, [scored])
    (line,) = read_page(folder).rollouts
    whole = read_rollout(folder, line.id)
    made.close()
    assert whole is not None
    return line, whole


def disk_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob(f"{FILE}*"))


def test_what_is_kept_is_read_back_newest_first_and_in_pages(tmp_path: Path) -> None:
    made = store(tmp_path)
    for iteration in range(1, 8):
        made.add(iteration, [group(f"question {iteration}")])
    first = read_page(tmp_path, limit=3)
    assert [line.question for line in first.rollouts] == ["question 7", "question 6", "question 5"]
    second = read_page(tmp_path, limit=3, before=first.older)
    last = read_page(tmp_path, limit=3, before=second.older)
    assert [line.iteration for line in (*second.rollouts, *last.rollouts)] == [4, 3, 2, 1] and last.older is None
    whole = read_rollout(tmp_path, first.rollouts[0].id)
    assert whole and whole.line == first.rollouts[0] and whole.tests == ["assert total([1]) == 1"]
    shown = [(attempt.text, attempt.reward, attempt.status) for attempt in whole.attempts]
    assert shown == [(GOOD, 0.9, "judged"), (BAD, 0.1, "judged")]
    made.close()
    assert read_rollout(tmp_path, whole.line.id) == whole
    assert read_page(tmp_path / "none").rollouts == [] and read_rollout(tmp_path / "none", 1) is None


def test_own_groups_and_those_of_peers_can_be_asked_for(tmp_path: Path) -> None:
    made = store(tmp_path)
    made.add(1, [group("own"), by(OTHER, group("foreign"))])
    assert [line.question for line in read_page(tmp_path, own=True).rollouts] == ["own"]
    assert [line.question for line in read_page(tmp_path, own=False).rollouts] == ["foreign"]
    assert [line.own for line in read_page(tmp_path, peer=OTHER).rollouts] == [False]
    assert not read_page(tmp_path, peer="' OR 1=1 --").rollouts
    made.close()


def test_hostile_text_is_kept_as_text_and_cut_to_size(tmp_path: Path) -> None:
    one = kept_of(tmp_path, saying(HOSTILE + "x" * 1_000_000))[1].attempts[0]
    assert one.text.startswith(HOSTILE.replace("\ud800", "?")) and one.cut
    assert len(one.text.encode()) <= MAX_TEXT and disk_bytes(tmp_path) < 200_000


def test_what_could_not_be_judged_has_no_reward_and_no_zero(tmp_path: Path) -> None:
    verdicts = (verdict(0.0, "no answer", status=Status.UNAVAILABLE), verdict(float("nan")))
    line, whole = kept_of(tmp_path, dataclasses.replace(group(), verdicts=verdicts))
    assert line.rewards == [None, None]
    assert whole.attempts[0].correctness is None and whole.attempts[0].reasons == ["no answer"]


def test_a_fast_run_keeps_a_few_a_second_and_peers_get_their_half(tmp_path: Path) -> None:
    clock = Clock()
    made = store(tmp_path, clock)
    many = [group(f"own {number}") for number in range(90)] + [by(OTHER, group(f"theirs {n}")) for n in range(90)]
    for iteration in range(1, 21):  # ten seconds
        made.add(iteration, many)
    kept = read_page(tmp_path, limit=100).rollouts
    made.close()
    assert BURST <= len(kept) <= BURST + 22
    assert 0.4 < sum(line.own for line in kept) / len(kept) < 0.6


@pytest.mark.parametrize(("text", "attempts"), [("short", 2), ("x" * 20_000, 64)])
def test_number_and_size_are_bounded(tmp_path: Path, text: str, attempts: int) -> None:
    clock = Clock()
    made = store(tmp_path, clock)
    for iteration in range(1, 90):
        clock.now += 100
        made.add(iteration, [saying(text, attempts)] * (BURST if attempts == 2 else 1))
        assert disk_bytes(tmp_path) < 32 << 20
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM rollouts").fetchone()
    made.close()
    assert count == MAX_GROUPS if attempts == 2 else 10 < count < 40
    assert read_page(tmp_path).rollouts[0].iteration == 89


def test_a_resumed_run_forgets_the_future_and_no_id_comes_twice(tmp_path: Path) -> None:
    made = store(tmp_path)
    for iteration in (1, 2, 3):
        made.add(iteration, [group()])
    made.close()
    again = RolloutStore(tmp_path, PEER, clock=Clock())
    again.begin(1)
    again.add(2, [group()])
    assert [(line.id, line.iteration) for line in read_page(tmp_path).rollouts] == [(4, 2), (1, 1)]
    again.close()


def test_a_killed_writer_leaves_a_file_that_is_read_and_gone_on_with(tmp_path: Path) -> None:
    code = (
        "import os; from pathlib import Path; from unit.monitor.test_rollouts_db import store, group;"
        f"made = store(Path({str(tmp_path)!r})); made.add(1, [group()]); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == 9
    assert len(read_page(tmp_path).rollouts) == 1
    made = store(tmp_path)
    made.add(2, [group()])
    made.close()
    assert read_page(tmp_path).rollouts[0].iteration == 2


def test_a_broken_file_is_told_to_readers_and_begun_anew_by_the_writer(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database" * 1000)
    with pytest.raises(UnreadableError, match=r"rollouts\.db cannot be read"):
        read_page(tmp_path)
    made = store(tmp_path)
    made.add(1, [group()])
    made.close()
    assert len(read_page(tmp_path).rollouts) == 1


def test_a_full_disk_costs_a_warning_and_a_pause_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rollouts, "MAX_PAGES", 12)
    clock = Clock()
    made = store(tmp_path, clock)
    with caplog.at_level(logging.WARNING):
        for iteration in range(1, 30):
            made.add(iteration, [saying("x" * 20_000, 8)])
    assert [record.getMessage().split(": ")[-1] for record in caplog.records] == ["database or disk is full"]
    monkeypatch.setattr(rollouts, "MAX_PAGES", 5_000)
    clock.now += 60
    made.add(30, [group()])
    made.close()
    assert [line.iteration for line in read_page(tmp_path).rollouts] == [30]


def test_a_folder_that_cannot_be_written_costs_no_more(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = store(tmp_path / "nowhere")
    made.add(1, [group()])
    made.close()
    assert len(caplog.records) == 1 and "unable to open" in caplog.text


def test_many_may_read_while_it_is_written(tmp_path: Path) -> None:
    clock = Clock()
    made = store(tmp_path, clock)
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            lines = read_page(tmp_path).rollouts
            seen.append(len(lines))
            assert all(read_rollout(tmp_path, line.id) is not None for line in lines[:1])

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for iteration in range(1, 40):
        clock.now += 5
        made.add(iteration, [group(f"{iteration}")])
    done.set()
    for reader in readers:
        reader.join()
    made.close()
    assert max(seen, default=0) <= 50 and len(read_page(tmp_path, limit=100).rollouts) == 39


def test_attempts_beyond_the_bound_are_left_out(tmp_path: Path) -> None:
    assert len(kept_of(tmp_path, saying("a", 70))[0].rewards) == 64


def test_problems_without_a_level_get_that_of_their_success_also_after_a_restart(tmp_path: Path) -> None:
    def attempted(number: int, *successes: float, level: int | None = None) -> ScoredGroup:
        scored = saying("x", len(successes))
        problem = dataclasses.replace(scored.group.problem, id=f"{number:064}", source=Source.MBPP, level=level)
        status = {True: Status.UNAVAILABLE, False: Status.JUDGED}
        told = tuple(verdict(success, status=status[success < 0]) for success in successes)
        return ScoredGroup(dataclasses.replace(scored.group, problem=problem), told)

    kept = store(tmp_path)
    easy, mixed, hard = attempted(1, 1.0, 0.9), attempted(2, 1.0, 0.0), attempted(3, 0.1, 0.0)
    unknown, rated, foreign = attempted(4, -1.0), attempted(5, 1.0, level=2), by(OTHER, attempted(6, 1.0))
    kept.add(1, [easy, mixed, hard, unknown, rated, foreign])
    kept.add(2, [attempted(3, 1.0, 1.0)])  # it has learnt that one since: together a half of the attempts
    assert measured_levels(tmp_path) == {"mbpp": [1, 0, 2, 0, 0]}
    kept.close()
    again = RolloutStore(tmp_path, PEER)
    again.begin(1)  # iteration 2 was not saved
    again.close()
    assert measured_levels(tmp_path) == {"mbpp": [1, 0, 1, 0, 1]}
    (tmp_path / FILE).write_bytes(b"no database")
    assert measured_levels(tmp_path) == measured_levels(tmp_path / "none") == {}
