"""The lines that were appended to a file since the last look, within fixed memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from codezero.monitor.store import MAX_LINE

CHUNK = 1 << 20
"""Bytes read at once."""
PROOF = 256
"""Bytes before the place that was read to; where they have changed, the file was written anew."""


class Tail:
    """A place in a growing file. Only whole lines are given out, and none twice.

    budget: bytes read of what was there at the first look; of more, the beginning and the end. None: everything.
    """

    def __init__(self, path: Path, *, budget: int | None = None) -> None:
        self.path = path
        self._budget = budget
        self._file: tuple[int, int] = (0, 0)
        self._place: int = 0
        """The first byte that was not given out."""
        self._proof = b""

    def look(self) -> tuple[bool, Iterator[bytes]]:
        """Whether the file is another than before, and its new lines, without newline; use them up at once.

        No file is an empty one. Raises OSError.
        """
        try:
            stream = self.path.open("rb")
        except FileNotFoundError:
            anew = self._place > 0
            self._file, self._place, self._proof = (0, 0), 0, b""
            return anew, iter(())
        told = os.fstat(stream.fileno())
        file = (told.st_dev, told.st_ino)
        anew = file != self._file or told.st_size < self._place or not self._proven(stream)
        if anew:
            self._file, self._place, self._proof = file, 0, b""
        return anew, self._lines(stream, told.st_size)

    def unread(self) -> int:
        """Bytes that the next look would give out; all of them where the file is another."""
        try:
            told = self.path.stat()
        except OSError:
            return 0
        same = (told.st_dev, told.st_ino) == self._file and told.st_size >= self._place
        return told.st_size - self._place if same else told.st_size

    def _proven(self, stream: BinaryIO) -> bool:
        stream.seek(self._place - len(self._proof))
        return stream.read(len(self._proof)) == self._proof

    def _lines(self, stream: BinaryIO, size: int) -> Iterator[bytes]:
        with stream:
            if self._place == 0 and self._budget is not None and size > self._budget:
                yield from self._until(stream, self._budget // 2)
                self._place = size - self._budget // 2
                stream.seek(self._place)
                self._place += len(stream.readline(MAX_LINE))  # torn by the leap
            yield from self._until(stream, size)
            stream.seek(max(0, self._place - PROOF))
            self._proof = stream.read(min(PROOF, self._place))

    def _until(self, stream: BinaryIO, end: int) -> Iterator[bytes]:
        """Whole lines from the present place to `end`. One longer than MAX_LINE comes as an empty one."""
        stream.seek(self._place)
        rest, overlong = b"", False
        place = self._place
        while place < end and (chunk := stream.read(min(CHUNK, end - place))):
            place += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._place += len(line) + 1
                yield b"" if overlong or len(line) >= MAX_LINE else line
                overlong = False
            if len(rest) >= MAX_LINE:
                self._place, rest, overlong = self._place + len(rest), b"", True
