"""What an eval found, for people and for programs."""

from collections.abc import Iterator

import msgspec

from codezero.evals.figures import Difference, Figure, Result
from codezero.measuring import Report


def as_json(report: Report) -> str:
    """One object: of one policy its result, of two `a`, `b` and `difference`."""
    if len(report.results) == 1:
        return msgspec.json.encode(report.results[0]).decode()
    a, b = report.results
    return msgspec.json.encode({"a": a, "b": b, "difference": report.difference}).decode()


def lines(report: Report) -> Iterator[str]:
    for result in report.results:
        yield from _of(result)
    if len(report.results) == 2:
        yield _ahead(report.difference)


def _of(result: Result) -> Iterator[str]:
    yield f"{result.policy} on {result.set}: {result.problems} problems, {result.samples} attempts each"
    yield from (_figure(one) for one in result.figures)
    if not result.figures:
        yield f"  no {result.label} figure: no attempt could be decided"
    yield f"  {result.undecided_share:.1%} of the attempts undecided, {result.truncated_share:.1%} cut off at " + (
        f"{result.max_new_tokens} tokens, {result.without_code_share:.1%} without code"
    )
    yield from (f"    {times} x {reason}" for reason, times in result.undecided.items())
    yield f"  kept in {result.kept_in}"


def _figure(one: Figure) -> str:
    bounds = f"[{one.low:.1%}, {one.high:.1%}]"
    return f"  {one.label} {one.name:12} {one.value:6.1%}  95 % {bounds}  over {one.problems} problems"


def _ahead(one: Difference | None) -> str:
    if one is None:
        return "no problem has decided attempts of both, so nothing can be compared"
    bounds = f"[{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
    return (
        f"{one.label} {one.name}: B is ahead by {100 * one.difference:+.1f} points, 95 % {bounds}, p = {one.p:.3g}, "
        f"over {one.problems} problems (A {one.a:.1%}, B {one.b:.1%})"
    )
