"""Does a run that is meant to learn still learn? Pure."""

from collections.abc import Sequence

from codezero.monitor.run_types import Health, RunView
from codezero.system.signals import FAILED

LEAST_LIMIT = 120.0
"""Seconds without a step that are never a stall."""
STEPS, EXAMS = 10, 3
"""Medians of a step, and times of the last exam, which is sat between two steps, that are no stall."""
AHEAD = 5.0
"""Seconds that a moment may lie in the future, for clocks that are being corrected."""
START_SECONDS = 1_800.0
"""Before the first step: models are loaded, the judge is calibrated, and the first exam is sat."""

NO_RUN = Health(
    healthy=True, run="", running=False, iteration=None, seconds_since_step=None, limit_seconds=LEAST_LIMIT, problem=""
)
"""There is none yet, and so none that stalls."""


def limit_seconds(starting: bool, step_seconds: float | None, exam_seconds: float | None) -> float:
    """After which time without a step a run has stalled. step_seconds: median of the last ones."""
    if starting:
        return START_SECONDS
    return max(LEAST_LIMIT, STEPS * (step_seconds or 0.0)) + EXAMS * (exam_seconds or 0.0)


def overall(views: Sequence[RunView], now: float) -> Health:
    """Of the first that is not healthy; when all are, of the first."""
    states = [health(view, now) for view in views]
    return next((state for state in states if not state.healthy), states[0] if states else NO_RUN)


def health(view: RunView, now: float) -> Health:
    """now: seconds since 1970. A run that ended as it should is healthy."""
    moments = [moment for moment in (view.began, view.updated) if moment is not None]
    # A clock that was set back leaves moments in the future. A step that came after that tells more than they.
    ahead = moments[-1] - now if moments else 0.0
    last = max((moment for moment in moments if moment <= now + AHEAD), default=None)
    waited = 0.0 if last is None else now - last
    problem = ""
    if not view.running and view.supervisor:
        problem = view.supervisor
    elif view.began is not None and not view.running and not view.stopped:
        problem = "the process of the run is gone and has not said why; see its log, and start it again"
    elif not view.running and view.stopped == FAILED:
        problem = "the run was stopped by an error; see its log, and start it again"
    elif view.running and ahead > AHEAD:
        problem = f"its last step is {ahead:.0f} s in the future: the clock was set back; the next step will tell"
    elif view.running and waited > view.limit_seconds:
        problem = f"no step for {waited:.0f} s, and {view.limit_seconds:.0f} s are a stall; see the log of the run"
    return Health(
        healthy=not problem,
        run=view.run,
        running=view.running,
        iteration=view.iteration,
        seconds_since_step=None if view.updated is None else max(0.0, now - view.updated),
        limit_seconds=view.limit_seconds,
        problem=problem,
    )
