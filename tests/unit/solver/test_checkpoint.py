"""A checkpoint is whole or it is not there: whatever is killed, cut, swapped or lost."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from codezero.errors import CheckpointError, ConfigError
from codezero.solver.checkpoint import CheckpointStore

KILLER = """
import sys
from pathlib import Path
from unit.solver.test_checkpoint import Counter
from codezero.solver.checkpoint import CheckpointStore
store = CheckpointStore(Path(sys.argv[1]), keep=2)
store.flush_seconds = float(sys.argv[2])
parts = {"one": Counter(), "two": Counter()}
at = store.restore(parts)
assert parts["one"].value == parts["two"].value == at
print(at, flush=True)
while True:
    at += 1
    for part in parts.values():
        part.value = at
    store.save(at, parts)
"""


class Counter:
    """A part of several files, one of them not small."""

    def __init__(self, value: int = 0):
        self.value = value

    def save(self, folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner/bulk.bin").write_bytes(self.value.to_bytes(8, "big") * 20_000)
        (folder / "value.json").write_text(json.dumps(self.value))

    def load(self, folder: Path) -> None:
        try:
            self.value = json.loads((folder / "value.json").read_text())
            bulk = (folder / "inner/bulk.bin").read_bytes()
        except (OSError, ValueError) as error:
            raise CheckpointError(str(error)) from error
        if bulk != self.value.to_bytes(8, "big") * 20_000:
            raise CheckpointError("bulk and value disagree")


def saved(directory: Path, *iterations: int, keep: int = 2) -> CheckpointStore:
    store = CheckpointStore(directory, keep)
    for iteration in iterations:
        store.save(iteration, {"part": Counter(iteration)})
    return store


def restored(directory: Path, **options: bool) -> tuple[int, int]:
    part = Counter(-1)
    return CheckpointStore(directory, 2, **options).restore({"part": part}), part.value


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_nothing_saved_is_iteration_zero(tmp_path: Path):
    assert restored(tmp_path / "absent") == (0, -1)
    assert restored(tmp_path) == (0, -1)
    assert restored(tmp_path, resume=False) == (0, -1)


def test_only_the_last_ones_are_kept_and_the_last_that_survives_a_power_cut(tmp_path: Path):
    store = saved(tmp_path, *range(1, 6))
    assert names(tmp_path) == ["00000001", "00000004", "00000005"]  # 1 was flushed
    store.flush_seconds = 0.0
    store.save(6, {"part": Counter(6)})
    assert names(tmp_path) == ["00000005", "00000006"]
    one = CheckpointStore(tmp_path, keep=1)
    one.flush_seconds = 0.0
    one.save(7, {"part": Counter(7)})
    assert names(tmp_path) == ["00000007"]


def test_saving_the_same_iteration_again_changes_nothing(tmp_path: Path):
    """The loop saves when it ends, and may have saved just before."""
    store = saved(tmp_path, 3)
    before = (tmp_path / "00000003").stat()
    store.save(3, {"part": Counter(99)})
    assert (tmp_path / "00000003").stat() == before


def damage_bulk(folder: Path) -> None:
    path = folder / "part/inner/bulk.bin"
    data = bytearray(path.read_bytes())
    data[77] ^= 1
    path.write_bytes(data)


def test_a_part_that_cannot_load_gives_way_too(tmp_path: Path):
    saved(tmp_path, 1)
    store = CheckpointStore(tmp_path, 2)
    part = Counter(1)
    part.save = lambda folder: (folder / "value.json").write_text("{")  # type: ignore[method-assign]
    store.save(2, {"part": part})
    assert restored(tmp_path) == (1, 1)


@pytest.mark.parametrize("keep", [1, 2])
def test_after_giving_way_the_run_goes_on_and_the_damaged_one_goes(tmp_path: Path, keep: int):
    saved(tmp_path, 4, 5)
    damage_bulk(tmp_path / "00000005")
    store, part = CheckpointStore(tmp_path, keep), Counter()
    assert store.restore({"part": part}) == 4
    store.save(5, {"part": Counter(5)})
    assert restored(tmp_path) == (5, 5)
    damage_bulk(tmp_path / "00000005")
    if keep == 2:
        store = CheckpointStore(tmp_path, keep)
        assert store.restore({"part": part}) == 4


@pytest.mark.parametrize("keep", [1, 2])
def test_a_new_checkpoint_is_never_taken_for_older_than_a_damaged_one(tmp_path: Path, keep: int):
    saved(tmp_path, 4, 9)
    damage_bulk(tmp_path / "00000009")
    store = CheckpointStore(tmp_path, keep)
    store.restore({"part": Counter()})
    store.save(5, {"part": Counter(5)})
    assert restored(tmp_path) == (5, 5) and "00000009" not in names(tmp_path)


def test_not_resuming_over_a_checkpoint_names_the_remedy(tmp_path: Path):
    saved(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"run\.name"):
        restored(tmp_path, resume=False)


def test_a_failing_part_leaves_the_old_checkpoint_and_its_litter_goes_at_the_next_start(tmp_path: Path):
    store = saved(tmp_path, 1)
    part = Counter(2)

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError("no space left on device")

    part.save = fail  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        store.save(2, {"part": part})
    assert restored(tmp_path) == (1, 1)
    assert names(tmp_path) == ["00000001"]


def kill_while_saving(directory: Path, times: int, flush_seconds: float) -> None:
    chance, reached = random.Random(0), 0
    for _ in range(times):
        command = [sys.executable, "-c", KILLER, str(directory), str(flush_seconds)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        began = int(child.stdout.readline())
        assert began >= reached  # nothing that was finished is lost
        time.sleep(chance.uniform(0.0, 0.3))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        parts = {"one": Counter(), "two": Counter()}
        reached = CheckpointStore(directory, 2).restore(parts)
        assert reached == parts["one"].value == parts["two"].value >= began
    assert reached > times


def test_killed_at_random_moments_a_whole_checkpoint_remains(tmp_path: Path):
    kill_while_saving(tmp_path, 5, flush_seconds=30.0)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush_seconds", [0.0, 0.05, 30.0])
def test_killed_often(tmp_path: Path, flush_seconds: float):
    kill_while_saving(tmp_path, 60, flush_seconds)
