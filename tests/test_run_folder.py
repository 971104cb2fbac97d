"""A run folder has one owner, is found again by default, and is never mixed up with another run's."""

from pathlib import Path
from typing import Any

import pytest

from codezero.config import NodeConfig, RunConfig
from codezero.errors import ConfigError
from codezero.run_folder import open_run_folder


def config(base: Path, *, name: str = "", seed: int = 0, resume: bool = True) -> NodeConfig:
    return NodeConfig(seed=seed, run=RunConfig(directory=str(base), name=name, resume=resume))


def test_the_newest_run_is_found_again(tmp_path: Path) -> None:
    with open_run_folder(config(tmp_path)) as first:
        pass
    with open_run_folder(config(tmp_path)) as again:
        assert again.path == first.path


@pytest.mark.parametrize("changed", [{"seed": 1}, {"resume": False}], ids=str)
def test_other_choices_begin_another_run(tmp_path: Path, changed: dict[str, Any]) -> None:
    with open_run_folder(config(tmp_path)) as first:
        pass
    with open_run_folder(config(tmp_path, **changed)) as other:
        assert other.path != first.path


def test_two_processes_never_share_a_folder(tmp_path: Path) -> None:
    with open_run_folder(config(tmp_path)) as first, open_run_folder(config(tmp_path)) as second:
        assert second.path != first.path
        with pytest.raises(ConfigError, match="in use by another process"):
            open_run_folder(config(tmp_path, name=first.path.name))


def test_a_named_run_refuses_other_choices(tmp_path: Path) -> None:
    open_run_folder(config(tmp_path, name="mine")).release()
    with pytest.raises(ConfigError, match=r"seed=7, but .* was begun with 0"):
        open_run_folder(config(tmp_path, name="mine", seed=7))


def test_a_damaged_label_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "run.json").write_text("{")
    with pytest.raises(ConfigError, match=r"mine/run\.json cannot be read"):
        open_run_folder(config(tmp_path, name="mine"))
