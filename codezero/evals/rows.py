"""Rows of a published set from files of this machine: JSON lines, the same gzipped, and Parquet.

Files may come from anywhere. A row is bounded before it is decoded, only the fields that a set names are decoded, and
one row at a time is held. What is wrong is said in one line that names the file and the row.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from codezero.errors import ProblemError, translated
from codezero.system.lines import BadRows, decode_row, json_lines, refuse

MAX_ROW = 64 << 20
"""Bytes of a line, and of a row of Parquet. LiveCodeBench's longest, tests packed, are some tens of megabytes."""
MAX_ROWS = 20_000
MAX_GROUP = 4 << 30
"""Bytes that a row group of Parquet may say it unpacks to; rows are unpacked as they are read."""

Row = dict[str, object]


def digest_files(files: Sequence[Path]) -> str:
    """64 hex digits over the content of the files, in order. Raises ProblemError."""
    hasher = hashlib.sha256()
    for path in files:
        with translated(ProblemError, f"{path} cannot be read", OSError), path.open("rb") as file:
            hasher.update(hashlib.file_digest(file, "sha256").digest())
    return hasher.hexdigest()


def read_rows(files: Sequence[Path], fields: Collection[str], bad: BadRows | None = None) -> Iterator[tuple[str, Row]]:
    """(where, row) of each row in order, with those of `fields` that it has. Raises ProblemError.

    bad: takes lines that are no row; None: the first of them is raised.
    """
    import pyarrow

    unreadable = (OSError, ValueError, pyarrow.ArrowException)
    count = 0
    for path in files:
        rows = _parquet(path, fields) if path.name.endswith(".parquet") else _lines(path, fields)
        for number in itertools.count(1):
            where = f"{path}, row {number}"
            try:
                row = next(rows, None)
            except unreadable as error:
                why = str(error) if isinstance(error, ProblemError) else f"cannot be read: {_first_line(error)}"
                raise ProblemError(f"{where}: {why}") from error
            if row is None:
                break
            count += 1
            if count > MAX_ROWS:
                raise ProblemError(f"{where}: more than {MAX_ROWS} rows")
            if isinstance(row, ProblemError):
                refuse(ProblemError(f"{where}: {row}"), bad)
            else:
                yield where, row


def _lines(path: Path, fields: Collection[str]) -> Iterator[Row | ProblemError]:
    with path.open("rb") as file:
        for line in json_lines(file, MAX_ROW):
            if line.strip():
                yield _decode(line, fields)


def _decode(line: bytes, fields: Collection[str]) -> Row | ProblemError:
    if len(line) > MAX_ROW:
        return ProblemError(f"longer than {MAX_ROW >> 20} MiB")
    try:
        raw = decode_row(line, dict[str, msgspec.Raw])
        return {name: msgspec.json.decode(raw[name]) for name in fields if name in raw}
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return ProblemError(f"is no JSON object: {_first_line(error)}")


def _parquet(path: Path, fields: Collection[str]) -> Iterator[Row]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        metadata: Any = file.metadata
        for group in range(metadata.num_row_groups):
            if metadata.row_group(group).total_byte_size > MAX_GROUP:
                raise ProblemError(f"row group {group} says it has more than {MAX_GROUP >> 30} GiB")
        there = [name for name in fields if name in file.schema_arrow.names]
        for batch in file.iter_batches(batch_size=1, columns=there):
            if batch.nbytes > MAX_ROW:
                raise ProblemError(f"longer than {MAX_ROW >> 20} MiB")
            yield from cast("list[Row]", batch.to_pylist())


def _first_line(error: BaseException) -> str:
    message = str(error).strip() or type(error).__name__
    return message.splitlines()[0][:200]
