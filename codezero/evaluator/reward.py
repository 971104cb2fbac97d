"""Static findings and a probability -> one reward in [0, 1], with its parts and reasons. Pure functions.

R = cap * (0.70 C + 0.15 S + 0.10 A + 0.05 F). Correctness dominates on purpose: structure, adherence and format
saturate within a few rounds and would otherwise be what is learned.
"""

from codezero.code.static import StaticReport
from codezero.types import Status, Verdict

CORRECTNESS, STRUCTURE, ADHERENCE, FORMAT = 0.70, 0.15, 0.10, 0.05

NO_FENCE_CAP = 0.05
SYNTAX_CAP = 0.10
CALL_CAP = 0.15
"""The entry point is missing or cannot be called as the tests call it."""


def verdict(report: StaticReport, correctness: float | None, finished: bool, why_not: str = "") -> Verdict:
    """The verdict on one completion.

    `correctness`: calibrated probability in [0, 1]; None when the judge could not tell (`why_not` says why). It is
    ignored where the static pass has decided. `finished`: EOS was generated.
    """
    if report.unavailable:
        return _without_gradient(Status.UNAVAILABLE, (report.unavailable,))
    if report.quarantine:
        return _without_gradient(Status.QUARANTINED, report.quarantine)
    if report.certain_failure:
        correctness, status = 0.0, Status.CERTAIN_FAILURE
    elif correctness is None:
        return _without_gradient(Status.UNAVAILABLE, (why_not or "the judge gave no answer",))
    else:
        status = Status.JUDGED
    said = (f"judged {correctness:.0%} likely to pass",) if status is Status.JUDGED else ()
    s, a, f = structure(report), adherence(report), format_score(report, finished)
    limit, failure = cap(report)
    reward = limit * (CORRECTNESS * correctness + STRUCTURE * s + ADHERENCE * a + FORMAT * f)
    return Verdict(
        reward=min(1.0, reward),
        correctness=correctness,
        structure=s,
        adherence=a,
        format=f,
        cap=limit,
        status=status,
        reasons=(*failure, *said, *flaws(report), *(() if finished else ("no end of text",))),
    )


def cap(report: StaticReport) -> tuple[float, tuple[str, ...]]:
    """The most a completion can earn, and why it is not 1."""
    if report.fences != 1:
        return NO_FENCE_CAP, (report.refusal,)
    if not report.parses:
        return SYNTAX_CAP, (report.refusal,)
    if not report.entry_defined:
        return CALL_CAP, ("the function asked for is not defined",)
    if not report.arity_ok:
        return CALL_CAP, ("cannot be called as the tests call it",)
    return 1.0, ()


def structure(report: StaticReport) -> float:
    """Is it a program that could work at all? Share of seven checks; 0 without a syntax tree."""
    if not report.parses:
        return 0.0
    checks = (
        report.parses,
        report.entry_defined,
        report.arity_ok,
        report.returns_value,
        not report.stub and not report.degenerate,
        not report.undefined_names,
        not report.banned and not report.dunder,
    )
    return sum(checks) / len(checks)


def adherence(report: StaticReport) -> float:
    """Is it what was asked for, and nothing else? Share of four checks; 0 without the function asked for."""
    if not report.entry_defined:
        return 0.0
    checks = (report.signature_as_stated, not report.unused_params, not report.toplevel, report.hardcode_ratio < 0.5)
    return sum(checks) / len(checks)


def format_score(report: StaticReport, finished: bool) -> float:
    """1: one closed fence and an end of text; 0.5: one fence, cut off; 0: none or several."""
    if report.fences != 1:
        return 0.0
    return 1.0 if report.closed and finished else 0.5


def flaws(report: StaticReport) -> tuple[str, ...]:
    """Every milder finding, worst first."""
    if not report.parses or not report.entry_defined:
        return ()
    found: list[tuple[object, str]] = [
        (report.stub, "does nothing"),
        (not report.returns_value, "returns no value"),
        (report.degenerate, ", ".join(report.degenerate)),
        (report.undefined_names, f"undefined: {', '.join(report.undefined_names[:3])}"),
        (report.banned or report.dunder, f"reaches outside: {', '.join((*report.banned, *report.dunder)[:3])}"),
        (report.unused_params, f"ignores {', '.join(report.unused_params[:3])}"),
        (not report.signature_as_stated, "parameters are not called as asked"),
        (report.toplevel, "acts when loaded"),
        (report.hardcode_ratio > 0, f"answers of {report.hardcode_ratio:.0%} of the tests stand in the code"),
        (not report.closed, "the fence is not closed"),
    ]
    return tuple(text for applies, text in found if applies)


def _without_gradient(status: Status, reasons: tuple[str, ...]) -> Verdict:
    return Verdict(
        reward=0.0, correctness=0.0, structure=0.0, adherence=0.0, format=0.0, cap=0.0, status=status, reasons=reasons
    )
