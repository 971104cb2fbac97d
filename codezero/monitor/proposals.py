"""What became of proposals, in a few lines: written, refused and why, wrong, taken back. Of one row of the metrics."""

from collections.abc import Iterator

from codezero.monitor.store import number
from codezero.monitor.text import count, percent
from codezero.types import Metrics

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
    back = _why(row, "proposer/withdrawn_")
    if back:
        yield "taken back", f"{sum(back.values())} own, broken: {_named(back)}"
    heard = _whole(row, "swarm/withdrawals_heard")
    if heard:
        dropped, again = _whole(row, "swarm/offers_withdrawn"), _whole(row, "swarm/refused_withdrawn")
        yield "taken back by peers", f"{heard}, of which {dropped} were on offer here; refused afterwards {again}"
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
