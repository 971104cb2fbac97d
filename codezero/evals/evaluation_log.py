"""What an eval has done so far, on disk: an eval that is killed goes on, and samples nothing twice.

JSON lines, a file for each choice of set, model and sampling. A batch of attempts is one line, written before it is
graded; a last line that is cut off is dropped. Sandbox and judge grade the same attempts.
"""

import hashlib
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from codezero.errors import ConfigError
from codezero.system.files import take_lock


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
    format: int = 1

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
        self.graded: dict[int, GradedBatch] = {}
        """By number of the batch."""
        self._sampled: dict[int, int] = {}
        """Where the line of a batch begins: attempts are many and stay on disk."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "a+b")  # noqa: SIM115  kept open, closed by __exit__
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be written ({error.strerror}); choose another --into") from error
        with ExitStack() as on_error:
            on_error.callback(self._file.close)
            self._read(choices)
            on_error.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()  # gives the lock back

    def sampled(self, batch: int) -> SampledBatch | None:
        """The attempts of a batch, if there are any yet."""
        if batch not in self._sampled:
            return None
        self._file.seek(self._sampled[batch])
        return msgspec.json.decode(self._file.readline(), type=SampledBatch)

    def write(self, entry: SampledBatch | GradedBatch) -> None:
        """On disk when it returns."""
        self._note(entry, self._file.seek(0, os.SEEK_END))
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, choices: Choices) -> None:
        if not take_lock(self._file):
            raise ConfigError(f"{self.path} is in use by another eval; wait, or choose another --into")
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break  # of an eval that was killed while it wrote
            try:
                if number > 1:
                    self._note(msgspec.json.decode(line, type=SampledBatch | GradedBatch), end)
                elif msgspec.json.decode(line, type=Choices) != choices:
                    raise ValueError("it is of other choices")
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"{self.path}, line {number}, cannot be read ({error}); move the file away to begin anew"
                ) from error
            end += len(line)
        self._file.truncate(end)
        if not end:
            self._file.write(msgspec.json.encode(choices) + b"\n")
            self._file.flush()

    def _note(self, entry: SampledBatch | GradedBatch, start: int) -> None:
        if isinstance(entry, SampledBatch):
            self._sampled[entry.batch] = start
        elif entry.by == self.by:
            self.graded[entry.batch] = entry
