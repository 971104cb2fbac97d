"""The login's folder: files that only their owner may read, written whole or not at all, and one lock over them.

`codezero logout` works on the same files from another process, so whoever changes several of them holds the lock.
"""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import msgspec

from codezero.errors import DiskFullError, LoginError
from codezero.system.files import write_atomic, write_new

T = TypeVar("T")

MAX_FILE = 64 << 10
"""Bytes."""
LOCK = "login.lock"
LOCK_SECONDS = 5.0
"""A holder only reads and writes small files."""


class Folder:
    """A folder of mode 0700 with files of mode 0600. Raises LoginError, always."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if stat.S_IMODE(path.stat().st_mode) != 0o700:
                path.chmod(0o700)
        except OSError as error:
            raise LoginError(f"login.directory={path} cannot be used: {error.strerror}") from error

    def read(self, name: str) -> bytes | None:
        """None: there is no such file."""
        path = self.path / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise LoginError(f"{path} is not a regular file; move it away")
                if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                    raise LoginError(f"{path} is open to other users of this machine; run: chmod 600 {path}")
                content = file.read(MAX_FILE + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LoginError(f"{path} cannot be read: {error.strerror}") from error
        if len(content) > MAX_FILE:
            raise LoginError(f"{path} is longer than the {MAX_FILE} bytes it may have; restore a copy")
        return content

    def write(self, name: str, content: bytes) -> None:
        """In place of what was there; on the disk when this returns."""
        path = self.path / name
        try:
            write_atomic(path, content, private=True, durable=True)
            self._sync()
        except OSError as error:
            raise LoginError(f"{path} cannot be written: {error.strerror}") from error

    def create(self, name: str, content: bytes) -> bool:
        """Never over a file that is there. Did this call make it?"""
        path = self.path / name
        try:
            created = write_new(path, content, refusal=LoginError)
            self._sync()
        except DiskFullError as error:
            raise LoginError(str(error)) from error
        except OSError as error:
            raise LoginError(f"{path} cannot be written: {error.strerror}") from error
        return created

    def delete(self, name: str) -> None:
        """May be gone already. What a disk keeps of deleted files is beyond any program's reach."""
        path = self.path / name
        try:
            path.unlink(missing_ok=True)
            self._sync()
        except OSError as error:
            raise LoginError(f"{path} cannot be deleted: {error.strerror}") from error

    def load(self, name: str, of: type[T]) -> T | None:
        """The JSON in a file. None: there is no such file."""
        content = self.read(name)
        if content is None:
            return None
        try:
            return msgspec.json.decode(content, type=of)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # its text could show a part of the file
            raise LoginError(f"{self.path / name} is damaged; restore a copy, or move it away") from None

    def save(self, name: str, value: msgspec.Struct) -> None:
        self.write(name, msgspec.json.encode(value))

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Alone among all processes. Not to be nested."""
        try:
            descriptor = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LoginError(f"{self.path / LOCK} cannot be opened: {error.strerror}") from error
        try:
            until = time.monotonic() + LOCK_SECONDS
            while not _take(descriptor):
                if time.monotonic() > until:
                    raise LoginError(f"another process holds {self.path / LOCK}; end it, then try again")
                time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
