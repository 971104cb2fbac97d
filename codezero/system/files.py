"""Files: written whole or not at all, private ones, and whether the disk has room."""

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, TypeVar

import msgspec

from codezero.errors import ChainError, CodeZeroError, DiskFullError, WalletError, translated

Schema = TypeVar("Schema")
Address = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-fA-F]{40}\Z")]  # of an account or a contract
Hash = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-fA-F]{64}\Z")]  # of a block, a transaction or an event
Quantity = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-fA-F]{1,64}\Z")]
Hex = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # a SHA-256
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises over bytes of another form, ValidationError included."""
LOCAL = "choose another folder, a local one if this file system lacks locks (NFS, SMB, FUSE)"
LEAST = 4 << 20
"""Bytes. Below this a disk counts as full: not even a small model's checkpoint fits."""


def beside_package(name: str) -> Path:
    """A folder of the checkout, or its copy inside an installed package."""
    package = Path(__file__).resolve().parents[1]
    beside = package.parent / name
    return beside if beside.is_dir() and (package.parent / "pyproject.toml").is_file() else package / name


@contextlib.contextmanager
def closed_on_failure(connection: sqlite3.Connection) -> Generator[None]:
    """For what is done first with a file that may be damaged, or somebody else's."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def lacks_room(error: Exception) -> bool:
    """Also of errors of Rust libraries, which have the number in their text alone."""
    numbers = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in numbers or any(f"(os error {number})" in str(error) for number in numbers)


def full(folder: Path) -> str:
    """What is wrong with the disk that a folder is on; empty: nothing, or unknown."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < LEAST:
            return f"the disk is full, {free / (1 << 20):.1f} MiB are left for {folder}: make room, and the run goes on"
    return ""


@contextlib.contextmanager
def replacing(path: Path, *, private: bool = False, durable: bool = False) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` once the block has ended well, and is removed otherwise. For one writer.

    private: mode 0600. durable: on the disk before it takes the place. Raises OSError.
    """
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)  # of a process that was killed
    try:
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags, 0o600 if private else 0o666)) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, content: bytes | str, *, private: bool = False, durable: bool = False) -> None:
    """All of `content` or what was there before; text as UTF-8. Raises OSError."""
    with replacing(path, private=private, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_new(path: Path, content: bytes, mode: int = 0o600, refusal: type[CodeZeroError] = WalletError) -> bool:
    """Create a file of this mode, all or nothing; False where there is one already. Raises `refusal`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                with contextlib.suppress(PermissionError):  # a file system without modes
                    os.fchmod(handle, mode)
                file.flush()
                os.fsync(handle)
            return _placed(part, path)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        kind = DiskFullError if lacks_room(error) else refusal
        raise kind(f"cannot write {path}: {error.strerror}") from error


def _placed(part: str, path: Path) -> bool:
    """Give a file its name; False where that is taken. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        try:
            os.link(part, path)
        except OSError:  # without hard links exclusive creation decides whose it is, and a rename fills it
            path.touch(exist_ok=False)
            os.replace(part, path)
        return True
    end = time.monotonic() + 1.0
    while not path.lstat().st_size and time.monotonic() < end:  # another process is about to fill it
        time.sleep(0.01)
    return False


def open_regular(path: Path) -> BinaryIO:
    """For reading. Raises OSError, also for what is no regular file: a pipe would hang."""
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_bounded(path: Path, limit: int, *, private: bool = False) -> bytes:
    """A regular file's content. Raises OSError, and ValueError for one above `limit` bytes, or one that has to be
    `private` and that others may read."""
    with open_regular(path) as file:
        if private and os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"open to other users of this machine; run: chmod 600 {path}")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"larger than {limit} bytes")
    return content


def read_json(path: Path, schema: type[Schema], limit: int) -> Schema:
    """What a file of at most `limit` bytes holds. Raises OSError or ValueError."""
    try:
        return msgspec.json.decode(read_bounded(path, limit), type=schema)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_private(path: Path, limit: int, refusal: type[CodeZeroError] = WalletError) -> bytes:
    """At most `limit` bytes of a regular file that nobody else may read. Raises `refusal`."""
    with translated(refusal, str(path), OSError, ValueError):
        return read_bounded(path, limit, private=True)


def take_lock(file: int | IO[Any], *, shared: bool = False) -> bool:
    """Is the flock(2) on this open file taken now? Never waits; kill -9 gives it back too. Raises OSError."""
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return True
    return False


class Lock:
    """A lock file; its directory is made where it is missing. `close` gives it back, also twice. Raises `refusal`."""

    def __init__(self, path: Path, refusal: type[CodeZeroError] = ChainError) -> None:
        self._path, self._refusal = path, refusal
        with translated(refusal, f"cannot open {path}", OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b")
        self.close = self._file.close

    def take(self, shared: bool = False) -> bool:
        """Is it ours now? Never waits. A shared lock goes together with other shared ones. False once closed.

        Raises `refusal`.
        """
        with translated(self._refusal, f"{self._path} cannot be locked", OSError, mend=LOCAL):
            return not self._file.closed and take_lock(self._file.fileno(), shared=shared)


def flush(path: Path) -> None:
    """Have what was written to a file, or the names in a folder, on the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def set_aside(path: Path, most: int = 10 << 20) -> Path:
    """`path`, for appending another process's output; an old file above `most` bytes is moved to PATH.1 first."""
    if path.exists() and path.stat().st_size > most:
        path.replace(path.with_name(f"{path.name}.1"))
    return path
