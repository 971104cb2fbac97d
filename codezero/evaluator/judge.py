"""A frozen language model as judge: how likely would it have written this program, and what does it say when asked?

Likelihood reads the canonical code once behind the question (teacher forcing). A model pays for every token it would
not have written itself, which a policy under optimisation finds much harder to exploit than a yes/no question; the
price is that a correct but unusual program is thought wrong. The questions are follow-ups of the same conversation, so
that question and code are read once for all. All of it is only scores: `calibration.py` decides what they are worth.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import json
import logging
import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from itertools import chain

import torch

from codezero.errors import ConfigError, EvaluatorError
from codezero.evaluator.judge_prompts import (
    CONTENT_FREE,
    LEAST_GAP,
    LIKELIHOOD,
    MEAN_GAP,
    OUTPUT_MATCH,
    PER_TEST,
    PROMPT_VERSION,
    SCORES,
    YES_MARGIN,
    YES_NO,
    YES_NO_WORDS,
    Interview,
    Reply,
    Spoken,
    follow_ups,
    mean_of_all,
    per_test_scores,
)
from codezero.evaluator.types import Program, Reading
from codezero.models.chat import encode_completions
from codezero.models.load import LoadedModel
from codezero.models.prefix_cache import AskScores

__all__ = ["LEAST_GAP", "MEAN_GAP", "YES_MARGIN", "LikelihoodJudge"]

logger = logging.getLogger(__name__)

CACHED_READINGS = 65_536
FLOOR = -15.0
"""Nats; a token that is less likely than this is simply not written by this model."""

_LEAST_MASS = 0.5
"""Probability of Yes and No together below which the model has not answered."""


class LikelihoodJudge:
    """Scores of a program by one model in this process; `questions.SCORES` says which question gives which."""

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        questions: Collection[str] = (LIKELIHOOD, YES_NO),
        batch_rows: int = 128,
        share_prefix: bool = True,
    ) -> None:
        """`share_prefix` False reads every prompt in full. Raises ConfigError for an unknown question."""
        if unknown := sorted(set(questions) - set(SCORES)):
            raise ConfigError(f"evaluator.questions: {unknown[0]} is unknown; choose any of: {', '.join(SCORES)}")
        self._loaded = loaded
        self._yes_no = _single_tokens(loaded)
        mute = {YES_NO, PER_TEST} & set(questions) if not self._yes_no else set[str]()
        self._unused = "the tokenizer has no single tokens for Yes and No" if mute else ""
        self._questions = tuple(question for question in SCORES if question in questions and question not in mute)
        self._most_tokens: float = getattr(loaded.model.config, "max_position_embeddings", None) or math.inf
        self._interview = Interview(loaded, most_tokens=self._most_tokens, batch_rows=batch_rows, share=share_prefix)
        self._cache: OrderedDict[bytes, Reading] = OrderedDict()
        if self._interview.why_full:
            logger.info("the judge reads every prompt in full: %s", self._interview.why_full)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for question in self._questions for name in SCORES[question])

    @property
    def unused(self) -> str:
        """Why a question that was wanted is not asked; empty when all are."""
        return self._unused

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """Same program, same reading. Raises EvaluatorError when the model cannot be asked at all."""
        keys = [self._key(program, wanted) for program in programs]
        missing = {key: program for key, program in zip(keys, programs, strict=True) if key not in self._cache}
        known = {key: self._cache[key] for key in keys if key in self._cache}
        if missing:
            try:
                fresh = self._read(list(missing.values()), wanted)
            except torch.OutOfMemoryError as error:
                raise EvaluatorError("the judge ran out of memory; lower evaluator.batch_rows") from error
            known |= dict(zip(missing, fresh, strict=True))
        for key in keys:
            self._cache[key] = known[key]
            self._cache.move_to_end(key)
        while len(self._cache) > CACHED_READINGS:
            self._cache.popitem(last=False)
        return [known[key] for key in keys]

    def forget(self) -> None:
        """Rows of one batch are padded to one length, which moves the last digits of a score."""
        self._cache.clear()

    def _key(self, program: Program, wanted: frozenset[str]) -> bytes:
        model = (self._loaded.name, getattr(self._loaded.model.config, "_commit_hash", None), PROMPT_VERSION)
        examples = [(example.input, example.output) for example in program.examples]
        parts = (*model, sorted(wanted), program.question, program.code, examples, program.stdio)
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    def _read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        needed = {question for question in self._questions if wanted & set(SCORES[question])}
        if not needed:
            return [Reading((None,) * len(self.names))] * len(programs)
        questions = list(dict.fromkeys(program.question for program in programs)) if YES_NO in needed else []
        empty = [Program(question, code) for question in questions for code in CONTENT_FREE]
        sheets = [follow_ups(program, needed) for program in programs]
        reply = self._interview.ask(
            [*programs, *empty],
            [*sheets, *(follow_ups(program, {YES_NO}) for program in empty)],
            choices=list(chain(*zip(*self._yes_no, strict=True))),
            score_code=LIKELIHOOD in needed,
        )
        priors = self._priors(questions, reply[len(programs) :])
        return [
            self._reading(sheet, one, priors.get(program.question))
            for program, sheet, one in zip(programs, sheets, reply[: len(programs)], strict=True)
        ]

    def _priors(self, questions: Sequence[str], reply: Sequence[Reply | None]) -> dict[str, float | None]:
        """Mean margin of the programs that say nothing, by question."""
        margins = [None if one is None else mean_of_all(self._next_token_margins(one.answers)) for one in reply]
        each = len(CONTENT_FREE)
        return {question: mean_of_all(margins[at * each : (at + 1) * each]) for at, question in enumerate(questions)}

    def _reading(self, sheet: Sequence[Spoken], reply: Reply | None, prior: float | None) -> Reading:
        if reply is None:
            return Reading(None, "longer than the judge can read")
        scores: dict[str, float | None] = {}
        if reply.code is not None:
            gaps = reply.code.gap.clamp(min=FLOOR)
            if not bool(torch.isfinite(reply.code.gap).all()):
                return Reading(None, "the judge's scores are not finite")
            scores |= zip(SCORES[LIKELIHOOD], (float(gaps.min()), float(gaps.mean())), strict=True)
        answers: dict[str, list[AskScores | None]] = {spoken.question: [] for spoken in sheet}
        for spoken, answer in zip(sheet, reply.answers, strict=True):
            answers[spoken.question].append(answer)
        if YES_NO in answers:
            scores[YES_MARGIN] = _difference(mean_of_all(self._next_token_margins(answers[YES_NO])), prior)
        if PER_TEST in answers:
            scores |= zip(SCORES[PER_TEST], per_test_scores(self._next_token_margins(answers[PER_TEST])), strict=True)
        if OUTPUT_MATCH in answers:
            scores |= zip(SCORES[OUTPUT_MATCH], _of_outputs(answers[OUTPUT_MATCH]), strict=True)
        return Reading(tuple(scores.get(name) for name in self.names))

    def _next_token_margins(self, answers: Sequence[AskScores | None]) -> list[float | None]:
        """log p(Yes) - log p(No) where each answer begins; None where the model says neither, or could not read."""
        known = [answer.choices for answer in answers if answer is not None]
        if not known:
            return [None] * len(answers)
        yes, no = torch.stack(known).unflatten(-1, (2, -1)).logsumexp(-1).unbind(-1)
        masses = (yes.exp() + no.exp()).tolist()
        margins = iter(
            [
                margin if math.isfinite(margin) and mass >= _LEAST_MASS else None
                for margin, mass in zip((yes - no).tolist(), masses, strict=True)
            ]
        )
        return [None if answer is None else next(margins) for answer in answers]


def _of_outputs(answers: Sequence[AskScores | None]) -> tuple[float | None, float | None]:
    """(share of outputs that the model would have given token by token, mean log-probability of their tokens)."""
    known = [answer.answer for answer in answers if answer is not None]
    if not known or len(known) < len(answers) or not all(bool(torch.isfinite(one.gap).all()) for one in known):
        return None, None
    return sum(bool((one.gap >= 0).all()) for one in known) / len(known), float(
        torch.cat([one.logprob for one in known]).mean()
    )


def _single_tokens(loaded: LoadedModel) -> list[tuple[int, int]]:
    """(yes, no) ids of every spelling that is one token in both."""
    ids = encode_completions(loaded.tokenizer, [word for pair in YES_NO_WORDS for word in pair])
    pairs = zip(ids[::2], ids[1::2], strict=True)
    return [(yes[0], no[0]) for yes, no in pairs if len(yes) == len(no) == 1 and yes != no]


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
