"""Programs and follow-ups -> rows for `PrefixReader`, and what the model said back to each program.

Everything is asked in one conversation: [question][the code, as the model's own answer][follow-up][answer, begun]. The
turn is the delimiter, and code cannot spell it. Where a chat template allows no follow-ups, each is a prompt of its
own with the code between marks that it cannot contain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codezero.code.extract import fence
from codezero.evaluator.questions import Spoken, alone
from codezero.evaluator.reading import Program
from codezero.models.conversation import Conversation
from codezero.models.load import LoadedModel
from codezero.models.logprobs import TokenScores
from codezero.models.prefix import Ask, AskScores, Ids, PrefixReader, Row, RowScores


@dataclass(frozen=True, slots=True)
class Said:
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
    ) -> list[Said | None]:
        """What the model says of each program and to each follow-up on its sheet; None: too long to read.

        `choices`: ids whose log-probabilities are read where an answer begins.
        """
        heads = self._conversation.heads([program.question for program in programs])
        codes = self._ids([fence(program.code) for program in programs])
        asks = self._asks(programs, sheets)
        rows: list[Row] = []
        places = [
            self._place(rows, Row(tuple(head), code), own) for head, code, own in zip(heads, codes, asks, strict=True)
        ]
        scores = self._reader.read(rows, end=self._end if score_code else None, choices=choices)
        return [
            None if place is None else self._said(scores, place, code)
            for place, code in zip(places, codes, strict=True)
        ]

    def _place(self, rows: list[Row], own: Row, asks: Sequence[tuple[Ids, Ask]]) -> _Place | None:
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
                rows.append(Row(prompt, (), (ask,)))
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

    def _said(self, scores: Sequence[RowScores], place: _Place, code: Ids) -> Said:
        body = scores[place.row].body
        if body is not None:
            pairs = zip((*code, self._end), self._opening, strict=False)
            skip = next((at for at, (one, other) in enumerate(pairs) if one != other), len(self._opening))
            body = TokenScores(body.logprob[skip:], body.gap[skip:])
        return Said(body, tuple(one and scores[one[0]].asks[one[1]] for one in place.asks))
