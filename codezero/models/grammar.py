"""Grammar constraints: before each token, sampling excludes what the grammar does not allow.

llguidance does the work, for any byte-level or SentencePiece tokenizer of the tokenizers library. A constrained draw is
not from the model alone, so its log-probabilities are no basis for learning."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from codezero.errors import ModelError, translated
from codezero.models.load import LoadedModel

if TYPE_CHECKING:
    from jaxtyping import Float, Int

log = logging.getLogger(__name__)

Cost = Callable[[str], int]  # tokens of a text
Grammar = Callable[[int, Cost], str]  # the Lark grammar of texts of so many tokens; empty: unconstrained


class Structure:
    """A grammar for one model's tokenizer. Raises ModelError for a tokenizer that cannot be constrained."""

    def __init__(self, loaded: LoadedModel, grammar: Grammar) -> None:
        tokenizer = cast(PreTrainedTokenizerFast, loaded.tokenizer)  # no other is taken
        self._loaded, self._grammar = loaded, grammar
        self._stops = list(loaded.stop_ids)
        self._vocabulary = int(loaded.model.config.vocab_size)
        fault = f"{loaded.name}: its tokenizer is unfit, so nothing is constrained"
        with translated(ModelError, fault, ValueError, TypeError):
            self._tokenizer: LLTokenizer = from_tokenizer(tokenizer, n_vocab=self._vocabulary, eos_token=self._stops)
        self._known: dict[int, str] = {}

    def begin(self, count: int, max_new_tokens: int) -> Constraint | None:
        """For a decode of `count` rows; None where nothing would fit into `max_new_tokens`."""
        if max_new_tokens not in self._known:
            grammar = self._grammar(
                max_new_tokens, lambda text: len(self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"])
            )
            wrong = grammar and LLMatcher.validate_grammar(grammar, self._tokenizer)
            if wrong:
                raise ValueError(f"a grammar that is none: {wrong}")
            if not grammar:
                log.info("%s: %d new tokens are too few to be constrained", self._loaded.name, max_new_tokens)
            self._known = {max_new_tokens: grammar}
        grammar = self._known[max_new_tokens]
        if not grammar:
            return None
        first = LLMatcher(self._tokenizer, grammar)
        matchers = [first.deep_copy() for _ in range(count)]
        return Constraint(matchers, self._stops, self._vocabulary)


class Constraint:
    """Where each row of one decode is in the grammar."""

    def __init__(self, matchers: Sequence[LLMatcher], stops: Sequence[int], vocabulary: int) -> None:
        self._matchers, self._stops, self._vocabulary = matchers, stops, vocabulary
        self._words = (vocabulary + 31) // 32

    def narrow(
        self, logits: Float[Tensor, "alive vocabulary"], rows: Int[Tensor, " alive"]
    ) -> Float[Tensor, "alive vocabulary"]:
        """Logits without the tokens that the grammar does not allow; `rows` are their numbers."""
        masks = np.stack([self._mask(self._matchers[row]) for row in rows.tolist()])
        allowed = np.unpackbits(masks.view(np.uint8), axis=1, bitorder="little")[:, : logits.size(-1)].astype(bool)
        return logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), float("-inf"))

    def took(self, rows: Int[Tensor, " alive"], tokens: Int[Tensor, " alive"]) -> None:
        """Go on behind the tokens that were drawn for these rows."""
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            matcher = self._matchers[row]
            if token not in self._stops and not matcher.is_stopped():
                matcher.consume_token(token)

    def _mask(self, matcher: LLMatcher) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """[V / 32] bits; where the grammar leaves one text, only the tokenizer's own tokens of it, which are fewest."""
        forced = [] if matcher.is_stopped() else matcher.compute_ff_tokens()
        if matcher.is_stopped() or forced:
            mask = np.zeros(self._words, np.int32)
            for token in forced[:1] or self._stops:
                mask.view(np.uint32)[token // 32] |= np.uint32(1 << token % 32)
            return mask
        mask = np.full(self._words, -1, np.int32)
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        return mask
