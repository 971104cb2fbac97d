"""One more score: how many of the judge's own solutions say the same as the attempt, in canonical form.

A judge that can solve the problem knows a right answer when it has written it. Costs sampling, once for each problem;
off unless `evaluator.own_solutions` asks for it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from codezero.code.report import StaticRequest
from codezero.evaluator.types import Guard, Judge, Program, Reading

AGREEMENT = "agreement"
CACHED_PROBLEMS = 4_096


class Author(Judge, Protocol):
    """A judge that can also write."""

    def solve(self, question: str, count: int) -> list[str]:
        """`count` completions, the same for the same question. Raises EvaluatorError."""
        ...


class AgreeingJudge:
    """Implements `reading.Judge`: the scores of `author`, and the share of its `count` solutions that agree."""

    def __init__(self, author: Author, guard: Guard, count: int) -> None:
        self._author = author
        self._guard = guard
        self._count = count
        self._own: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._author.names, AGREEMENT)

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """As the author's, with `agreement` last. Raises EvaluatorError."""
        readings = self._author.read(programs, wanted - {AGREEMENT})
        return [
            reading
            if reading.scores is None
            else replace(reading, scores=(*reading.scores, self._agreement(one) if AGREEMENT in wanted else None))
            for one, reading in zip(programs, readings, strict=True)
        ]

    def forget(self) -> None:
        """Own solutions stay: each is drawn by itself, the same for the same question."""
        self._author.forget()

    def _agreement(self, one: Program) -> float | None:
        """None when none of the own solutions could be read."""
        own = self._solutions(one.question, one.entry_point)
        return sum(code == one.code for code in own) / len(own) if own else None

    def _solutions(self, question: str, entry_point: str) -> tuple[str, ...]:
        """Canonical code of what the judge writes itself."""
        key = (question, entry_point)
        if key not in self._own:
            texts = self._author.solve(question, self._count)
            reports = self._guard.check_many([StaticRequest(text, (), entry_point, question) for text in texts])
            self._own[key] = tuple(report.canonical for report in reports if report.canonical is not None)
            if len(self._own) > CACHED_PROBLEMS:
                self._own.popitem(last=False)
        self._own.move_to_end(key)
        return self._own[key]
