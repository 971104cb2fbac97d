"""Files: written whole or not at all, private ones, whether the disk has room, and rows from anybody.

Rows are lines of JSON, plain or gzipped, with a byte order mark or without, or one JSON array. What a file is stands in
its first bytes, whatever its name, but for Parquet. Memory is bounded by the longest line, or by MAX_ARRAY."""

import contextlib
import errno
import fcntl
import gzip
import os
import re
import shutil
import sqlite3
import stat
import tempfile
import time
import zlib
from collections.abc import Generator, Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, TypeVar, cast

import msgspec

from codezero.errors import ChainError, CodeZeroError, DiskFullError, ProblemError, WalletError, translated

Schema = TypeVar("Schema")
Address = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-fA-F]{40}\Z")]  # of an account or a contract
Hash = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-fA-F]{64}\Z")]  # of a block, a transaction or an event
Quantity = Annotated[str, msgspec.Meta(pattern=r"\A0x[0-9a-fA-F]{1,64}\Z")]
Hex = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # a SHA-256
PeerId = Annotated[str, msgspec.Meta(pattern=r"\A[1-9A-HJ-NP-Za-km-z]{32,64}\Z")]
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # Of msgspec; ValidationError is one
LOCAL = "choose another folder, a local one if this file system lacks locks (NFS, SMB, FUSE)"
MAX_ARRAY = 256 << 20  # Bytes of a file that is one JSON array
UNPACKED, RATIO = 32 << 20, 100  # Bytes that any gzipped file may unpack to, and more for each of its own
BYTE_ORDER_MARK, GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"
SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet", ".csv")  # Of files in a folder; one that is named may have any name
# A string, or what Python and pandas write where a number is missing, and JSON does not know.
NO_NUMBER = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|-?\b(?:NaN|Infinity)\b', re.DOTALL)
LEAST = 4 << 20  # Bytes. Below this a disk counts as full: not even a small model's checkpoint fits


def beside_package(name: str) -> Path:
    """A folder of the checkout, or its copy inside an installed package."""
    package = Path(__file__).resolve().parents[1]
    beside = package.parent / name
    return beside if beside.is_dir() and (package.parent / "pyproject.toml").is_file() else package / name


def open_database(path: Path, schema: str = "", *, seconds: float, **options: Any) -> sqlite3.Connection:
    """Open, and run `schema`, a script; empty: only to read. seconds: for a lock. Raises sqlite3.Error."""
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if schema else 'ro'}"
    with contextlib.ExitStack() as stack:
        options |= {"uri": True, "timeout": seconds, "check_same_thread": False}
        connection = stack.enter_context(contextlib.closing(sqlite3.connect(uri, **options)))
        connection.executescript(schema)
        stack.pop_all()
    return connection


def lacks_room(error: Exception) -> bool:
    """Recognize a full disk, also in errors of Rust libraries, which have the number in their text alone."""
    numbers = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in numbers or any(f"(os error {number})" in str(error) for number in numbers)


def full(folder: Path) -> str:
    """Say what is wrong with the disk that a folder is on; empty: nothing, or unknown."""
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free
        if free < LEAST:
            return f"the disk is full, {free / (1 << 20):.1f} MiB are left for {folder}: make room, and the run goes on"
    return ""


@contextlib.contextmanager
def replacing(path: Path, *, private: bool = False, durable: bool = False) -> Generator[IO[bytes]]:
    """A file that takes the place of `path` once the block has ended well, and is removed otherwise. For one writer.

    private: mode 0600. durable: on the disk before it takes the place. Raises OSError."""
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
    """Open for reading. Raises OSError, also for what is no regular file: a pipe would hang."""
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
    """Decode a file of at most `limit` bytes. Raises OSError or ValueError."""
    try:
        return msgspec.json.decode(read_bounded(path, limit), type=schema)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_known(path: Path, schema: type[Schema], limit: int) -> Schema | None:
    """Decode a file of at most `limit` bytes; None where there is none that can be used."""
    with contextlib.suppress(OSError, ValueError):
        return read_json(path, schema, limit)
    return None


def read_private(path: Path, limit: int, refusal: type[CodeZeroError] = WalletError) -> bytes:
    """Read at most `limit` bytes of a regular file that nobody else may read. Raises `refusal`."""
    with translated(refusal, str(path), OSError, ValueError):
        return read_bounded(path, limit, private=True)


