"""A judge that has solved the problem itself: what provably does the same as a solution of its own is read as that.

A likelihood belongs to one spelling. The judge writes a few solutions for each question, and reads one of them in the
place of every program that `code/agreement` finds to return the same. About a program that it cannot follow, though it
follows a solution of its own, it says nothing: another spelling is not an error. All others it reads as they are.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from codezero.code.report import StaticReport, StaticRequest
from codezero.code.worker import StaticGuard
from codezero.evaluator.judge import WRITTEN_AT, LikelihoodJudge
from codezero.evaluator.types import Program, Reading
from codezero.models.load import TINY_PARAMETERS

_Asked = tuple[str, str]
"""Question and entry point."""
_UNCLEAR = Reading(None, "written in a way that the judge cannot follow")


def with_own_solutions(judge: LikelihoodJudge, guard: StaticGuard) -> "LikelihoodJudge | AgreeingJudge":
    """A small judge knows one spelling and writes in no time; a large one knows many, and would write for minutes."""
    return AgreeingJudge(judge, guard) if judge.parameters < TINY_PARAMETERS else judge


class AgreeingJudge:
    """Implements `types.Judge`."""

    def __init__(self, judge: LikelihoodJudge, guard: StaticGuard) -> None:
        self._judge, self._guard, self.names = judge, guard, judge.names
        self._own: dict[_Asked, list[str]] = {}
        """Distinct solutions in canonical code, the likeliest first."""
        self._agreed: dict[Program, str | None] = {}
        """The own solution that a program agrees with; None: with none."""
        self._unclear: set[Program] = set()
        """Whether they agree is not known."""

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        asked = [each for each in dict.fromkeys(programs) if each.entry_point and each.kinds]
        self._solve([each for each in dict.fromkeys(map(_asked, asked)) if each not in self._own])
        self._compare([each for each in asked if each not in self._agreed])
        own = {each: code for each in asked if (code := self._agreed[each]) is not None}
        clear = [each for each in programs if each not in self._unclear]
        read = iter(self._judge.read([replace(each, code=own.get(each, each.code)) for each in clear], wanted))
        return [_UNCLEAR if each in self._unclear else next(read) for each in programs]

    def forget(self) -> None:
        """What it writes depends on the questions of the same batch, as readings do."""
        self._judge.forget()
        self._own.clear()
        self._agreed.clear()
        self._unclear.clear()

    def _compare(self, programs: Sequence[Program]) -> None:
        self._agreed |= {each: each.code if each.code in self._own[_asked(each)] else None for each in programs}
        unclear = set[Program]()
        for place in range(len(WRITTEN_AT)):
            left = [each for each in programs if self._agreed[each] is None and place < len(self._own[_asked(each)])]
            for each, agrees in zip(left, self._answers(left, place), strict=True):
                if agrees:
                    self._agreed[each] = self._own[_asked(each)][place]
                elif agrees is None:
                    unclear.add(each)
        left = [each for each in unclear if self._agreed[each] is None]
        own = [replace(each, code=self._own[_asked(each)][0]) for each in left]
        self._unclear |= {each for each, follows in zip(left, self._answers(own, 0), strict=True) if follows}

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


def _usable(report: StaticReport) -> str | None:
    wrong = report.unavailable or report.quarantine or report.certain_failure
    return None if wrong else report.canonical
