"""Files: one creator wins, also where the file system has no hard links or modes."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from codezero.errors import DiskFullError, WalletError
from codezero.monitor.hub import stage
from codezero.system.files import read_private, write_new


def refused(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("lacking", [[], ["link"], ["link", "fchmod"]], ids=str)
def test_of_many_creators_one_wins_and_all_read_its_content(
    lacking: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in lacking:
        monkeypatch.setattr(os, name, refused)

    def create(number: int) -> tuple[bool, bytes]:
        return write_new(tmp_path / "key", str(number).encode() * 99), read_private(tmp_path / "key", 1 << 10)

    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(create, range(10, 34)))
    assert sum(won for won, _ in made) == 1 and len({content for _, content in made}) == 1
    assert os.listdir(tmp_path) == ["key"]


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(("failing", "error"), [(full, DiskFullError), (refused, WalletError)])
def test_what_cannot_be_written_leaves_nothing(
    failing: Callable[..., None], error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(error, match="cannot write"):
        write_new(tmp_path / "key", b"secret")
    assert not os.listdir(tmp_path)


def test_a_policy_is_copied_where_it_cannot_be_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "policy" / "part").mkdir(parents=True)
    (tmp_path / "policy" / "part" / "weights").write_bytes(b"w")
    (tmp_path / "policy" / "base.json").write_text("{}")
    monkeypatch.setattr(os, "link", refused)
    stage(tmp_path / "policy", tmp_path / "staged", "card")
    assert sorted(path.name for path in (tmp_path / "staged").rglob("*")) == ["README.md", "part", "weights"]
