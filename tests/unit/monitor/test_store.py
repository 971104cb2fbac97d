import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.monitor import read_metrics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codezero.monitor.metrics_file import FILE_NAME, KEYS, MAX_TEXT, MetricsFile, number
from codezero.types import Metrics

values = st.none() | st.floats() | st.integers(-(10**15), 10**15) | st.text(max_size=30)
metrics = st.dictionaries(st.text(min_size=1, max_size=12), values, max_size=6)


def written(folder: Path, *rows: Metrics) -> Path:
    file = MetricsFile(folder)
    for row in rows:
        file.append(row)
    file.close()
    return file.path


def iterations(path: Path) -> list[object]:
    return [row["iteration"] for row in read_metrics(path)]


def test_every_row_has_the_promised_keys(tmp_path: Path) -> None:
    row = json.loads(written(tmp_path, {"iteration": 3, "reward/mean": 0.5}).read_text())
    assert set(KEYS) <= set(row)
    assert row["reward/mean"] == 0.5
    assert row["eval/average_at_8"] is None
    assert row["time"] > 1e9


@given(metrics)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_what_is_appended_is_read_back(tmp_path: Path, measured: Metrics) -> None:
    (tmp_path / FILE_NAME).unlink(missing_ok=True)
    row = measured | {"iteration": 1}
    (read,) = read_metrics(written(tmp_path, row))
    for key, value in row.items():
        wanted = None if isinstance(value, float) and not math.isfinite(value) else value
        assert read[key] == wanted


def test_lines_are_json_that_any_reader_takes(tmp_path: Path) -> None:
    path = written(tmp_path, {"iteration": 1, "train/loss": math.nan, "train/entropy": math.inf, "x": "a\nb\u2028c"})
    (line,) = path.read_bytes().splitlines()
    row = json.loads(line, parse_constant=lambda name: pytest.fail(name))
    assert (row["train/loss"], row["train/entropy"]) == (None, None)


def test_a_torn_last_line_is_cut_off_at_opening(tmp_path: Path) -> None:
    path = written(tmp_path, {"iteration": 1}, {"iteration": 2})
    whole = path.read_bytes()
    for cut in range(1, 30):
        path.write_bytes(whole[:-cut])
        assert iterations(path) == [1]
        written(tmp_path, {"iteration": 7})
        assert iterations(path) == [1, 7]


@pytest.mark.parametrize(
    "junk", [b"\x00" * 9, b"{", b"[" * 60_000 + b"\n", b'{"iteration": "x"}\n', b"null\n", b"\xff\n"]
)
def test_junk_is_passed_over(tmp_path: Path, junk: bytes) -> None:
    path = written(tmp_path, {"iteration": 1})
    path.write_bytes(path.read_bytes() + junk)
    assert iterations(path) == [1]


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_any_bytes_can_be_opened_and_appended_to(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(junk)
    assert iterations(written(tmp_path, {"iteration": 5}))[-1] == 5


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


def test_a_long_file_is_read_at_both_ends_within_its_bound(tmp_path: Path) -> None:
    path = written(tmp_path, *({"iteration": iteration} for iteration in range(2_000)))
    read = iterations(path)
    some = [row["iteration"] for row in read_metrics(path, budget=20_000)]
    assert some[0] == 0 and some[-1] == 1_999
    assert len(some) < 100 and some == sorted(set(some))  # type: ignore[type-var]
    assert read == list(range(2_000))


def test_no_file_is_no_rows_and_text_is_bounded(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none") == []
    (row,) = read_metrics(written(tmp_path, {"iteration": 1, "note": "x" * 10**6}))
    assert row["note"] == "x" * MAX_TEXT
