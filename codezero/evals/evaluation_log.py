"""What an eval has done so far, on disk: an eval that is killed goes on, and samples nothing twice.

An SQLite file for each choice of set, model and sampling. The attempts at a batch of tasks are on disk before they are
graded; sandbox and judge grade the same attempts.
"""

import hashlib
import sqlite3
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from codezero.errors import ConfigError, translated
from codezero.types import Completion

T = TypeVar("T")
SAMPLER = ""
"""In the place of a grader: who wrote the attempts."""
SETUP = (
    "PRAGMA locking_mode=EXCLUSIVE",  # the lock is held until the file is closed
    "BEGIN EXCLUSIVE",
    "CREATE TABLE IF NOT EXISTS batch(number INTEGER, by TEXT, entry BLOB NOT NULL, PRIMARY KEY(number, by))",
    "COMMIT",
)


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

    @property
    def file_name(self) -> str:
        """The same for the same choices only."""
        return f"{self.set}-{hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]}.db"


class SampledBatch(msgspec.Struct, frozen=True):
    tasks: list[str]
    attempts: list[list[Completion]]
    """[tasks, samples] Without token ids and log-probs."""


class GradedBatch(msgspec.Struct, frozen=True):
    tasks: list[str]
    passed: list[list[bool | None]]
    """[tasks, samples] None: could not be told."""
    truncated: int
    """Attempts that reached the limit of their length."""
    without_code: int
    undecided: list[Annotated[str, Meta(max_length=400)]]
    """Why, for each that could not be told."""


class EvaluationLog(AbstractContextManager["EvaluationLog"]):
    """An open file; `by`: who grades, and with which settings. Raises ConfigError when another process has the file, or
    when it is damaged."""

    def __init__(self, folder: Path, choices: Choices, by: str) -> None:
        self.path, self._by = folder / choices.file_name, by
        fault = f"{self.path} cannot be written"
        with translated(ConfigError, fault, OSError, sqlite3.Error, mend="choose another --into"):
            folder.mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(self.path, timeout=0, isolation_level=None)
        try:
            for statement in SETUP:
                self._sql.execute(statement)
        except sqlite3.Error as error:
            self._sql.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise ConfigError(f"{self.path} is in use by another eval; wait, or choose another --into") from error
            raise self._damaged(error) from error

    def __exit__(self, *_: object) -> None:
        self._sql.close()  # gives the lock back

    def sampled(self, batch: int) -> SampledBatch | None:
        return self._read(batch, SAMPLER, SampledBatch)

    def graded(self, batch: int) -> GradedBatch | None:
        return self._read(batch, self._by, GradedBatch)

    def write(self, batch: int, entry: SampledBatch | GradedBatch) -> None:
        """On disk when it returns."""
        by = SAMPLER if isinstance(entry, SampledBatch) else self._by
        self._sql.execute("INSERT INTO batch VALUES(?,?,?)", (batch, by, msgspec.json.encode(entry)))

    def _read(self, batch: int, by: str, form: type[T]) -> T | None:
        try:
            row = self._sql.execute("SELECT entry FROM batch WHERE number=? AND by=?", (batch, by)).fetchone()
            return row and msgspec.json.decode(row[0], type=form)
        except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:  # of an entry that somebody wrote
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> ConfigError:
        return ConfigError(f"{self.path} cannot be read ({error}); move the file away to begin anew")
