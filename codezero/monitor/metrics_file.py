"""`metrics.jsonl`: one flat JSON object a line, appended as the run goes, readable by anything.

A kill at any moment loses at most the line being written; it is cut off at the next opening. A file is followed within
fixed memory, however long the run."""

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from codezero.errors import ConfigError, DiskFullError, translated
from codezero.system.files import lacks_room, open_regular, replacing
from codezero.types import Metrics

FILE_NAME = "metrics.jsonl"
LABEL = "run.json"  # what makes a folder a run: the choices it was begun with
NODE_FILE = "node.json"  # who runs in this folder, for views of several nodes
KEYS = (
    "time", "iteration", "round", "seconds", "reward/mean", "difficulty/level", "tokens/sampled_per_second",
    "eval/average_at_8", "eval/pass_at_8", "eval/ci_low", "eval/ci_high", "eval/source", "judge/auroc",
    "train/loss", "train/entropy", "train/zero_spread_share", "swarm/peers", "swarm/external_share",
)  # fmt: skip
"""In every row, null when not measured this time. `time` is unix seconds; a row may have more."""

MAX_TEXT = 1_000  # characters of a string value
MAX_LINE = 1 << 16  # bytes of a line that is read
MAX_WHOLE = 2**53 - 1  # the largest integer that every JSON reader takes exactly
LARGEST = 1e300  # of a number that means anything; NaN is not below it either
MAX_BYTES = 32 << 20  # read of one file by default: some 20,000 iterations, half each from beginning and end

# Follows no nesting. One without a type does, and overflows the stack where a library raised the recursion limit.
_flat = msgspec.json.Decoder(dict[str, float | int | str | bool | None])


class MetricsFile:
    """The open, append-only file of one run; one process owns it."""

    def __init__(self, folder: Path) -> None:
        """Open or make `folder/metrics.jsonl`; what a kill tore, after the last newline, is cut off."""
        self.path = folder / FILE_NAME
        with translated(ConfigError, f"{self.path} cannot be used", OSError, mend="move it away"):
            self._stream: BinaryIO = self.path.open("a+b")
            size = self._stream.seek(0, os.SEEK_END)
        back = min(size, MAX_LINE)
        self._stream.seek(size - back)
        whole = self._stream.read(back).rfind(b"\n") + 1
        if whole < back:
            self._stream.truncate(size - back + whole)

    def append(self, row: Metrics) -> None:
        """Hand one row to the operating system; it survives a kill of this process from here on. Raises DiskFullError,
        after which none of it is there and it may be tried again."""
        end, line = os.fstat(self._stream.fileno()).st_size, _line(row)
        try:
            # Past the buffer, which would keep a row that found no room and write it before the next.
            while line:
                line = line[os.write(self._stream.fileno(), line) :]
        except OSError as error:
            if not lacks_room(error):
                raise
            os.truncate(self._stream.fileno(), end)
            raise DiskFullError(f"{self.path} cannot be written: {error.strerror}") from error

    def truncate_after(self, iteration: int) -> None:
        """Drop the rows of later iterations, which a crashed run did but never saved. Atomic."""
        self._stream.close()
        with replacing(self.path, durable=True) as target:
            rows = (row for line in Tail(self.path).poll()[1] if (row := parse(line)) is not None)
            target.writelines(_line(row) for row in rows if cast(int, row["iteration"]) <= iteration)
        self._stream = self.path.open("ab")

    def close(self) -> None:
        self._stream.close()


def number(row: Metrics, key: str) -> float | None:
    """A measured number that can be reckoned with; None for anything else."""
    value = row.get(key)
    return value if isinstance(value, int | float) and -LARGEST <= value <= LARGEST else None


def whole(row: Metrics, key: str) -> int | None:
    """A whole number from 0 to MAX_WHOLE; None for anything else."""
    value = number(row, key)
    return int(value) if value is not None and 0 <= value <= MAX_WHOLE else None


def _line(row: Metrics) -> bytes:
    whole = dict.fromkeys(KEYS) | {"time": round(time.time(), 3)} | row
    return json.dumps({key: _value(value) for key, value in whole.items()}, allow_nan=False).encode() + b"\n"


def _value(value: object) -> float | int | str | None:
    """Keep what a row may hold: JSON has no NaN, and a reader has no use for infinity."""
    if isinstance(value, str):
        return value[:MAX_TEXT]
    return value if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)) else None


def parse(line: bytes) -> Metrics | None:
    """None for a line that is no row."""
    try:
        row = _flat.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    iteration = row.get("iteration")
    if not isinstance(iteration, int) or isinstance(iteration, bool) or iteration < 0:
        return None
    return {key: _value(value) for key, value in row.items()}


PROOF = 256  # bytes before the place that was read to; where they have changed or are gone, the file was written anew


class Tail:
    """A place in a growing file. Only whole lines are given out, and none twice.

    budget: bytes read of what was there at the first look; of more, the beginning and the end. None: everything."""

    def __init__(self, path: Path, *, budget: int | None = None) -> None:
        self.path = path
        self._budget = budget
        self._place: int = 0  # the first byte that was not given out
        self._proof = b""

    def poll(self) -> tuple[bool, Iterator[bytes]]:
        """Tell if the file was written anew since, and give its new lines, without newline; use them up at once. No
        file is an empty one. Raises OSError."""
        try:
            stream = open_regular(self.path)
        except FileNotFoundError:
            anew, self._place, self._proof = self._place > 0, 0, b""
            return anew, iter(())
        stream.seek(self._place - len(self._proof))
        anew = stream.read(len(self._proof)) != self._proof
        if anew:
            self._place, self._proof = 0, b""
        return anew, self._lines(stream, os.fstat(stream.fileno()).st_size)

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
        """Whole lines from the present place to `end`. Those longer than MAX_LINE are left out."""
        stream.seek(self._place)
        overlong = False
        while part := stream.readline(min(MAX_LINE, end - self._place)):
            whole = part.endswith(b"\n")
            if not whole and len(part) < MAX_LINE:
                return
            self._place += len(part)
            if whole and not overlong:
                yield part[:-1]
            overlong = not whole
