"""Does a run that is meant to learn still learn, and what keeps it from that? Pure."""

from collections.abc import Reversible, Sequence
from itertools import islice

from codezero.monitor.metrics_file import number
from codezero.monitor.run_types import Health, RunView
from codezero.monitor.text import clean, percent
from codezero.system.signals import FAILED
from codezero.types import Metrics

LEAST_LIMIT = 120.0
"""Seconds without a step that are never a stall."""
STEPS, EXAMS = 10, 3
"""Medians of a step, and times of the last exam, which is sat between two steps, that are no stall."""
AHEAD = 5.0
"""Seconds that a moment may lie in the future, for clocks that are being corrected."""
START_SECONDS = 1_800.0
"""Before the first step: models are loaded, the judge is calibrated, and the first exam is sat."""
WINDOW = 10
"""Iterations with own attempts that tell a run that hardly learns from one that had a bad moment."""
LITTLE, MUCH = 1 / 10, 1 / 3
"""Shares of the attempts: learned from, in all of WINDOW; cut off, or without a verdict, in the newest iteration."""
CAUSES = {
    "cut_off": ("are cut off at the token limit", "raise solver.max_new_tokens"),
    "no_verdict": ("have no verdict", ""),
    "quarantined": ("look like attacks on the judge", "look at them on the page; set evaluator.model or audit.share"),
    "failing": (
        "cannot pass, like all others at their problem",
        "choose easier data.sources or another model.solver, or read answers as answer.block says",
    ),
    "wrong": (
        "count as wrong and earn the same as all others at their problem",
        "choose easier data.sources or another model.solver, raise solver.group_size, or change reward.function",
    ),
    "right": (
        "count as right and earn the same as all others at their problem",
        "choose harder data.sources, or change reward.function",
    ),
    "unweighed": (
        "earn the same as all others at their problem: the judge has weight 0",
        "set evaluator.model, evaluator.canaries_from or reward.mode",
    ),
}
"""By the name of its share in a row: what is so of the attempts, and the setting that mends it."""
REASON = "attempts/no_verdict_reason"
VERDICTS = {
    "reward.function=": "mend reward.function", "evaluator.object=": "mend evaluator.object",
    "environment ": "mend environment", "measured on": "set evaluator.canaries_from",
    "proposer's claims": "lower data.proposer_share", "judge": "look at evaluator.url and evaluator.model",
    "": "look at audit.sandbox and reward.test_seconds",
}  # fmt: skip
"""By what stands in the reason for which there is no verdict; the first that does."""

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


def hindrances(rows: Reversible[Metrics]) -> dict[str, str]:
    """What keeps a run from learning, by cause: how much, and the setting that mends it; empty: nothing does.

    rows: oldest first, of which those of the newest iterations with own attempts count.
    """
    recent = [*islice((row for row in reversed(rows) if number(row, "attempts/count")), WINDOW)][::-1]
    newest = _shares(recent[-1:])
    found = {
        name: _sentence(name, newest[name], recent[-1:]) for name in ("cut_off", "no_verdict") if newest[name] > MUCH
    }
    shares = _shares(recent)
    learned = shares.pop("learned")
    if len(recent) == WINDOW and learned < LITTLE:
        most = max(shares, key=shares.__getitem__)
        why = _sentence(most, shares[most], recent)
        found.pop(most, None)
        found = {f"little {most}": f"{percent(learned)} of the attempts of {WINDOW} iterations teach: {why}"} | found
    return found


def _shares(rows: Sequence[Metrics]) -> dict[str, float]:
    """Of the attempts of these rows: `learned`, and each of CAUSES."""
    counts = [number(row, "attempts/count") or 0.0 for row in rows]
    shares = {
        name: sum(
            (number(row, f"attempts/{name}_share") or 0.0) * count for row, count in zip(rows, counts, strict=True)
        )
        / max(sum(counts), 1.0)
        for name in ("learned", *CAUSES)
    }
    if rows and number(rows[-1], "judge/weight") == 0:
        shares["unweighed"] = shares.pop("wrong") + shares.pop("right")
    return shares


def _sentence(cause: str, share: float, rows: Sequence[Metrics]) -> str:
    what, mend = CAUSES[cause]
    if cause == "no_verdict":
        reason = max(rows, key=lambda row: number(row, "attempts/no_verdict_share") or 0.0).get(REASON) or ""
        what = f"{what} ({clean(str(reason), 300)})"
        mend = next(setting for words, setting in VERDICTS.items() if words in str(reason))
    return f"{percent(share)} of the attempts {what}; {mend}"
