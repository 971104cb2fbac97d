"""What a judge behind an endpoint is asked about a program, and what the answers make: scores.

Each yes/no question is asked in both orders, and of no program at all: the mean over the orders, less what the model
says of nothing (Zhao et al., "Calibrate before use", 2021), is a margin.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from codezero.code.parsing import fence
from codezero.evaluator.endpoint_wire import Answer, plain
from codezero.evaluator.judge_prompts import (
    ABOUT_ALL,
    CONTENT_FREE,
    LIKELIHOOD,
    ORDERS,
    PER_TEST,
    SCORES,
    YES_MARGIN,
    about_test,
    asked_about,
    yes_or_no,
)
from codezero.evaluator.types import Program
from codezero.models import remote

Ask = remote.Ask[Answer]
Answers = remote.Answers[Answer]
GAPS, TESTS = SCORES[LIKELIHOOD], SCORES[PER_TEST]
PROBE = Program("Write a function f(x) that returns x.", "def f(x):\n    return x")
"""What a judge is asked about to see whether it answers at all."""

Turns = Sequence[str]
"""What user and assistant say in turn; the user begins and ends."""
Chat = Callable[[Turns], Ask]


@dataclass(frozen=True, slots=True)
class Margin:
    """The questions behind one margin of Yes over No."""

    asked: tuple[Ask, ...]
    prior: tuple[Ask, ...]
    """The same about no program at all."""

    def value(self, answer: Callable[[Ask], Answer]) -> float | None:
        asked, prior = _mean(map(answer, self.asked)), _mean(map(answer, self.prior))
        return None if asked is None or prior is None else asked - prior


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one program is asked about."""

    whole: Margin | None
    tests: tuple[Margin, ...]
    gaps: Ask | None

    @property
    def asks(self) -> Iterator[Ask]:
        for margin in (self.whole, *self.tests):
            if margin is not None:
                yield from (*margin.asked, *margin.prior)
        if self.gaps is not None:
            yield self.gaps

    def scores(self, answer: Callable[[Ask], Answer]) -> dict[str, float | None]:
        """By name. `answer` raises EndpointError for a question that has none, and so does this."""
        scores: dict[str, float | None] = {}
        if self.whole is not None:
            scores[YES_MARGIN] = self.whole.value(answer)
        if self.gaps is not None:
            gaps = answer(self.gaps)
            assert isinstance(gaps, tuple)
            scores |= zip(GAPS, gaps, strict=True)
        tests = [margin.value(answer) for margin in self.tests]
        known = [value for value in tests if value is not None]
        if known and len(known) == len(tests):  # a test that cannot be told must not hide behind the others
            share = sum(value > 0 for value in known) / len(known)
            scores |= zip(TESTS, (min(known), sum(known) / len(known), share), strict=True)
        return scores


def make_plan(program: Program, wanted: frozenset[str], chat: Chat, gaps: Ask | None) -> Plan:
    """What must be asked for the `wanted` scores. `chat` words one question for the server."""
    examples = asked_about(program) if wanted & {*TESTS} else []
    return Plan(
        _margin(program, ABOUT_ALL, chat) if YES_MARGIN in wanted else None,
        tuple(_margin(program, about_test(example, program.stdio), chat) for example in examples),
        gaps if wanted & {*GAPS} else None,
    )


def probe(chat: Chat) -> Ask:
    return _yes_no(PROBE.question, PROBE.code, ABOUT_ALL, chat)[0]


def written(program: Program) -> tuple[str, str]:
    """(question, answer) as plain text, for the likelihood of the answer; its opening fence is in the question."""
    opening, _, answer = fence(plain(program.code)).partition("\n")
    return f"{plain(program.question)}\n\n{opening}\n", answer


def _margin(program: Program, about: str, chat: Chat) -> Margin:
    return Margin(
        _yes_no(program.question, program.code, about, chat),
        tuple(ask for code in CONTENT_FREE for ask in _yes_no(program.question, code, about, chat)),
    )


def _yes_no(question: str, code: str, about: str, chat: Chat) -> tuple[Ask, ...]:
    return tuple(chat([plain(question), fence(plain(code)), plain(yes_or_no(about, order))]) for order in ORDERS)


def _mean(answers: Iterable[Answer]) -> float | None:
    """None when one abstains: half an answer is biased towards its order."""
    known: list[float] = []
    for answer in answers:
        if answer is None:
            return None
        assert not isinstance(answer, tuple)
        known.append(answer)
    return sum(known) / len(known)
