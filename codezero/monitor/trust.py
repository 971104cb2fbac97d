"""How far the judge can be believed, as the views say it: alarms, outages, the audit. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codezero.monitor.store import number
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
