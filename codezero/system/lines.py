"""Lines of JSON from files of anybody: plain or gzipped, with a byte order mark or without, or all in one JSON array.

What a file is stands in its first bytes, whatever its name. Memory is bounded by the longest line, or by MAX_ARRAY.
"""

import gzip
import os
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import cast

import msgspec

from codezero.errors import ProblemError

MAX_ARRAY = 256 << 20
"""Bytes of a file that is one JSON array."""
UNPACKED, RATIO = 32 << 20, 100
"""Bytes that any gzipped file may unpack to, and how many more for each of its own; JSON shrinks to a tenth."""
BYTE_ORDER_MARK, GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"


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
        yield from map(bytes, msgspec.json.decode(text, type=list[msgspec.Raw]))
    except (UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
