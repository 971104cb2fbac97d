"""What an evaluator remembers across restarts, as JSON files of the checkpoint."""

from typing import Annotated

import msgspec

from codezero.evaluator.audit import Audited
from codezero.evaluator.calibration import Calibration
from codezero.evaluator.evidence import Gap, JudgedCanary, Look
from codezero.types import Status

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
