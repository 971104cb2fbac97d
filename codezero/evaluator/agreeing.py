"""A judge that has solved the problem itself: what provably does the same as a solution of its own is read as that.

A likelihood belongs to one spelling. The judge writes a few solutions for each question, and reads one of them in the
place of every program that `code/agreement` finds to return the same; all others it reads as they are. Whether a
program agrees is a score of its own. About a program that it cannot follow, though it follows a solution of its own, it
says nothing: another spelling is not an error.
"""

import enum
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

from codezero.code.report import StaticReport, StaticRequest
from codezero.code.worker import StaticGuard
from codezero.evaluator.judge import WRITTEN_AT, LikelihoodJudge
from codezero.evaluator.types import Program, Reading
from codezero.models.load import TINY_PARAMETERS

AGREEMENT = "agreement"
"""1: it returns the same as an own solution; 0: it differs from each; None: there is none to compare with."""

_Asked = tuple[str, str]
"""Question and entry point."""


class _Other(enum.Enum):
    """A program that is not known to agree."""

    ALONE = enum.auto()
    APART = enum.auto()
    UNCLEAR = enum.auto()


def with_own_solutions(judge: LikelihoodJudge, guard: StaticGuard) -> "LikelihoodJudge | AgreeingJudge":
    """A small judge knows one spelling and writes in no time; a large one knows many, and would write for minutes."""
    return AgreeingJudge(judge, guard) if judge.parameters < TINY_PARAMETERS else judge


class AgreeingJudge:
    """Implements `types.Judge`."""

    def __init__(self, judge: LikelihoodJudge, guard: StaticGuard) -> None:
        self._judge, self._guard, self.names = judge, guard, (*judge.names, AGREEMENT)
        self._own: dict[_Asked, list[str]] = {}
        """Distinct solutions in canonical code, the likeliest first."""
        self._found: dict[Program, str | _Other] = {}
        """The own solution that a program agrees with."""

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        asked = [each for each in dict.fromkeys(programs) if each.entry_point and each.kinds]
        self._solve([each for each in dict.fromkeys(map(_asked, asked)) if each not in self._own])
        self._compare([each for each in asked if each not in self._found])
        found = [self._found.get(each, _Other.ALONE) for each in programs]
        pairs = [(each, own) for each, own in zip(programs, found, strict=True) if own is not _Other.UNCLEAR]
        spelled = [replace(each, code=own) if isinstance(own, str) else each for each, own in pairs]
        read = iter(self._judge.read(spelled, wanted))
        return [
            Reading(None, "written in a way that the judge cannot follow")
            if own is _Other.UNCLEAR
            else _with_agreement(next(read), own)
            for own in found
        ]

    def forget(self) -> None:
        """What it writes depends on the questions of the same batch, as readings do."""
        self._judge.forget()
        self._own.clear()
        self._found.clear()

    def _compare(self, programs: Sequence[Program]) -> None:
        unclear = set[Program]()
        for each in programs:
            own = self._own[_asked(each)]
            self._found[each] = each.code if each.code in own else _Other.APART if own else _Other.ALONE
        for place in range(len(WRITTEN_AT)):
            left = [each for each in self._apart(programs) if place < len(self._own[_asked(each)])]
            for each, agrees in zip(left, self._answers(left, place), strict=True):
                if agrees:
                    self._found[each] = self._own[_asked(each)][place]
                elif agrees is None:
                    unclear.add(each)
        left = self._apart(unclear)
        own = [replace(each, code=self._own[_asked(each)][0]) for each in left]
        for each, follows in zip(left, self._answers(own, 0), strict=True):
            self._found[each] = _Other.UNCLEAR if follows else _Other.ALONE

    def _apart(self, programs: Iterable[Program]) -> list[Program]:
        return [each for each in programs if self._found[each] is _Other.APART]

    def _answers(self, programs: Sequence[Program], place: int) -> list[bool | None]:
        """Whether each does the same as the judge's own solution at this place."""
        return self._guard.agree_many(
            [(each.code, self._own[_asked(each)][place], each.entry_point, each.kinds) for each in programs]
        )

    def _solve(self, asked: Sequence[_Asked]) -> None:
        written = self._judge.write([question for question, _ in asked]) if asked else []
        requests = [
            [StaticRequest(text, (), entry, question) for text in texts]
            for texts, (question, entry) in zip(written, asked, strict=True)
        ]
        reports = iter(self._guard.check_many(list(chain(*requests))))
        for each, texts in zip(asked, requests, strict=True):
            codes = [_usable(report) for _, report in zip(texts, reports, strict=False)]
            self._own[each] = [code for code in dict.fromkeys(codes) if code is not None]


def _asked(program: Program) -> _Asked:
    return program.question, program.entry_point


def _with_agreement(reading: Reading, own: str | _Other) -> Reading:
    if reading.scores is None:
        return reading
    return Reading((*reading.scores, None if own is _Other.ALONE else float(isinstance(own, str))))


def _usable(report: StaticReport) -> str | None:
    wrong = report.unavailable or report.quarantine or report.certain_failure
    return None if wrong else report.canonical
