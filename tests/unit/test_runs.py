"""A run folder has one owner, is found again by default, and is never mixed up with another run's."""

import contextlib
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from codezero.config import NodeConfig, RunConfig
from codezero.environments.code import CodeEnvironment
from codezero.errors import ChainError, ConfigError, IdentityError
from codezero.runs import AUTOMATIC, open_run_folder
from codezero.settings import compose, quoted
from codezero.swarm.identity import Identity
from codezero.system.files import Lock
from codezero.wiring.network import build_swarm


def config(base: Path, *, name: str = "", seed: int = 0, resume: bool = True) -> NodeConfig:
    return NodeConfig(seed=seed, run=RunConfig(directory=str(base), name=name, resume=resume))


def test_the_newest_run_is_found_again(tmp_path: Path) -> None:
    with open_run_folder(config(tmp_path)) as first:
        first.record_start()
    with open_run_folder(config(tmp_path)) as again:
        assert again.path == first.path


def test_a_run_that_somebody_named_goes_on_under_its_name_alone(tmp_path: Path) -> None:
    for name in ("mine", "mine.before-2025-11-22_10-00-00", "2025-11-22_10-00-00.mine"):
        with open_run_folder(config(tmp_path, name=name)) as named:
            named.record_start()
    with open_run_folder(config(tmp_path)) as bare:
        bare.record_start()
        assert AUTOMATIC.fullmatch(bare.path.name)
    with open_run_folder(config(tmp_path, name="mine")) as mine:
        mine.record_start()
    with open_run_folder(config(tmp_path)) as again:
        assert again.path == bare.path


def test_a_run_of_yesterday_that_nobody_named_is_found(tmp_path: Path) -> None:
    for name in ("2025-11-22_10-00-00", "2025-11-22_10-00-00-2"):
        with open_run_folder(config(tmp_path, name=name)) as folder:
            folder.record_start()
        with open_run_folder(config(tmp_path)) as found:
            assert found.path.name == name


@pytest.mark.parametrize("changed", [{"seed": 1}, {"resume": False}], ids=str)
def test_other_choices_begin_another_run(tmp_path: Path, changed: dict[str, Any]) -> None:
    with open_run_folder(config(tmp_path)) as first:
        first.record_start()
    with open_run_folder(config(tmp_path, **changed)) as other:
        assert other.path != first.path


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
    with pytest.raises(
        ConfigError, match=r"run\.directory: .*cannot be written and locked: No locks available; choose"
    ):
        open_run_folder(config(tmp_path))
    with (
        contextlib.closing(Lock(tmp_path / "wallet.lock")) as lock,
        pytest.raises(ChainError, match=r"; choose another"),
    ):
        lock.take()


def test_a_named_run_refuses_other_choices(tmp_path: Path) -> None:
    with open_run_folder(config(tmp_path, name="mine")) as folder:
        folder.record_start()
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
    with open_run_folder(config(tmp_path, name="mine", seed=7)) as folder:
        folder.record_start()
    assert '"seed": 7' in (tmp_path / "mine" / "run.json").read_text()


@pytest.mark.parametrize("name", ["a/b", "/tmp/x", "..", ".fork", "-x", "a\nb", "chain", "login", 130 * "x"])
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"run\.name=.* cannot name a run; use one folder name"):
        compose([f"run.name={quoted(name)}"])


@pytest.mark.parametrize("name", ["mine", "2026-11-22_22-00-00-2", "run 2.1", "été", "swarm_x"])
def test_an_ordinary_name_is_taken(name: str) -> None:
    assert compose([f"run.name={quoted(name)}"]).run.name == name


def test_a_swarm_of_one_holds_its_identity_as_every_other_node_does(tmp_path: Path) -> None:
    settings = compose([f"swarm.identity={quoted(tmp_path / 'swarm.pem')}", f"run.directory={quoted(tmp_path)}"])
    identity = Identity.load_or_create(tmp_path / "swarm.pem")
    with open_run_folder(settings) as folder, contextlib.ExitStack() as first, contextlib.ExitStack() as second:
        build_swarm(settings, CodeEnvironment(), identity, folder, first)
        with pytest.raises(IdentityError, match=r"in use.*swarm\.identity=FILE"):
            build_swarm(settings, CodeEnvironment(), identity, folder, second)
        first.close()
        build_swarm(settings, CodeEnvironment(), identity, folder, second)