def take_lock(file: int | IO[Any], *, shared: bool = False) -> bool:
    """Take the flock(2) on this open file, if it is free. Never waits; kill -9 gives it back too. Raises OSError."""
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
        self.close, self.fileno = self._file.close, self._file.fileno

    def take(self, shared: bool = False) -> bool:
        """Take it, if it is free. Never waits. A shared lock goes together with other shared ones. False once closed.
        Raises `refusal`."""
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


def data_files(path: Path) -> list[Path]:
    """The file itself, or those with rows below a folder. Raises ProblemError when there is none, and for a pipe."""
    files = [at for at in sorted(path.rglob("*")) if at.name.endswith(SUFFIXES)] if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise ProblemError(f"{path} is neither a file nor a directory with {', '.join(SUFFIXES)}")
    if odd := [at for at in files if not at.is_file()]:
        raise ProblemError(f"{odd[0]} is a pipe, a device or a folder, and rows are read twice; save them as a file")
    return files


def decode_row(line: bytes, schema: type[Schema]) -> Schema:
    """One row of JSON; NaN and the infinities are null, and what of it is not used is ignored. Raises as msgspec."""
    try:
        return msgspec.json.decode(line, type=schema)
    except msgspec.DecodeError:
        if b"NaN" not in line and b"Infinity" not in line:
            raise
    return msgspec.json.decode(NO_NUMBER.sub(lambda match: match[1] or b"null", line), type=schema)


class BadRows:
    """Rows that cannot be used: how many, and what is wrong with the first of them."""

    MOST = 10

    def __init__(self) -> None:
        self.count, self._first = 0, list[str]()

    def add(self, fault: Exception) -> None:
        self.count += 1
        self._first = [*self._first, str(fault)[:300]][: self.MOST]

    def __str__(self) -> str:
        more = f"; and {self.count - self.MOST} more" if self.count > self.MOST else ""
        return f"{'; '.join(self._first)}{more}"

    def refuse(self, skip: bool) -> None:
        """Raise ProblemError when there is one, unless they may be skipped."""
        if self.count and not skip:
            raise ProblemError(f"{self}. Nothing was begun; mend {self.count}, or go on without them by --skip-bad")


def refuse(fault: ProblemError, bad: BadRows | None) -> None:
    """Note it, or raise it where nobody takes notes."""
    if bad is None:
        raise fault
    bad.add(fault)


def json_lines(file: BufferedReader, longest: int) -> Iterator[bytes]:
    """Each line, blank ones too, or each item of an array; of one above `longest` bytes one byte more than that. Raises
    OSError, and ValueError for what is no JSON, is torn, or unpacks to more than it may."""
    packed = file.peek(2)[:2] == GZIP
    room = UNPACKED + RATIO * os.fstat(file.fileno()).st_size if packed else MAX_ARRAY
    stream = cast(BufferedReader, gzip.GzipFile(fileobj=file)) if packed else file
    try:
        begun, at_start = False, True
        for piece in iter(lambda: stream.readline(longest + 1), b""):
            room -= len(piece)
            if packed and room < 0:
                raise ValueError(f"unpacks to more than {RATIO} times its size")
            text = piece if begun else piece.removeprefix(BYTE_ORDER_MARK).lstrip()
            if not begun and text[:1] == b"[":
                yield from _items(text + stream.read(min(room, MAX_ARRAY) + 1))
                return
            if not begun and text and text[:1] != b"{":
                raise ValueError("neither JSON lines nor a JSON array, gzipped or not, nor Parquet named .parquet")
            if at_start:
                yield text
            begun, at_start = begun or bool(text), piece.endswith(b"\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"torn, or no gzip file: {error}") from error


def _items(text: bytes) -> Iterator[bytes]:
    if len(text) > MAX_ARRAY:
        raise ValueError(f"an array above {MAX_ARRAY >> 20} MiB; write one row a line")
    try:
        yield from map(bytes, decode_row(text, list[msgspec.Raw]))
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error


def link_tree(source: Path, target: Path, *without: str) -> None:
    """Put hard links to the files below `source` in place of `target`, or copies where a file system has none, but for
    those of these names. Raises OSError."""
    for way in (os.link, shutil.copy2):
        shutil.rmtree(target, ignore_errors=True)
        with contextlib.suppress(*[OSError] * (way is os.link)):
            shutil.copytree(source, target, copy_function=way, ignore=shutil.ignore_patterns(*without))
            return
