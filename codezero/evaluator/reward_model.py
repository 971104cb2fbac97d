"""A reward model as judge: a sequence classifier with one logit, which reads question and program as a conversation.

So are Skywork-Reward-V2, CodeScaler and Themis-RM made. The logit is one more score: calibrated, gated and watched."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import nn

from codezero.code.parsing import fence
from codezero.errors import EvaluatorError, ModelChoiceError, translated
from codezero.evaluator import judge_prompts as prompts
from codezero.evaluator.judge import CACHED_READINGS, NO_MEMORY
from codezero.evaluator.types import Program, Reading
from codezero.models.chat import encode_answered, pad
from codezero.models.likelihood import batches
from codezero.models.load import LoadedModel

REWARD_MODEL = "reward_model"  # the name of its score


class RewardModelJudge:
    """Implements `types.Judge`."""

    names = (REWARD_MODEL,)

    def __init__(
        self,
        loaded: LoadedModel,
        system: str = "",
        batch_rows: int = 128,
        progress: Callable[[int, int], object] = lambda done, of: None,
    ) -> None:
        """Raises ModelChoiceError for a chat template that shows no answer, or no `system` turn."""
        what, mend = f"judge: the chat template of {loaded.name} cannot be used", "add that of its authors"
        with translated(ModelChoiceError, what, ValueError, TypeError, mend=mend):
            encode_answered(loaded.tokenizer, [("question", "answer")], system)
        self._loaded, self._system, self._batch_rows, self._progress = loaded, system, batch_rows, progress
        self._config: Any = loaded.model.config.get_text_config()
        self._most_tokens: float = getattr(self._config, "max_position_embeddings", None) or math.inf
        pad_id = self._config.pad_token_id
        self._pads = pad_id is not None and 0 <= pad_id < self._config.vocab_size
        self._cache: dict[Program, Reading] = {}
        head = getattr(loaded.model, "score", None)
        if isinstance(head, nn.Linear) and head.weight.is_floating_point():  # in bfloat16 many scores would be equal
            head.float().register_forward_pre_hook(lambda _, given: (cast("torch.Tensor", given[0]).float(),))

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """The same reading for the same program until `forget`. Raises EvaluatorError when memory runs out."""
        if not wanted & {*self.names}:
            return [Reading((None,))] * len(programs)
        if len(self._cache) > CACHED_READINGS:
            self._cache.clear()
        missing = [program for program in dict.fromkeys(programs) if program not in self._cache]
        with translated(EvaluatorError, NO_MEMORY, torch.OutOfMemoryError, reason=False):
            self._cache |= zip(missing, self._read(missing), strict=True)
        return [self._cache[program] for program in programs]

    def forget(self) -> None:
        """Rows of one batch are padded to one length, which changes the last digits of a score."""
        self._cache.clear()

    @torch.no_grad()
    def _read(self, programs: Sequence[Program]) -> list[Reading]:
        pairs = [(prompts.task(program), fence(program.code)) for program in programs]
        rows = encode_answered(self._loaded.tokenizer, pairs, self._system)
        readings = [Reading(None, "longer than the judge can read")] * len(rows)
        fitting = [at for at, row in enumerate(rows) if len(row) <= self._most_tokens]
        if not self._pads:  # the model takes the last token that is no padding: with this one no text ends
            self._config.pad_token_id = min({*range(len(rows) + 1)} - {row[-1] for row in rows})
        done = 0
        for batch in batches(fitting, lambda at: len(rows[at]), self._batch_rows):
            ids, real = pad([rows[at] for at in batch], self._config.pad_token_id, self._loaded.device)
            logits = self._loaded.model(input_ids=ids, attention_mask=real.long(), use_cache=False).logits
            for at, score in zip(batch, logits[:, 0].tolist(), strict=True):
                finite = math.isfinite(score)
                readings[at] = Reading((score,)) if finite else Reading(None, "the judge's scores are not finite")
            done += len(batch)
            self._progress(done, len(fitting))
        return readings
