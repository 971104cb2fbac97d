"""What a judge is asked about a program, in words. Imports no model."""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from codezero.code.tests import Example
from codezero.evaluator.reading import Program

PROMPT_VERSION = "3"
"""Changes with every change of wording, so that no cached score outlives it."""

LIKELIHOOD, YES_NO, PER_TEST, OUTPUT_MATCH = "likelihood", "yes_no", "per_test", "output_match"

LEAST_GAP, MEAN_GAP = "least_gap", "mean_gap"
YES_MARGIN = "yes_margin"
WORST_TEST_MARGIN, MEAN_TEST_MARGIN, TEST_SHARE = "worst_test_margin", "mean_test_margin", "test_share"
OUTPUT_SHARE, OUTPUT_LOGPROB = "output_match", "output_logprob"

SCORES = {
    LIKELIHOOD: (LEAST_GAP, MEAN_GAP),
    YES_NO: (YES_MARGIN,),
    PER_TEST: (WORST_TEST_MARGIN, MEAN_TEST_MARGIN, TEST_SHARE),
    OUTPUT_MATCH: (OUTPUT_SHARE, OUTPUT_LOGPROB),
}
"""Question -> the scores it gives."""

YES_NO_WORDS = ((" Yes", " No"), ("Yes", "No"), (" yes", " no"), ("YES", "NO"))
ORDERS = ("Yes or No", "No or Yes")
CONTENT_FREE = ("pass", "N/A")
"""Programs that say nothing: what is answered about them is prejudice (Zhao et al., "Calibrate before use", 2021)."""

ANSWER = "Answer:"
"""How an answer of yes or no is begun for the judge."""
BLOCK, BLOCK_END = "```\n", "\n```"
"""How an answer that is a value begins and ends: no token crosses the line break before the value."""

ABOUT_ALL = "Does this do exactly what is asked, for every input?"

MOST_EXAMPLES = 4
MOST_CHARACTERS = 400
"""Of an example's input and output together; a longer one is not asked about."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One follow-up."""

    question: str
    """Which of `SCORES` it belongs to."""
    ask: str
    begun: str
    """How the judge's answer is begun for it."""
    answer: str = ""
    """What would be the right answer, to be scored; empty: Yes or No is read off."""


def follow_ups(program: Program, questions: Collection[str]) -> list[Spoken]:
    """What to ask of `program` for `questions`, those of one question together."""
    examples = asked_about(program)
    spoken: list[Spoken] = []
    if YES_NO in questions:
        spoken += [Spoken(YES_NO, yes_or_no(ABOUT_ALL, order), ANSWER) for order in ORDERS]
    if PER_TEST in questions:
        spoken += [
            Spoken(PER_TEST, yes_or_no(about_test(example, program.stdio), ORDERS[0]), ANSWER) for example in examples
        ]
    if OUTPUT_MATCH in questions:
        spoken += [
            Spoken(OUTPUT_MATCH, _about_output(example, program.stdio), BLOCK, example.output.rstrip("\n") + BLOCK_END)
            for example in examples
        ]
    return spoken


def asked_about(program: Program) -> list[Example]:
    """The first tests that are short enough."""
    short = [example for example in program.examples if len(example.input) + len(example.output) <= MOST_CHARACTERS]
    return short[:MOST_EXAMPLES]


def about_test(example: Example, stdio: bool) -> str:
    if stdio:
        return f"Does it read this:\n{example.input}\nand write exactly this?\n{example.output}"
    return f"Does {example.input} return {example.output}?"


def yes_or_no(about: str, order: str) -> str:
    """`about` as a question that names both answers, in one of `ORDERS`."""
    gap = "\n" if "\n" in about else " "
    return f"{about}{gap}{order}?"


def _about_output(example: Example, stdio: bool) -> str:
    return f"What does it write after reading this?\n{example.input}" if stdio else f"What does {example.input} return?"


def alone(program: Program, ask: str) -> str:
    """Question, program and ask in one turn, for a judge that takes no follow-ups."""
    # the mark is derived from the program, which therefore cannot contain it and pretend to end early
    mark = hashlib.sha256(f"{program.question}\0{program.code}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{program.question}\n\n<<<CODE {mark}>>>\n{program.code}\n<<<END {mark}>>>\n\n{ask}"


def solve_prompt(question: str) -> str:
    """What the judge is told when it solves a problem itself."""
    return f"{question}\n\nANSWER FORMAT: one ```python block with the solution and nothing after it."
