"""A judge is calibrated on what it says in the end, and not on what it says by the first deadline."""

from collections.abc import Sequence

import pytest

from codezero.errors import EvaluatorError
from codezero.evaluator.calibration import PART, TRIES, read_all
from codezero.evaluator.types import Program, Reading

PROGRAMS = [Program("double it", f"def f(x):\n    return x * {n}") for n in range(PART + 16)]
LATE, READ = Reading(None, "the judge did not answer in 1.5 s"), Reading((1.0,))


class SlowJudge:
    """Answers `rate` new programs for each reading, and remembers them; falls silent after `readings`."""

    names = ("yes",)

    def __init__(self, rate: int, readings: int = 1_000) -> None:
        self.rate, self.left = rate, readings
        self.known: set[Program] = set()
        self.asked: list[int] = []

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        if self.left == 0:
            raise EvaluatorError("the judge does not answer")
        self.left -= 1
        self.asked.append(len(programs))
        self.known |= {*[one for one in programs if one not in self.known][: self.rate]}
        return [READ if one in self.known else LATE for one in programs]

    def forget(self) -> None:
        """It goes on remembering."""


def unread(readings: dict[Program, Reading]) -> int:
    return sum(reading.scores is None for reading in readings.values())


def test_a_slow_judge_is_asked_until_it_has_read_everything():
    judge = SlowJudge(rate=20)
    assert unread(read_all(judge, PROGRAMS)) == 0
    assert judge.asked == [64, 44, 24, 4, 16]


def test_a_judge_without_another_word_is_asked_no_more():
    judge = SlowJudge(rate=0)
    readings = read_all(judge, PROGRAMS)
    assert unread(readings) == len(PROGRAMS) and len(judge.asked) == 4
    assert readings[PROGRAMS[0]].why_not == LATE.why_not


def test_patience_has_an_end():
    judge = SlowJudge(rate=1)
    assert unread(read_all(judge, PROGRAMS)) == len(PROGRAMS) - 2 * TRIES


def test_what_a_judge_said_before_it_fell_silent_counts():
    assert unread(read_all(SlowJudge(rate=20, readings=2), PROGRAMS[:PART])) == PART - 40


def test_a_judge_that_says_nothing_at_all_is_an_error():
    with pytest.raises(EvaluatorError, match="does not answer"):
        read_all(SlowJudge(rate=1, readings=0), PROGRAMS)
