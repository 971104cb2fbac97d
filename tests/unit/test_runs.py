"""A run folder has one owner and is found again by default; a run begins anew or from another's, which stays untouched.

Does not show: that training goes on from a forked checkpoint; test_resume.py does."""

import contextlib
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.monitor import exam_row, row
from unit.solver.test_checkpoint import Counter

from codezero.config import ModelConfig, NodeConfig, RunConfig
from codezero.errors import ChainError, CheckpointError, ConfigError, IdentityError
from codezero.monitor.metrics_file import LABEL
from codezero.runs import AUTOMATIC, ORIGIN, RunFolder, begin, open_run_folder
from codezero.settings import compose, quoted
from codezero.solver.checkpoint import CheckpointStore
from codezero.swarm.build import start_network
from codezero.swarm.identity import Identity
from codezero.system.files import Lock


def config(base: Path, name: str = "", *, seed: int = 0, solver: str = "nano", resume: bool = True) -> NodeConfig:
    run = RunConfig(directory=str(base), name=name, resume=resume)
    return NodeConfig(seed=seed, run=run, model=ModelConfig(solver=solver))


def begun(base: Path, name: str = "", **changed: Any) -> Path:
    with open_run_folder(config(base, name, **changed)) as folder:
        folder.record_start()
    return folder.path


def test_a_run_that_somebody_named_goes_on_under_its_name_alone(tmp_path: Path) -> None:
    for name in ("mine", "mine.before-2025-11-22_10-00-00", "2025-11-22_10-00-00.mine"):
        begun(tmp_path, name)
    bare = begun(tmp_path)
    assert AUTOMATIC.fullmatch(bare.name) and begun(tmp_path, "mine") != bare == begun(tmp_path)


def test_a_run_of_yesterday_that_nobody_named_is_taken_up(tmp_path: Path) -> None:
    for name in ("2025-11-22_10-00-00", "2025-11-22_10-00-00-2"):
        assert begun(tmp_path, name) == begun(tmp_path)


@pytest.mark.parametrize("changed", [{"seed": 1}, {"resume": False}], ids=str)
def test_other_choices_begin_another_run(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert begun(tmp_path) != begun(tmp_path, **changed)


def test_two_processes_never_share_a_folder(tmp_path: Path) -> None:
    with open_run_folder(config(tmp_path)) as first, open_run_folder(config(tmp_path)) as second:
        assert second.path != first.path
        with pytest.raises(ConfigError, match="in use by another process"):
            open_run_folder(config(tmp_path, name=first.path.name))


def test_a_lock_that_cannot_be_taken_is_one_line_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / ".lock")
    with pytest.raises(ConfigError, match=r"run\.directory: .*piped cannot be written and locked"):
        open_run_folder(config(tmp_path, name="piped"))
    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(ConfigError, match=r"cannot be written and locked: No locks available; choose"):
        open_run_folder(config(tmp_path))
    lock = Lock(tmp_path / "wallet.lock")
    with contextlib.closing(lock), pytest.raises(ChainError, match=r"; choose another"):
        lock.take()


def test_a_named_run_refuses_other_choices(tmp_path: Path) -> None:
    begun(tmp_path, "mine")
    with pytest.raises(ConfigError, match=r"seed=7, but .* was begun with 0"):
        open_run_folder(config(tmp_path, name="mine", seed=7))


