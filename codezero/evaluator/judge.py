"""A frozen language model as judge: how likely would it have written this program, and does it say Yes?

Likelihood reads the canonical code once behind the question (teacher forcing). A model pays for every token it would
not have written itself, which a policy under optimisation finds much harder to exploit than a yes/no question; the
price is that a correct but unusual program is thought wrong. Both scores are only that: `calibration.py` decides.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import hashlib
import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence

import torch

from codezero.code.extract import fence
from codezero.errors import EvaluatorError
from codezero.evaluator.evaluator import Program, Reading
from codezero.models.chat import encode_completions, encode_prompts
from codezero.models.load import LoadedModel
from codezero.models.logprobs import TokenScores, teacher_forced

PROMPT_VERSION = "1"
"""Changes with every change of wording, so that no cached score outlives it."""
CACHED_READINGS = 65_536
FLOOR = -15.0
"""Nats; a token that is less likely than this is simply not written by this model."""

LEAST_GAP, MEAN_GAP, YES_MARGIN = "least_gap", "mean_gap", "yes_margin"

_WORDS = ((" Yes", " No"), ("Yes", "No"), (" yes", " no"), ("YES", "NO"))
_ORDERS = ("Yes or No", "No or Yes")
_CONTENT_FREE = ("pass", "N/A")
_LEAST_MASS = 0.5
"""Probability of Yes and No together below which the model has not answered."""
_TOKENS_PER_BATCH = 32_768


class LikelihoodJudge:
    """Scores of a program: `least_gap` and `mean_gap` over the tokens of its code and of the end of the answer, nats
    below the likeliest token; and, where the tokenizer has one token for each, the margin of Yes over No."""

    def __init__(self, loaded: LoadedModel, *, batch_rows: int = 128) -> None:
        self._loaded = loaded
        self._batch_rows = batch_rows
        self._yes_no = _single_tokens(loaded)
        self._cache: OrderedDict[bytes, Reading] = OrderedDict()
        self._most_tokens = getattr(loaded.model.config, "max_position_embeddings", None) or math.inf

    @property
    def names(self) -> tuple[str, ...]:
        return (LEAST_GAP, MEAN_GAP, YES_MARGIN) if self._yes_no else (LEAST_GAP, MEAN_GAP)

    @property
    def unused(self) -> str:
        """Why there is no yes/no margin; empty when there is one."""
        return "" if self._yes_no else "the tokenizer has no single tokens for Yes and No"

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

    def _key(self, program: Program, wanted: frozenset[str]) -> bytes:
        parts = (self._loaded.name, PROMPT_VERSION, *sorted(wanted), program.question, program.code)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).digest()

    def _read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        gaps = self._gaps(programs)
        readable = [program for program, gap in zip(programs, gaps, strict=True) if not isinstance(gap, str)]
        asked = bool(self._yes_no) and YES_MARGIN in wanted
        margins = iter(self._margins(readable) if asked else [None] * len(readable))
        readings: list[Reading] = []
        for gap in gaps:
            if isinstance(gap, str):
                readings.append(Reading(None, gap))
            else:
                readings.append(Reading((*gap, next(margins)) if self._yes_no else gap))
        return readings

    def _gaps(self, programs: Sequence[Program]) -> list[tuple[float, float] | str]:
        """(least, mean) for each program, or why there is none."""
        tokenizer = self._loaded.tokenizer
        prompts = encode_prompts(tokenizer, [program.question for program in programs])
        answers = encode_completions(tokenizer, [fence(program.code) for program in programs])
        opening = encode_completions(tokenizer, [fence("").partition("\n")[0] + "\n"])[0]
        rows = [(prompt, [*answer, self._loaded.stop_ids[0]]) for prompt, answer in zip(prompts, answers, strict=True)]
        fits = [len(prompt) + len(answer) <= self._most_tokens for prompt, answer in rows]
        short = [row for row, fit in zip(rows, fits, strict=True) if fit]
        scores = iter(
            teacher_forced(
                self._loaded.model,
                self._loaded.pad_id,
                [prompt for prompt, _ in short],
                [answer for _, answer in short],
                batch_rows=self._batch_rows,
            )
            if short
            else ()
        )
        return [
            _summary(next(scores), _shared(answer, opening)) if fit else "longer than the judge can read"
            for (_, answer), fit in zip(rows, fits, strict=True)
        ]

    def _margins(self, programs: Sequence[Program]) -> list[float | None]:
        """Mean over both orders of log p(Yes) - log p(No), less what the model says of no program at all.

        Zhao et al., "Calibrate before use", 2021. None where it does not answer Yes or No.
        """
        questions = list(dict.fromkeys(program.question for program in programs))
        empty = [Program(question, code) for question in questions for code in _CONTENT_FREE]
        said = dict(zip((*programs, *empty), self._answers([*programs, *empty]), strict=True))
        prior = {question: _mean([said[Program(question, code)] for code in _CONTENT_FREE]) for question in questions}
        return [_difference(said[program], prior[program.question]) for program in programs]

    def _answers(self, programs: Sequence[Program]) -> list[float | None]:
        tokenizer = self._loaded.tokenizer
        texts = [_question(program, order) for program in programs for order in _ORDERS]
        begun = encode_completions(tokenizer, ["Answer:"])[0]
        rows = [[*prompt, *begun] for prompt in encode_prompts(tokenizer, texts)]
        margins = self._next_token_margins(rows)
        return [_mean(margins[at : at + len(_ORDERS)]) for at in range(0, len(margins), len(_ORDERS))]

    @torch.no_grad()
    def _next_token_margins(self, rows: Sequence[Sequence[int]]) -> list[float | None]:
        """Left-padded, so that every row's next token stands last."""
        margins: list[float | None] = [None] * len(rows)
        yes, no = (list(ids) for ids in zip(*self._yes_no, strict=True))
        for batch in self._batches(rows):
            longest = max(len(rows[i]) for i in batch)
            ids = [[self._loaded.pad_id] * (longest - len(rows[i])) + list(rows[i]) for i in batch]
            mask = [[0] * (longest - len(rows[i])) + [1] * len(rows[i]) for i in batch]
            attention = torch.tensor(mask, device=self._loaded.device)
            logits = self._loaded.model(
                input_ids=torch.tensor(ids, device=self._loaded.device),
                attention_mask=attention,
                position_ids=(attention.cumsum(-1) - 1).clamp(min=0),
                use_cache=False,
                logits_to_keep=1,
            ).logits[:, -1]
            logprobs = logits.float().log_softmax(-1)
            says_yes, says_no = logprobs[:, yes].logsumexp(-1), logprobs[:, no].logsumexp(-1)
            mass = (says_yes.exp() + says_no.exp()).tolist()
            for i, margin, answered in zip(batch, (says_yes - says_no).tolist(), mass, strict=True):
                margins[i] = margin if math.isfinite(margin) and answered >= _LEAST_MASS else None
        return margins

    def _batches(self, rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        batch: list[int] = []
        for i in sorted(range(len(rows)), key=lambda i: len(rows[i])):
            if len(rows[i]) > self._most_tokens:
                return
            if batch and (len(batch) == self._batch_rows or (len(batch) + 1) * len(rows[i]) > _TOKENS_PER_BATCH):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch


def _summary(scores: TokenScores, skip: int) -> tuple[float, float] | str:
    """The opening fence is the same for all and says nothing about the program."""
    gaps = scores.gap[skip:]
    if not bool(torch.isfinite(gaps).all()):
        return "the judge's scores are not finite"
    gaps = gaps.clamp(min=FLOOR)
    return float(gaps.min()), float(gaps.mean())


def _shared(answer: Sequence[int], opening: Sequence[int]) -> int:
    """Tokens that both begin with."""
    pairs = zip(answer, opening, strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(answer), len(opening)))


def _single_tokens(loaded: LoadedModel) -> list[tuple[int, int]]:
    """(yes, no) ids of every spelling that is one token in both."""
    ids = encode_completions(loaded.tokenizer, [word for pair in _WORDS for word in pair])
    pairs = zip(ids[::2], ids[1::2], strict=True)
    return [(yes[0], no[0]) for yes, no in pairs if len(yes) == len(no) == 1 and yes != no]


def _question(program: Program, order: str) -> str:
    # the mark is derived from the program, which therefore cannot contain it and pretend to end early
    mark = hashlib.sha256(f"{program.question}\0{program.code}".encode("utf-8", "replace")).hexdigest()[:8]
    return (
        f"{program.question}\n\n<<<CODE {mark}>>>\n{program.code}\n<<<END {mark}>>>\n\n"
        f"Does this code do exactly what is asked, for every input? Answer {order}."
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """None when one is missing: half an answer is biased towards its order."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _difference(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other
