"""What an eval has done so far, on disk: an eval that is killed goes on, and samples nothing twice.

JSON lines, a file for each choice of set, model and sampling. A batch of attempts is one line, written before it is
graded; a last line that is cut off is dropped. Sandbox and judge grade the same attempts.
"""

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Annotated, BinaryIO, Self

import msgspec
from msgspec import Meta

from codezero.errors import ConfigError

FORMAT = 1
MAX_LINE = 256 << 20
"""Bytes."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What the attempts follow from."""

    set: str
    tasks: str
    """Digest of what the set is read from."""
    model: str
    """Digest of the policy."""
    samples: int
    max_new_tokens: int
    temperature: float
    seed: int
    format: int = FORMAT

    @property
    def file_name(self) -> str:
        """The same for the same choices only."""
        return f"{self.set}-{hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]}.jsonl"


class SampledAttempt(msgspec.Struct, frozen=True, array_like=True):
    """One completion."""

    text: str
    finished: bool
    """It ended by itself, and not at the limit of its length."""


class SampledBatch(msgspec.Struct, frozen=True, tag="sampled"):
    """The attempts at a batch of tasks."""

    batch: int
    tasks: list[str]
    attempts: list[list[SampledAttempt]]
    """[tasks, samples]"""


class GradedBatch(msgspec.Struct, frozen=True, tag="marked"):
    """What became of them."""

    batch: int
    by: str
    """Who graded them, and with which settings."""
    tasks: list[str]
    passed: list[list[bool | None]]
    """[tasks, samples] None: could not be told."""
    truncated: int
    """Attempts that reached the limit of their length."""
    without_code: int
    undecided: list[Annotated[str, Meta(max_length=400)]]
    """Why, for each that could not be told."""


class EvaluationLog:
    """An open file. Raises ConfigError when another process has it, or when it is of other choices or damaged."""

    def __init__(self, folder: Path, choices: Choices, by: str) -> None:
        self.path, self.by = folder / choices.file_name, by
        self._sampled: dict[int, tuple[int, int]] = {}
        """Where the line of a batch begins and how long it is: attempts are many and stay on disk."""
        self._graded: dict[int, GradedBatch] = {}
        self._file = self._open(folder)
        try:
            self._read(choices)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()  # gives the lock back

    def sampled(self, batch: int) -> SampledBatch | None:
        """The attempts of a batch, if there are any yet."""
        if batch not in self._sampled:
            return None
        start, length = self._sampled[batch]
        self._file.seek(start)
        return msgspec.json.decode(self._file.read(length), type=SampledBatch)

    def graded(self, batch: int) -> GradedBatch | None:
        return self._graded.get(batch)

    def write(self, entry: SampledBatch | GradedBatch) -> None:
        """On disk when it returns."""
        line = msgspec.json.encode(entry) + b"\n"
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(line)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._note(entry, start, len(line))

    def _open(self, folder: Path) -> BinaryIO:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open(self.path, "a+b")  # noqa: SIM115  kept open, closed by __exit__
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written ({error.strerror}); choose another place by --into"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise ConfigError(
                f"{self.path} is in use by another eval; wait for it, or choose another --into"
            ) from error
        return file

    def _read(self, choices: Choices) -> None:
        self._file.seek(0)
        start = 0
        for number, line in enumerate(iter(lambda: self._file.readline(MAX_LINE + 1), b""), 1):
            if not line.endswith(b"\n") and len(line) <= MAX_LINE:
                break  # of an eval that was killed while it wrote
            try:
                if number == 1:
                    if msgspec.json.decode(line, type=Choices) != choices:
                        raise ValueError("it is of other choices")
                else:
                    entry = msgspec.json.decode(line, type=SampledBatch | GradedBatch)
                    self._note(entry, start, len(line))
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise ConfigError(
                    f"{self.path}, line {number}, cannot be read ({error}); move the file away to begin anew"
                ) from error
            start += len(line)
        self._file.truncate(start)
        if not start:
            self._file.write(msgspec.json.encode(choices) + b"\n")
            self._file.flush()

    def _note(self, entry: SampledBatch | GradedBatch, start: int, length: int) -> None:
        if isinstance(entry, SampledBatch):
            self._sampled[entry.batch] = (start, length)
        elif entry.by == self.by:
            self._graded[entry.batch] = entry
