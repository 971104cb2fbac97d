"""Reading many programs with a judge that may be slow: in parts, asking again for what was not answered in time.

A calibration that took the first deadline for the last word would find "no skill" in every judge that is merely slow.
"""

import logging
import time
from collections.abc import Callable, Sequence

from codezero.errors import EvaluatorError
from codezero.evaluator.reading import Judge, Program, Reading

logger = logging.getLogger(__name__)

PART = 64
"""Programs read at once: each part has the judge's whole deadline, more than once while answers come in."""
TRIES = 10
"""Times that a part is read, at most; a judge that keeps its answers is asked only for the missing ones."""
TELL_SECONDS = 2.0


def read_all(
    judge: Judge, programs: Sequence[Program], tell: Callable[[str], None] = lambda _: None
) -> dict[Program, Reading]:
    """Every score of every program. `tell` hears every other second how far it is.

    Raises EvaluatorError when nothing at all is answered for a part.
    """
    readings: dict[Program, Reading] = {}
    told = time.monotonic()
    for at in range(0, len(programs), PART):
        part = programs[at : at + PART]
        readings |= _read(judge, part)
        for _ in range(TRIES - 1):
            if time.monotonic() > told + TELL_SECONDS:
                told = time.monotonic()
                read = sum(reading.scores is not None for reading in readings.values())
                tell(f"calibrating the judge, {read} of {len(programs)} solutions read")
            missing = [one for one in part if readings[one].scores is None]
            again = _read_again(judge, missing)
            readings |= again
            if all(reading.scores is None for reading in again.values()):
                break
    return readings


def _read(judge: Judge, programs: Sequence[Program]) -> dict[Program, Reading]:
    return dict(zip(programs, judge.read(programs, frozenset(judge.names)), strict=True))


def _read_again(judge: Judge, missing: Sequence[Program]) -> dict[Program, Reading]:
    """What is answered now; nothing of a judge that has fallen silent, as what it said before still counts."""
    if not missing:
        return {}
    try:
        return _read(judge, missing)
    except EvaluatorError as error:
        logger.info("%d solutions stay unread: %s", len(missing), error)
        return {}
