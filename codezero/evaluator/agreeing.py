"""A judge that has solved the problem itself: what provably does the same as a solution of its own is read as that.

A likelihood belongs to one spelling. The judge writes a few solutions for each question, and reads one of them in the
place of every program that `code/agreement` finds to return the same; all others it reads as they are.
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

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        asked = [each for each in dict.fromkeys(programs) if each.entry_point and each.kinds]
        self._solve([each for each in dict.fromkeys(map(_asked, asked)) if each not in self._own])
        self._compare([each for each in asked if each not in self._agreed])
        own = {each: code for each in asked if (code := self._agreed[each]) is not None}
        return self._judge.read([replace(each, code=own.get(each, each.code)) for each in programs], wanted)

    def forget(self) -> None:
        """What it writes depends on the questions of the same batch, as readings do."""
        self._judge.forget()
        self._own.clear()
        self._agreed.clear()

    def _compare(self, programs: Sequence[Program]) -> None:
        self._agreed |= dict.fromkeys(programs)
        pairs = [(program, self._own[_asked(program)]) for program in programs]
        left = [(program, own) for program, own in pairs if program.code not in own]
        for place in range(len(WRITTEN_AT)):
            left = [(program, own) for program, own in left if place < len(own)]
            items = [(program.code, own[place], program.entry_point, program.kinds) for program, own in left]
            answers = self._guard.agree_many(items)
            self._agreed |= {
                program: own[place] for (program, own), agrees in zip(left, answers, strict=True) if agrees
            }
            left = [pair for pair, agrees in zip(left, answers, strict=True) if not agrees]

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
