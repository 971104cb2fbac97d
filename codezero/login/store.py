"""The login's folder: files that only their owner may read, written whole or not at all, and one lock over them.

`codezero logout` works on the same files from another process, so whoever changes several of them holds the lock.
"""

import contextlib
import time
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import msgspec

from codezero.errors import LoginError, translated
from codezero.system.files import UNDECODABLE, Lock, flush, read_private, write_atomic, write_new

T = TypeVar("T")

MAX_FILE = 64 << 10
"""Bytes."""
LOCK = "login.lock"
LOCK_SECONDS = 5.0


class Folder:
    """A folder of mode 0700 with files of mode 0600. Raises LoginError, and DiskFullError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with translated(LoginError, f"login.directory={path} cannot be used", OSError):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)

    def read(self, name: str) -> bytes | None:
        """None: there is no such file."""
        path = self.path / name
        if path.is_symlink():
            raise LoginError(f"{path} is a link; move it away")
        try:
            return read_private(path, MAX_FILE, LoginError)
        except LoginError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def write(self, name: str, content: bytes) -> None:
        """In place of what was there; on the disk when this returns."""
        with self._changing(name, "written"):
            write_atomic(self.path / name, content, private=True, durable=True)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that is not there yet; False, and nothing is written, where it is."""
        with self._changing(name, "written"):
            return write_new(self.path / name, content, refusal=LoginError)

    def delete(self, name: str) -> None:
        """May be gone already. What a disk keeps of deleted files is beyond any program's reach."""
        with self._changing(name, "deleted"):
            (self.path / name).unlink(missing_ok=True)

    def load(self, name: str, of: type[T]) -> T | None:
        """The JSON in a file. None: there is no such file."""
        content = self.read(name)
        try:
            return None if content is None else msgspec.json.decode(content, type=of)
        except UNDECODABLE:  # its text could show a part of the file
            raise LoginError(f"{self.path / name} is damaged; restore a copy, or move it away") from None

    def save(self, name: str, value: msgspec.Struct) -> None:
        self.write(name, msgspec.json.encode(value))

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Alone among all processes, each of which only reads and writes small files. Not to be nested."""
        path, deadline = self.path / LOCK, time.monotonic() + LOCK_SECONDS
        with contextlib.closing(Lock(path, LoginError)) as lock:
            while not lock.take():
                if time.monotonic() >= deadline:
                    raise LoginError(f"another process holds {path}; end it, then try again")
                time.sleep(0.01)
            yield

    @contextlib.contextmanager
    def _changing(self, name: str, done: str) -> Generator[None]:
        """What happens in the block is on the disk afterwards."""
        with translated(LoginError, f"{self.path / name} cannot be {done}", OSError):
            yield
            flush(self.path)
