"""Text to token ids, the same way for every role: prompts and follow-up turns by the chat template, completions bare.

Text comes from peers and models. Special tokens spelt out in a prompt are removed, so that nobody can end the user's
turn and speak as the assistant; in a completion they are encoded letter by letter, so that a judge sees them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from jinja2 import TemplateError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase as Tokenizer

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

_ANSWER, _ASK = "placeholder of the answer", "placeholder of the ask"
_QUESTIONS = ("What is asked?", "Something else, longer:\n\n1. this\n2. that")


class Conversation:
    """Follow-ups after an answer by one tokenizer's chat template.

    The template is rendered with placeholders and cut there: [question][answer][ask][next answer, begun]. The end of
    the assistant's turn has to be a special token, which no text can spell. A template without one, or one
    that renders a turn differently when another follows, cannot be cut."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before, self._after = "", ""  # text between an answer and an ask, and between that and the next answer
        self.why_not = self._cut()  # why there can be no follow-ups; empty when there can

    def follow_ups(self, asks: Sequence[str]) -> list[list[int]]:
        """Ids from the end of an answer, through the ask, to where the next answer begins. See `why_not`."""
        if not asks:
            return []
        texts = [self._before + without_special_tokens(self._tokenizer, ask) + self._after for ask in asks]
        return cast("list[list[int]]", self._tokenizer(texts, add_special_tokens=False)["input_ids"])

    def _cut(self) -> str:
        """Set the text around a follow-up, which has to be the same after any question."""
        tails: set[str] = set()
        for question in _QUESTIONS:
            try:
                head, whole = self._render(question), self._render(question, _ANSWER, _ASK)
            except TemplateError as error:
                return f"the chat template takes no second question: {str(error)[:100]}"
            before, marked, after = whole.partition(_ANSWER)
            if not marked or before != head:
                return "the chat template renders a question differently once it is answered"
            tails.add(after)
        tail = tails.pop()
        before, marked, after = tail.partition(_ASK)
        if tails or not marked:
            return "the chat template renders a follow-up differently after another question"
        if not before.lstrip().startswith(tuple(_special_tokens(self._tokenizer))):
            return "the chat template ends an answer without a special token"
        self._before, self._after = before, after
        return ""

    def _render(self, *turns: str) -> str:
        """User and assistant by turns, user last, up to where the next answer begins."""
        roles = ("user", "assistant")
        messages = [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
        return cast(str, self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def encode_prompts(tokenizer: Tokenizer, user_texts: Sequence[str], max_tokens: int | None = None) -> list[list[int]]:
    """Ids of one user turn each, ending where the assistant's answer begins. A prompt longer than `max_tokens` loses
    its beginning, so that it still ends in the generation prompt."""
    if not user_texts:
        return []
    turns = [[{"role": "user", "content": without_special_tokens(tokenizer, text)}] for text in user_texts]
    rendered = cast("list[str]", tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    ids = cast("list[list[int]]", tokenizer(rendered, add_special_tokens=False)["input_ids"])
    return ids if max_tokens is None else [row[-max_tokens:] for row in ids]


def encode_completions(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Ids of answers, without EOS and with no special token, whatever the text spells."""
    if not texts:
        return []
    ids = tokenizer([_valid(text) for text in texts], add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return cast("list[list[int]]", ids)


def encode_answered(tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]], system: str = "") -> list[list[int]]:
    """Ids of a question and its whole answer each, as the template ends a conversation; nothing in either spells a
    special token. Raises ValueError for a template that leaves one of the texts out, or cannot be rendered."""
    turns = [{"role": "system", "content": system}] * bool(system)
    ids = list[list[int]]()
    for question, answer in pairs:
        user = {"role": "user", "content": without_special_tokens(tokenizer, question)}
        asked = [*turns, user, {"role": "assistant", "content": _ANSWER}]
        try:
            text = cast(str, tokenizer.apply_chat_template(asked, tokenize=False))
        except TemplateError as error:
            raise ValueError(str(error)) from error
        before, marked, after = text.rpartition(_ANSWER)
        if not marked or system.strip() not in before:
            raise ValueError("it leaves out " + ("the system turn" if marked else "the answer"))
        head, tail = tokenizer([before, after], add_special_tokens=False)["input_ids"]
        ids.append([*head, *encode_completions(tokenizer, [answer])[0], *tail])
    return ids


def completion_offsets(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """[start, end) of the characters of each id that `encode_completions` gives; (0, 0) where the tokenizer, in pure
    Python, cannot say."""
    if not texts:
        return []
    if not tokenizer.is_fast:
        return [[(0, 0)] * len(ids) for ids in encode_completions(tokenizer, texts)]
    valid = list(map(_valid, texts))
    encoded = tokenizer(valid, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True)
    return cast("list[list[tuple[int, int]]]", encoded["offset_mapping"])


def ids_before(tokenizer: Tokenizer, ids: Sequence[int], end: int) -> int:
    """Number of sampled ids that spell the first `end` characters."""
    return bisect.bisect_left(
        range(len(ids)), end, key=lambda count: len(tokenizer.decode(list(ids[:count]), skip_special_tokens=True))
    )


def without_special_tokens(tokenizer: Tokenizer, text: str) -> str:
    """`text` as valid UTF-8 that spells no special token, not even after one was cut out of it."""
    text, special = _valid(text), _special_tokens(tokenizer)
    while spelt := [token for token in special if token in text]:
        for token in spelt:
            text = text.replace(token, "")
    return text


def _special_tokens(tokenizer: Tokenizer) -> list[str]:
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.special and token.content]


def pad(
    rows: Sequence[Sequence[int]], pad_id: int, device: torch.device, *, left: bool = False
) -> tuple[Int[Tensor, "rows longest"], Bool[Tensor, "rows longest"]]:
    """Ids filled up on the right (left), and which of them are real."""
    side = "left" if left else "right"
    ids = pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], True, pad_id, side)
    real = pad_sequence([torch.ones(len(row), dtype=torch.bool) for row in rows], True, False, side)
    return ids.to(device), real.to(device)


def _valid(text: str) -> str:
    """Lone surrogates, which tokenizers refuse, as question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
