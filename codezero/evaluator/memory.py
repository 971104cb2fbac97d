"""What an evaluator remembers across restarts, as JSON files of the checkpoint."""

from pathlib import Path
from typing import Annotated

import msgspec

from codezero.evaluator.audit import Audited
from codezero.evaluator.calibration import Calibration
from codezero.evaluator.evidence import Gap, JudgedCanary, Look
from codezero.system.files import read_state
from codezero.types import Status

_WATCH, _COUNTS = "watch.json", "counts.json"
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See `watch.Watch`."""

    identity: str
    """Of the judge: another one starts without memory."""
    calibration: Calibration | None
    first_auroc: float | None
    refits: int
    canaries: list[JudgedCanary]
    waiting: list[JudgedCanary]
    looks: dict[str, Look]
    gaps: dict[str, Gap]
    tighten: bool
    audited: list[Audited]
    drawn: _Count
    looked_at: _Count
    """Of the drawn ones, when the audit was last looked at."""


class Counts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Verdicts since the last row of metrics, and how often the judge could not be asked."""

    statuses: dict[Status, _Count]
    outages: _Count


def write_memory(folder: Path, memory: Memory) -> None:
    (folder / _WATCH).write_bytes(msgspec.json.encode(memory))


def read_memory(folder: Path) -> Memory:
    """Raises CheckpointError."""
    return read_state(folder / _WATCH, Memory)


def write_counts(folder: Path, counts: Counts) -> None:
    (folder / _COUNTS).write_bytes(msgspec.json.encode(counts))


def read_counts(folder: Path) -> Counts:
    """Raises CheckpointError."""
    return read_state(folder / _COUNTS, Counts)
