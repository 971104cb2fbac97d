"""The judge prompts: what a judge is asked about a program, in words, and how answers become scores. No model.

A conversation: [question and tests][the code, as the model's own answer][follow-up][answer, begun]. Code cannot spell
the turns between them. Where a chat template allows no follow-ups, each is a prompt of its own (`alone`)."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from codezero.code.assertions import Example
from codezero.evaluator.types import Program

PROMPT_VERSION = "7"  # part of the judge's identity: changes with every change of wording, and of what is read

LIKELIHOOD, YES_NO, PER_TEST, OUTPUT_MATCH, PROBE = "likelihood", "yes_no", "per_test", "output_match", "probe"
LEAST_GAP, MEAN_GAP = "least_gap", "mean_gap"
YES_MARGIN = "yes_margin"

SCORES = {  # question -> the scores it gives
    LIKELIHOOD: (LEAST_GAP, MEAN_GAP),
    YES_NO: (YES_MARGIN,),
    PER_TEST: ("worst_test_margin", "mean_test_margin", "test_share"),
    OUTPUT_MATCH: ("output_match", "output_logprob"),
    PROBE: ("probe",),
}

YES_NO_WORDS = ((" Yes", " No"), ("Yes", "No"), (" yes", " no"), ("YES", "NO"))
ORDERS = ("Yes or No", "No or Yes")
CONTENT_FREE = ("pass", "N/A")  # their answers are the bias (Zhao et al., "Calibrate before use", 2021)
FLOOR = -15.0  # nats; a lower log-probability of a token counts as this
LEAST_MASS = 0.5  # probability of Yes and No together below which the model has not answered

ANSWER = "Answer:"  # the beginning of an answer of yes or no
BLOCK, BLOCK_END = "```\n", "\n```"  # around an answer that is a value: no token crosses the line break before it

ABOUT_ALL = "Does this do exactly what is asked, for every input?"

MOST_EXAMPLES = 4
MOST_CHARACTERS = 400  # of an example's input and output together; no judge is asked about a longer one


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A question about a program, in the words for the judge."""

    question: str  # which of `SCORES` it belongs to
    ask: str
    begun: str  # the beginning of the judge's answer
    answer: str = ""  # the right answer, which is scored; empty: Yes or No is read off


def follow_ups(program: Program, questions: Collection[str]) -> list[FollowUp]:
    """Those of `questions` about `program`, grouped by question."""
    stdio, examples = program.stdio, asked_about(program)
    general = [FollowUp(YES_NO, yes_or_no(ABOUT_ALL, order), ANSWER) for order in ORDERS]
    per_test = [FollowUp(PER_TEST, yes_or_no(about_test(test, stdio), ORDERS[0]), ANSWER) for test in examples]
    asks = "What does it write after reading this?\n{}" if stdio else "What does {} return?"
    pairs = ((asks.format(test.input), test.output.rstrip("\n") + BLOCK_END) for test in examples)
    outputs = [FollowUp(OUTPUT_MATCH, ask, BLOCK, answer) for ask, answer in pairs]
    return [follow_up for follow_up in (*general, *per_test, *outputs) if follow_up.question in questions]


def asked_about(program: Program) -> list[Example]:
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


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """None when a value is missing: half an answer is biased towards its order."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def per_test_scores(margins: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """(least, mean, share above 0) of the margins of all tests; None where a test has none."""
    known = [margin for margin in margins if margin is not None]
    if not known or len(known) < len(margins):
        return None, None, None
    return min(known), sum(known) / len(known), sum(margin > 0 for margin in known) / len(known)


def task(program: Program) -> str:
    """The question with its tests, in the form of a solver's prompt; an embedded model's template drops that."""
    shown = asked_about(program)
    if program.stdio:
        tests = "".join(f"\nGiven this input:\n{test.input}\nit must write:\n{test.output}" for test in shown)
    else:
        lines = "\n".join(f"assert {test.input} == {test.output}" for test in shown)
        tests = f"\nIt must pass:\n{lines}" if shown else ""
    return f"{program.question}\n\nANSWER FORMAT: one ```python block.{tests}"


def alone(program: Program, ask: str) -> str:
    """Question, program and ask in one turn, for a judge that takes no follow-ups."""
    # derived from the program, which therefore cannot contain it and seem to end early
    mark = hashlib.sha256(f"{program.question}\0{program.code}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{task(program)}\n\n<<<CODE {mark}>>>\n{program.code}\n<<<END {mark}>>>\n\n{ask}"
