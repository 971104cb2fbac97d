"""What a judge is asked about a program, in words, and the conversation that asks it. Imports no model.

Programs and follow-ups -> rows for `PrefixReader`, and what the model answered for each program.

Everything is asked in one conversation: [question][the code, as the model's own answer][follow-up][answer, begun]. The
turn is the delimiter, and code cannot spell it. Where a chat template allows no follow-ups, each is a prompt of its
own with the code between marks that it cannot contain.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from codezero.code.assertions import Example
from codezero.code.parsing import fence
from codezero.evaluator.types import Program
from codezero.models.chat import Conversation
from codezero.models.load import LoadedModel
from codezero.models.logprobs import TokenScores
from codezero.models.prefix_cache import Ask, AskScores, Ids, PrefixReader, PrefixRow, RowScores

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


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """None when one is missing: half an answer is biased towards its order."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def per_test_scores(margins: Sequence[float | None]) -> tuple[float | None, float | None, float | None]:
    """(least, mean, share above 0) of a margin for each test; a test without one must not hide behind the others."""
    known = [margin for margin in margins if margin is not None]
    if not known or len(known) < len(margins):
        return None, None, None
    return min(known), sum(known) / len(known), sum(margin > 0 for margin in known) / len(known)


def alone(program: Program, ask: str) -> str:
    """Question, program and ask in one turn, for a judge that takes no follow-ups."""
    # the mark is derived from the program, which therefore cannot contain it and pretend to end early
    mark = hashlib.sha256(f"{program.question}\0{program.code}".encode("utf-8", "replace")).hexdigest()[:8]
    return f"{program.question}\n\n<<<CODE {mark}>>>\n{program.code}\n<<<END {mark}>>>\n\n{ask}"


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says of one program."""

    code: TokenScores | None
    """Of the code, its fence and the end of the answer, without the opening fence, which is the same for all programs
    and says nothing of this one. None when not asked for."""
    answers: tuple[AskScores | None, ...]
    """One for each follow-up; None where it was too long to read."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a program stands among the rows."""

    row: int
    asks: tuple[tuple[int, int] | None, ...]
    """(row, number of the ask in it); None: too long."""


class Interview:
    """Asks one model about programs."""

    def __init__(self, loaded: LoadedModel, *, most_tokens: float, batch_rows: int, share: bool) -> None:
        """`share` False reads every prompt in full."""
        self._conversation = Conversation(loaded.tokenizer)
        self._reader = PrefixReader(loaded.model, loaded.pad_id, batch_rows=batch_rows, share=share)
        self._end = loaded.stop_ids[0]
        self._most_tokens = most_tokens
        self._opening = self._ids([fence("").partition("\n")[0] + "\n"])[0]
        self.why_full = self._conversation.why_not or (self._reader.why_not if share else "")
        """Why prompts are read in full although they need not be; empty when they are not."""

    def ask(
        self,
        programs: Sequence[Program],
        sheets: Sequence[Sequence[Spoken]],
        *,
        choices: Sequence[int],
        score_code: bool,
    ) -> list[Reply | None]:
        """What the model says of each program and to each follow-up on its sheet; None: too long to read.

        `choices`: ids whose log-probabilities are read where an answer begins.
        """
        heads = self._conversation.heads([program.question for program in programs])
        codes = self._ids([fence(program.code) for program in programs])
        asks = self._asks(programs, sheets)
        rows: list[PrefixRow] = []
        places = [
            self._place(rows, PrefixRow(tuple(head), code), own)
            for head, code, own in zip(heads, codes, asks, strict=True)
        ]
        scores = self._reader.read(rows, end=self._end if score_code else None, choices=choices)
        return [
            None if place is None else self._reply(scores, place, code)
            for place, code in zip(places, codes, strict=True)
        ]

    def _place(self, rows: list[PrefixRow], own: PrefixRow, asks: Sequence[tuple[Ids, Ask]]) -> _Place | None:
        """Append what has to be read for one program."""
        length = len(own.head) + len(own.body)
        if length + 1 > self._most_tokens:
            return None
        at, shared = len(rows), list[Ask]()
        rows.append(own)
        places: list[tuple[int, int] | None] = []
        for prompt, ask in asks:
            if (len(prompt) or length) + len(ask.ids) + len(ask.answer) > self._most_tokens:
                places.append(None)
            elif prompt:
                places.append((len(rows), 0))
                rows.append(PrefixRow(prompt, (), (ask,)))
            else:
                places.append((at, len(shared)))
                shared.append(ask)
        rows[at] = replace(own, asks=tuple(shared))
        return _Place(at, tuple(places))

    def _asks(self, programs: Sequence[Program], sheets: Sequence[Sequence[Spoken]]) -> list[list[tuple[Ids, Ask]]]:
        """Each follow-up as (a prompt of its own, or nothing where it follows the code; ask)."""
        spoken = list(dict.fromkeys(one for sheet in sheets for one in sheet))
        begun = dict(zip(spoken, self._ids([one.begun for one in spoken]), strict=True))
        answer = dict(zip(spoken, self._ids([one.answer for one in spoken]), strict=True))
        if not self._conversation.why_not:
            turns = zip(spoken, self._conversation.follow_ups([one.ask for one in spoken]), strict=True)
            made = {one: Ask((*turn, *begun[one]), answer[one]) for one, turn in turns}
            return [[((), made[one]) for one in sheet] for sheet in sheets]
        texts = [alone(program, one.ask) for program, sheet in zip(programs, sheets, strict=True) for one in sheet]
        prompts = iter(self._conversation.heads(texts))
        return [[(tuple(next(prompts)), Ask(begun[one], answer[one])) for one in sheet] for sheet in sheets]

    def _ids(self, texts: Sequence[str]) -> list[Ids]:
        return [tuple(ids) for ids in self._conversation.answers(texts)]

    def _reply(self, scores: Sequence[RowScores], place: _Place, code: Ids) -> Reply:
        body = scores[place.row].body
        if body is not None:
            pairs = zip((*code, self._end), self._opening, strict=False)
            skip = next((at for at, (one, other) in enumerate(pairs) if one != other), len(self._opening))
            body = TokenScores(body.logprob[skip:], body.gap[skip:])
        return Reply(body, tuple(one and scores[one[0]].asks[one[1]] for one in place.asks))
