"""Files of rows from anybody: lines of JSON, plain or gzipped, with a byte order mark or without, or one JSON array.

What a file is stands in its first bytes, whatever its name, but for Parquet. Memory is bounded by the longest line, or
by MAX_ARRAY.
"""

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from codezero.errors import ProblemError

MAX_ARRAY = 256 << 20
"""Bytes of a file that is one JSON array."""
UNPACKED, RATIO = 32 << 20, 100
"""Bytes that any gzipped file may unpack to, and how many more for each of its own; JSON shrinks to a tenth."""
BYTE_ORDER_MARK, GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"
SUFFIXES = (".jsonl", ".jsonl.gz", ".parquet")
"""Of files in a folder; one that is named itself may have any name."""
NO_NUMBER = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")|-?\b(?:NaN|Infinity)\b', re.DOTALL)
"""A string, or what Python and pandas write where a number is missing, and JSON does not know."""

Schema = TypeVar("Schema")


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
    return msgspec.json.decode(NO_NUMBER.sub(lambda found: found[1] or b"null", line), type=schema)


class BadRows:
    """Rows that cannot be used: how many, and what is wrong with the first of them."""

    MOST = 10

    def __init__(self) -> None:
        self.count, self._first = 0, list[str]()

    def add(self, fault: Exception) -> None:
        self.count += 1
        if self.count <= self.MOST:
            self._first.append(str(fault)[:300])

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
    """Each line, blank ones too, or each item of an array; of one above `longest` bytes one byte more than that.

    Raises OSError, and ValueError for what is no JSON, is torn, or unpacks to more than it may.
    """
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
