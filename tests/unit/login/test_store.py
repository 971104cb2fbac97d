"""The login's folder has one lock, which is waited for and not for ever."""

import fcntl
from pathlib import Path

import pytest

from codezero.errors import LoginError
from codezero.login import store
from codezero.login.store import LOCK, Folder


def test_a_lock_that_another_process_keeps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.05)
    folder = Folder(tmp_path)
    with (tmp_path / LOCK).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LoginError, match=r"another process holds .*login\.lock"), folder.locked():
            raise AssertionError("it was not alone")
    with folder.locked():
        assert (tmp_path / LOCK).exists()
