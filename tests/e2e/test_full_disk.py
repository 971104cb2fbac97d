"""A disk that is full ends nothing: a row or checkpoint is written whole once there is room, and `status` says why.

What writes, writes to a real file system of two megabytes, in a mount namespace of its own."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.monitor import PEER, row
from unit.test_node import Parts, play

from codezero import run
from codezero.errors import DiskFullError
from codezero.inspection.status import read_run
from codezero.monitor.logs import setup_logging
from codezero.monitor.monitor import RunMonitor
from codezero.system.files import LEAST, full

pytestmark = pytest.mark.slow
WRITER = """
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from codezero import run
from codezero.errors import DiskFullError
from codezero.monitor.metrics_file import MetricsFile, Tail, parse
from codezero.system.files import full
from codezero.solver.checkpoint import CheckpointStore

class Part:
    def save(self, folder):
        (folder / "state.json").write_bytes(bytes(100_000))
        if weights:
            save_file({"w": torch.zeros(100_000)}, folder / "weights.safetensors")
    def load(self, folder): ...

disk = Path(sys.argv[1])
store, metrics, weights = CheckpointStore(disk / "checkpoints", keep=1), MetricsFile(disk), False
store.save(1, {"part": Part()})
ballast = (disk / "ballast").open("ab", buffering=0)
def fill(size):
    try:
        while ballast.write(bytes(size)) == size: ...
    except OSError: ...
fill(1 << 16), fill(1 << 12)
assert "the disk is full" in full(disk)
for weights in (False, True):
    try:
        store.save(2, {"part": Part()})
        sys.exit("saved on a full disk")
    except DiskFullError as error:
        assert str(disk) in str(error), error
    ballast.truncate(disk.joinpath("ballast").stat().st_size - 150_000)  # the JSON has room, the weights have not
rows = 0
fill(1 << 16), fill(1 << 12)
ballast.truncate(disk.joinpath("ballast").stat().st_size - 10_000)
try:
    while True:
        metrics.append({"iteration": rows})
        rows += 1
except DiskFullError as error:
    assert "metrics.jsonl" in str(error), error
found = (disk / "metrics.jsonl").read_bytes()
assert rows > 3 and found.count(b"\\n") == rows and found.endswith(b"\\n"), "a row in part"
ballast.truncate(0)
store.save(2, {"part": Part()})
metrics.append({"iteration": rows})
assert [parse(line)["iteration"] for line in Tail(disk / "metrics.jsonl").poll()[1]] == list(range(rows + 1))
assert [one.name for one in sorted((disk / "checkpoints").iterdir())] == ["00000001", "00000002"]
print("all of it")
"""


def test_rows_and_checkpoints_are_whole_or_not_there(tmp_path: Path) -> None:
    tried = subprocess.run(["unshare", "-rm", "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"unshare -rm: {tried.stderr.strip()}")
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o size=2m disk "$0" && exec "$@"', str(tmp_path)]
    done = subprocess.run(
        [*mount, sys.executable, "-c", WRITER, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "all of it\n", done.stderr


class NoRoom:
    """What fails a few times and calls `then` at the last of them."""

    def __init__(self, failures: int, then: Callable[[], object] = lambda: None) -> None:
        self.failures, self.then = failures, then

    def __call__(self, *_: Any) -> None:
        self.failures -= 1
        if self.failures == 0:
            self.then()
        if self.failures >= 0:
            raise DiskFullError("the file cannot be written: No space left on device")


@pytest.mark.parametrize("what", ["save", "observe"])
def test_the_node_waits_for_room_and_goes_on(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr(run, "ROOM_SECONDS", 0.01)
    parts, no_room = Parts(), NoRoom(3)
    truth = getattr(parts, what)

    def fails_at_first(*given: Any) -> None:
        if what == "save" or len(given) == 3:  # `observe` is the difficulty's too
            no_room()
        truth(*given)

    monkeypatch.setattr(parts, what, fails_at_first)
    played = play(parts, max_iterations=2)
    assert played.reason == "max_iterations reached"
    assert played.failures["waiting for room on the disk"].kinds["DiskFullError"] == 3
    assert [one["iteration"] for one in parts.rows if one["iteration"]] == [1, 2]
    assert parts.saved == [1, 2]


def test_who_asks_it_to_stop_meanwhile_is_told_that_it_is_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    monkeypatch.setattr(parts, "save", NoRoom(1_000_000))
    with pytest.raises(DiskFullError):
        play(parts, max_iterations=2)
    assert not parts.saved


def test_the_end_is_told_though_it_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monitor = RunMonitor(folder=tmp_path / "run", view="off", identity=PEER, facts={"swarm": "local"})
    (tmp_path / "run").mkdir()
    monitor.started(0)
    monitor.observe(1, row(1), [])
    shutil.rmtree(tmp_path / "run")
    monitor.close("stopped by an error")
    assert "the end of the run cannot be written" in caplog.text


def test_a_log_that_cannot_be_written_is_told_once_and_shows_no_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swarm.log").symlink_to("/dev/full")
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))
    monkeypatch.setattr(root, "level", root.level)
    file, _ = setup_logging(tmp_path)
    for _ in range(3):
        logging.getLogger("codezero").info("the token is %s", "hunter2")
    said = capsys.readouterr().err
    assert said == f"codezero: {tmp_path / 'swarm.log'} cannot be written: No space left on device\n"
    with pytest.raises(OSError, match="No space left"):  # what could not be written is still in its buffer
        file.close()


def test_status_names_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node.json").write_text(json.dumps({"peer_id": PEER, "pid": os.getpid(), "stopped": None}))
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n')
    assert full(tmp_path) == "" and full(tmp_path / "nowhere") == ""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=LEAST - 1))
    problem = read_run(tmp_path).problem
    assert "the disk is full" in problem and str(tmp_path) in problem