def test_a_damaged_label_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{")
    with pytest.raises(ConfigError, match=r"mine/run\.json cannot be read"):
        open_run_folder(config(tmp_path, name="mine"))


def test_a_start_that_failed_binds_nobody_to_its_choices(tmp_path: Path) -> None:
    open_run_folder(config(tmp_path, name="mine")).release()
    assert not (tmp_path / "mine" / "run.json").exists()
    assert '"seed": 7' in (begun(tmp_path, "mine", seed=7) / "run.json").read_text()


@pytest.mark.parametrize("name", ["a/b", "/tmp/x", "..", ".fork", "-x", "a\nb", "chain", "login", 130 * "x"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.name=.* cannot name a run; use one folder name"):
        compose([f"run.name={quoted(name)}"])


@pytest.mark.parametrize("name", ["mine", "2026-11-22_22-00-00-2", "run 2.1", "été", "swarm_x"])
def test_an_ordinary_name_is_taken(name: str) -> None:
    assert compose([f"run.name={quoted(name)}"]).run.name == name


def test_a_swarm_of_one_holds_its_identity_as_every_other_node_does(tmp_path: Path) -> None:
    settings = compose([f"swarm.identity={quoted(tmp_path / 'swarm.pem')}", f"run.directory={quoted(tmp_path)}"])
    peer_id = Identity.load_or_create(tmp_path / "swarm.pem").peer_id
    with open_run_folder(settings) as folder, contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        start_network(settings, peer_id, folder.path, first)
        with pytest.raises(IdentityError, match=r"in use.*swarm\.identity=FILE"):
            start_network(settings, peer_id, folder.path, second)
        first.close()
        start_network(settings, peer_id, folder.path, second)


def with_checkpoints(base: Path, name: str, *iterations: int) -> Path:
    with begin(config(base, name)) as folder:
        folder.record_start()
        store = CheckpointStore(folder.checkpoints, 2)
        for iteration in iterations:
            store.save(iteration, {"part": Counter(iteration)})
        (folder.path / "metrics.jsonl").write_text("rows\n")
        return folder.path


def seen(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What changes when somebody touches a folder."""
    states = {str(path): path.lstat() for path in (folder, *folder.rglob("*"))}
    return {path: (state.st_mtime_ns, state.st_ctime_ns, state.st_size) for path, state in states.items()}


def reached(folder: RunFolder) -> int:
    return CheckpointStore(folder.checkpoints, 2).restore({"part": Counter()})


def test_fresh_moves_the_run_aside_whole_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = with_checkpoints(tmp_path, "mine", 4, 5)
    with begin(config(tmp_path, "mine", seed=9), fresh=True) as folder:
        folder.record_start()
        assert folder.path == old and not folder.checkpoints.exists() and not (old / "metrics.jsonl").exists()
        assert json.loads((old / LABEL).read_text())["seed"] == 9
    line = capsys.readouterr().out.splitlines()[-1]
    (aside,) = [path for path in tmp_path.iterdir() if path != old]
    assert aside.name.startswith("mine.before-20") and "new run mine; " in line and str(aside) in line
    with begin(config(tmp_path, aside.name)) as kept:
        assert reached(kept) == 5 and (aside / "metrics.jsonl").read_text() == "rows\n"


def test_fresh_twice_in_a_second_keeps_both(tmp_path: Path) -> None:
    for iteration in (1, 2):
        with begin(config(tmp_path, "mine"), fresh=True) as folder:
            CheckpointStore(folder.checkpoints, 2).save(iteration, {"part": Counter(iteration)})
    begin(config(tmp_path, "mine"), fresh=True).release()
    assert len(list(tmp_path.glob("mine.before-*"))) == 2


def test_fresh_without_a_name_begins_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = with_checkpoints(tmp_path, "old", 1)
    before = seen(old)
    with begin(config(tmp_path), fresh=True) as folder:
        folder.record_start()
        assert folder.path != old and not folder.checkpoints.exists()
    assert begun(tmp_path) == folder.path  # the newest goes on by default
    assert seen(old) == before and f"codezero: new run {folder.path.name}\n" in capsys.readouterr().out


def test_fresh_does_not_take_a_run_from_under_a_process(tmp_path: Path) -> None:
    with begin(config(tmp_path, "mine")) as owned:
        CheckpointStore(owned.checkpoints, 2).save(1, {"part": Counter(1)})
        with pytest.raises(ConfigError, match="in use by another process"):
            begin(config(tmp_path, "mine"), fresh=True)
        assert reached(owned) == 1


@pytest.mark.parametrize("by", ["name", "folder"])
def test_a_fork_begins_with_the_newest_checkpoint_and_touches_nothing(
    tmp_path: Path, by: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = with_checkpoints(tmp_path / "runs", "mine", 6, 7)
    before = seen(source)
    run = "mine" if by == "name" else str(source)
    with begin(config(tmp_path / "runs", "other", seed=5), fork=run) as folder:
        assert reached(folder) == 7 and not (folder.path / "metrics.jsonl").exists()
        with pytest.raises(ConfigError, match="in use"):  # the lock came along
            begin(config(tmp_path / "runs", "other", seed=5))
    label = json.loads((folder.path / LABEL).read_text())
    assert label[ORIGIN] == {"run": str(source.resolve()), "checkpoint": "00000007"} and label["seed"] == 5
    assert (
        seen(source) == before and "new run other, which begins with checkpoint 00000007 of" in capsys.readouterr().out
    )
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["mine", "other"]
    with begin(config(tmp_path / "runs", "other", seed=5)) as again:  # and goes on by itself from now on
        assert reached(again) == 7


def test_a_fork_without_a_name_is_the_newest_run(tmp_path: Path) -> None:
    with_checkpoints(tmp_path, "mine", 3)
    with begin(config(tmp_path), fork="mine") as folder:
        assert folder.path.name.startswith("20") and reached(folder) == 3
    assert begun(tmp_path) == folder.path


def test_a_fork_of_a_running_run_and_of_a_damaged_one(tmp_path: Path) -> None:
    source = with_checkpoints(tmp_path, "mine", 6, 7)
    os.truncate(source / "checkpoints/00000007/part/inner/bulk.bin", 5)
    with begin(config(tmp_path, "mine")), begin(config(tmp_path, "other"), fork="mine") as folder:
        assert reached(folder) == 6


def test_what_a_killed_fork_left_is_no_run_and_is_cleared(tmp_path: Path) -> None:
    with_checkpoints(tmp_path, "mine", 2)
    (tmp_path / ".fork/checkpoints/00000009").mkdir(parents=True)
    with begin(config(tmp_path)) as folder:
        assert folder.path.name not in ("mine", ".fork")
    with begin(config(tmp_path, "other"), fork="mine") as folder:
        assert [path.name for path in folder.checkpoints.iterdir()] == ["00000002"]


def test_every_start_says_which_run_it_is_and_how_far_it_has_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(folder: RunFolder) -> str:
        folder.release()
        return capsys.readouterr().out

    assert said(begin(config(tmp_path, "mine"))) == "codezero: new run mine\n"
    with begin(config(tmp_path, "mine")) as folder:
        assert "new run mine" in capsys.readouterr().out, "it stopped before its first checkpoint"
        store = CheckpointStore(folder.checkpoints, 5)
        for iteration in (3, 7):
            store.save(iteration, {"part": Counter(iteration)})
        rows = [exam_row(0, 0.2), row(3), exam_row(5, 0.412), row(7), exam_row(10, 0.9)]
        (folder.path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    wanted = "codezero: goes on with mine at iteration 7, executed average@8 41.2 %\n"
    assert said(begin(config(tmp_path, "mine"))) == wanted, "what comes after the checkpoint is done again"
    (folder.path / "checkpoints/00000007/manifest.json").write_text("{")
    assert "at iteration 3, executed average@8 20.0 %" in said(begin(config(tmp_path, "mine")))
    (folder.path / "metrics.jsonl").unlink()
    assert said(begin(config(tmp_path, "mine"))) == "codezero: goes on with mine at iteration 3\n"
    assert not said(begin(config(tmp_path, "mine"), supervised=True)), "its node says so"
    assert not said(begin(config(tmp_path, "mine", resume=False))), "it is refused"
    assert "new run 20" in said(begin(config(tmp_path, resume=False)))


def test_what_cannot_be_forked_is_said_in_one_line(tmp_path: Path) -> None:
    with_checkpoints(tmp_path, "mine", 1)
    with_checkpoints(tmp_path, "empty")
    broken = with_checkpoints(tmp_path, "broken", 1)
    (broken / "checkpoints/00000001/part/value.json").write_text("7")
    refused: list[tuple[NodeConfig, str, type[Exception], str]] = [
        (config(tmp_path, "new"), "nobody", ConfigError, "--fork=nobody: there is no such run below"),
        (config(tmp_path, "new"), "", ConfigError, "--fork=: there is no such run below"),
        (config(tmp_path, "new"), "empty", CheckpointError, "can be used: there is none"),
        (config(tmp_path, "new"), "broken", CheckpointError, r"00000001 \(part/value.json"),
        (config(tmp_path, "mine"), "mine", ConfigError, "mine is there already; choose another run.name"),
        (config(tmp_path, "new", solver="other"), "mine", ConfigError, "model.solver=other, but .*mine was begun with"),
        (config(tmp_path, "new", resume=False), "mine", ConfigError, "run.resume=False does not; give one of them"),
    ]
    before = seen(tmp_path / "mine")
    for settings, run, kind, why in refused:
        with pytest.raises(kind, match=why) as caught:
            begin(settings, fork=run)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="give one of them"):
        begin(config(tmp_path, "mine"), fresh=True, fork="mine")
    assert seen(tmp_path / "mine") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "empty", "mine"]
