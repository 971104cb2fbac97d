"""A run's metrics: written whole or not at all, and followed exactly, once, within fixed memory."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.api_server import OTHER, full_row
from builders.monitor import exam_row, read_metrics, row
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codezero.monitor import run_state as history
from codezero.monitor.metrics_file import FILE_NAME, KEYS, MAX_LINE, MAX_TEXT, MetricsFile, Tail, number, parse
from codezero.monitor.run_state import Averaged, History
from codezero.monitor.run_types import MAX_EXAMS, MAX_POINTS
from codezero.types import Metrics

values = st.none() | st.floats() | st.integers(-(10**15), 10**15) | st.text(max_size=30)
metrics = st.dictionaries(st.text(min_size=1, max_size=12), values, max_size=6)


def write(folder: Path, *rows: object, mode: str = "a") -> Path:
    path = folder / FILE_NAME
    with path.open(mode) as stream:
        stream.writelines(json.dumps(one) + "\n" for one in rows)
    return path


def rows(first: int, last: int) -> list[dict[str, object]]:
    return [dict(row(iteration, iteration / 1000)) for iteration in range(first, last + 1)]


@given(st.lists(st.floats(-1e6, 1e6), max_size=3_000))
def test_a_curve_of_any_length_has_few_points_and_the_same_mean(values: list[float]) -> None:
    curve = Averaged()
    for place, value in enumerate(values):
        curve.add(place, value)
    points = curve.points
    assert len(points) <= MAX_POINTS and [x for x, _ in points] == sorted(x for x, _ in points)
    assert curve.newest == (values[-1] if values else None)
    if values:
        assert min(values) - 1 <= min(y for _, y in points) and max(y for _, y in points) <= max(values) + 1


def test_a_curve_passes_over_what_is_no_number() -> None:
    curve = Averaged()
    for value in (1.0, float("nan"), float("inf"), 10**400, 3.0):
        curve.add(0, value)
    assert curve.points == [(0, 1.0), (0, 3.0)]


def test_of_many_exams_the_first_and_the_newest_are_kept(tmp_path: Path) -> None:
    write(tmp_path, *(exam_row(number, 0.5) for number in range(1_500)))
    kept = [exam.iteration for exam in History(tmp_path).read().exams]
    assert len(kept) <= MAX_EXAMS and kept == sorted(set(kept)) and (kept[0], kept[-1]) == (0, 1_499)


def test_only_what_was_appended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, *rows(1, 500))
    followed = History(tmp_path)
    assert followed.read().last["iteration"] == 500
    parsed: list[bytes] = []
    monkeypatch.setattr(history, "parse", lambda line: parsed.append(line) or parse(line))
    assert followed.read().last["iteration"] == 500 and not parsed
    write(tmp_path, *rows(501, 502))
    assert followed.read().last["iteration"] == 502 and len(parsed) == 2


@pytest.mark.parametrize("keep", ["longer", "same", "shorter", "gone"])
def test_a_file_that_was_written_anew_in_place_is_noticed(tmp_path: Path, keep: str) -> None:
    path = write(tmp_path, *rows(1, 20))
    followed = History(tmp_path)
    followed.read()
    size = path.stat().st_size
    if keep == "gone":
        path.unlink()
        assert followed.read().last == {}
    other = [one | {"reward/mean": 0.9} for one in rows(101, {"longer": 140, "shorter": 105}.get(keep, 120))]
    write(tmp_path, *other, mode="w")
    if keep == "same":
        content = path.read_bytes()
        path.write_bytes(content[:size] if len(content) >= size else content.ljust(size - 1) + b"\n")
        assert path.stat().st_size == size
    points = followed.read().series["reward"].points
    assert points[0] == (101, 0.9)


@pytest.mark.parametrize(
    "junk",
    [b"\x00" * 9, b"{", b"[" * 60_000, b'{"iteration": "x"}', b"null", b"\xff", b'{"iteration": 1e400}', b"", b"[]",
     b'{"iteration": 5, "reward/mean": [1]}', b'{"iteration": 5, "reward/mean": NaN}', b'{"iteration": -1}',
     b'{"iteration": 99999999999999999999}', b'{"iteration": NaN}', b"x" * (MAX_LINE + 5),
     b"y" * (20 * MAX_LINE)],
)  # fmt: skip
def test_junk_is_passed_over(tmp_path: Path, junk: bytes) -> None:
    path = write(tmp_path, *rows(1, 2))
    with path.open("ab") as stream:
        stream.write(junk + b"\n")
    write(tmp_path, *rows(3, 4))
    fold = History(tmp_path).read()
    assert [x for x, _ in fold.series["reward"].points] == [1, 2, 3, 4]


@given(st.binary(max_size=400))
def test_any_bytes_can_be_followed(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / FILE_NAME).write_bytes(junk)
    followed = History(folder)
    followed.read()
    file = MetricsFile(folder)
    file.append(row(7))
    file.close()
    assert followed.read().last["iteration"] == 7


@given(st.lists(st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")), max_size=30), st.data())
def test_lines_come_whole_in_order_and_once_however_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("tail") / "file"
    whole = b"".join(line + b"\n" for line in lines)
    tail, seen, place = Tail(path), list[bytes](), 0
    while place < len(whole):
        step = data.draw(st.integers(1, 80))
        with path.open("ab") as stream:
            stream.write(whole[place : place + step])
        place += step
        seen += tail.poll()[1]
    assert seen == lines


def test_with_a_budget_the_beginning_and_the_end_are_read(tmp_path: Path) -> None:
    write(tmp_path, exam_row(0, 0.25) | {"eval/source": "executed"}, *rows(1, 2_000))
    fold = History(tmp_path, budget=40_000).read()
    seen = [x for x, _ in fold.series["reward"].points]
    assert (min(seen), fold.last["iteration"]) == (1, 2_000) and len(seen) < 250
    assert fold.exams[0].average == 0.25


def test_groups_of_peers_are_counted(tmp_path: Path) -> None:
    counted = {"swarm/external_judged/" + OTHER: 3, "swarm/external_used/" + OTHER: 2}
    write(tmp_path, row(1) | counted, row(2), row(3) | counted)
    assert History(tmp_path).read().shares[OTHER] == (6, 4)


def test_endless_peers_and_rounds_are_forgotten(tmp_path: Path) -> None:
    crowd = [row(number) | {"round": number, f"swarm/external_judged/peer{number}": 1} for number in range(1, 1_500)]
    write(tmp_path, *crowd)
    fold = History(tmp_path).read()
    assert (len(fold.shares), len(fold.rounds), max(fold.rounds)) == (1_000, 40, 1_499)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot tell its own peak of memory apart")
def test_two_hundred_thousand_rows_are_read_in_bounded_memory(tmp_path: Path) -> None:
    line = json.dumps(full_row(7) | {"padding": "x" * 200}).encode() + b"\n"
    with (tmp_path / FILE_NAME).open("wb") as stream:
        for start in range(0, 200_000, 1_000):
            numbers = range(start + 1, start + 1_001)
            stream.writelines(line.replace(b'"iteration": 7', b'"iteration": %d' % number) for number in numbers)
    size = (tmp_path / FILE_NAME).stat().st_size
    code = (
        "import re; from pathlib import Path; from codezero.inspection.status import RunFiles;"
        "most = lambda: 1024 * int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]);"
        f"files = RunFiles(Path({str(tmp_path)!r})); before = most(); view = files.view('one');"
        "print(view.iteration, len(view.series['reward']), most() - before)"
    )
    environment = os.environ | {"PYTHONPATH": "."}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    iteration, points, memory = map(int, done.stdout.split())
    assert iteration == 200_000 and MAX_POINTS // 2 <= points <= MAX_POINTS
    assert size > 150 << 20 and memory < 32 << 20


def written(folder: Path, *measured: Metrics) -> Path:
    file = MetricsFile(folder)
    for each in measured:
        file.append(each)
    file.close()
    return file.path


def iterations(path: Path) -> list[object]:
    return [row["iteration"] for row in read_metrics(path)]


def test_every_row_has_the_promised_keys(tmp_path: Path) -> None:
    row = json.loads(written(tmp_path, {"iteration": 3, "reward/mean": 0.5}).read_text())
    assert set(KEYS) <= set(row) and row["time"] > 1e9
    assert (row["reward/mean"], row["eval/average_at_8"]) == (0.5, None)


@given(metrics)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_what_is_appended_is_read_back(tmp_path: Path, measured: Metrics) -> None:
    (tmp_path / FILE_NAME).unlink(missing_ok=True)
    row = measured | {"iteration": 1}
    (read,) = read_metrics(written(tmp_path, row))
    for key, value in row.items():
        wanted = None if isinstance(value, float) and not math.isfinite(value) else value
        assert read[key] == wanted


def test_a_torn_last_line_is_cut_off_at_opening(tmp_path: Path) -> None:
    path = written(tmp_path, {"iteration": 1}, {"iteration": 2})
    whole = path.read_bytes()
    for cut in range(1, 30):
        path.write_bytes(whole[:-cut])
        assert iterations(path) == [1]
        written(tmp_path, {"iteration": 7})
        assert iterations(path) == [1, 7]


def test_truncation_drops_the_crashed_future_and_appending_goes_on(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path)
    for iteration in range(10):
        file.append({"iteration": iteration, "reward/mean": 0.1 * iteration})
    file.truncate_after(6)
    file.append({"iteration": 7})
    file.close()
    assert iterations(file.path) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert number(read_metrics(file.path)[6], "reward/mean") == pytest.approx(0.6)
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_killed_writer_loses_nothing_it_had_appended(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from codezero.monitor.metrics_file import MetricsFile\n"
        f"file = MetricsFile(pathlib.Path({str(tmp_path)!r}))\n"
        "for iteration in range(1000):\n"
        "    file.append({'iteration': iteration})\n"
        "    if iteration == 500: print('now', flush=True)\n"
        f"os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=os.environ, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    assert iterations(tmp_path / FILE_NAME) == list(range(1000))


def test_no_file_is_no_rows_and_text_is_bounded(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none") == []
    (row,) = read_metrics(written(tmp_path, {"iteration": 1, "note": "x" * 10**6}))
    assert row["note"] == "x" * MAX_TEXT
