"""How far the judge can be believed, and what became of proposals, in a few lines of the metrics. Pure.

What became of proposals, in a few lines: written, refused and why, wrong. Of one row of the metrics.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codezero.monitor.metrics_file import number
from codezero.monitor.text import clean, count, interval, percent
from codezero.types import Metrics

MAX_ALARM = 400
"""Characters of an alarm that are kept."""
ALL = 0.999
"""Share of unavailable verdicts from which the judge is said to be silent."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The newest of what was said about the judge."""

    alarm: str = ""
    """Why it is found exploited; empty when it is not."""
    unavailable: float | None = None
    """Share of the last verdicts that could not be told."""
    judged: float | None = None
    """Success in the audited attempts as the judge believes."""
    audited: float | None = None
    """The same as executed, with its interval of 95 %."""
    audited_low: float | None = None
    audited_high: float | None = None
    executions: float = 0
    undecided: float | None = None

    def advanced(self, row: Metrics) -> "Trust":
        """After one more row; a row without the judge's figures says nothing."""
        if "judge/unavailable_share" not in row:
            return self
        return Trust(
            alarm=str(row.get("judge/alarm") or "")[:MAX_ALARM],
            unavailable=number(row, "judge/unavailable_share"),
            judged=number(row, "audit/judged"),
            audited=number(row, "audit/success"),
            audited_low=number(row, "audit/success_low"),
            audited_high=number(row, "audit/success_high"),
            executions=number(row, "audit/count") or 0,
            undecided=number(row, "audit/unknown_share"),
        )

    @property
    def silent(self) -> bool:
        """Does the judge not answer at all?"""
        return self.unavailable is not None and self.unavailable >= ALL

    @property
    def trouble(self) -> str:
        """What a person has to know at once; empty when there is nothing."""
        if self.silent:
            return "the judge does not answer: nothing is learned until it does"
        return f"ALARM: the judge {clean(self.alarm, MAX_ALARM)}" if self.alarm else ""

    @property
    def audit(self) -> str:
        """`judge says 71.0 %, audit says 43.0 % [35.0, 51.0] (212 attempts executed)`; empty without an audit."""
        if self.audited is None:
            return ""
        truth = f"{percent(self.audited)} {interval(self.audited_low, self.audited_high)}".rstrip()
        return f"judge says {percent(self.judged)}, audit says {truth} ({count(self.executions, 'attempt')} executed)"


def troubles(rows: Sequence[Metrics]) -> Iterator[tuple[int, str]]:
    """(iteration, what) wherever trouble began or changed."""
    trust, said = Trust(), ""
    for row in rows:
        trust = trust.advanced(row)
        if trust.trouble and trust.trouble != said:
            yield int(number(row, "iteration") or 0), trust.trouble
        said = trust.trouble


REASONS = 8
"""Most reasons that are named of one kind."""


def proposal_lines(row: Metrics) -> list[tuple[str, str]]:
    """(what, figure) for people; empty for a run that proposes nothing and is offered nothing."""
    return list(_lines(row))


def _lines(row: Metrics) -> Iterator[tuple[str, str]]:
    written = number(row, "proposer/written")
    if written is not None:
        yield "proposals", f"{count(int(written), 'problem')} written{_refused(row, 'proposer/refused_')}"
        yield "expected values", _values(row)
    unusable = _why(row, "problems/refused_")
    if unusable:
        yield "problems refused", f"{sum(unusable.values())}: {_named(unusable)}"


def _values(row: Metrics) -> str:
    """How many of them execution found wrong; it is only known where something is executed."""
    right, wrong = number(row, "proposer/values_right"), number(row, "proposer/values_wrong")
    if right is None or wrong is None:
        return "claims, never executed (audit.share, or reward.mode=rlvr, would tell how many are wrong)"
    total = int(right + wrong)
    return f"{percent(wrong / total)} of {total} executed are wrong" if total else "none executed yet"


def _refused(row: Metrics, prefix: str) -> str:
    why = _why(row, prefix)
    return f", {sum(why.values())} refused as they came: {_named(why)}" if why else ""


def _why(row: Metrics, prefix: str) -> dict[str, int]:
    """Counts above zero by the rest of their name."""
    found = {name.removeprefix(prefix): _whole(row, name) for name in row if name.startswith(prefix)}
    return {name: times for name, times in found.items() if times}


def _named(why: dict[str, int]) -> str:
    first = sorted(why.items(), key=lambda one: (-one[1], one[0]))[:REASONS]
    return ", ".join(f"{times} {name.replace('_', ' ')[:40]}" for name, times in first)


def _whole(row: Metrics, name: str) -> int:
    return int(number(row, name) or 0)
