"""Samples completions in groups: every problem of an iteration, all its attempts, in one batched decode."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence

from codezero.models.chat import encode_prompts
from codezero.models.generation import Backend, OwnLoop
from codezero.models.load import LoadedModel
from codezero.types import Completion


class Sampler:
    """Draws from a model as it is at the time of the call; the policy may have been trained since the last."""

    def __init__(self, loaded: LoadedModel, backend: Backend | None = None):
        """`backend`: who decodes; by default our own loop."""
        self.loaded = loaded
        self.backend: Backend = backend or OwnLoop(loaded)

    def sample(
        self,
        prompts: Sequence[str],
        *,
        group_size: int,
        max_new_tokens: int,
        temperature: float,
        generator_seed: int,
        max_prompt_tokens: int | None = None,
    ) -> list[list[Completion]]:
        """`group_size` completions for each user text, in order; the same for the same seed and weights.

        `logprobs` are nats under the sampling temperature (> 0). A prompt over `max_prompt_tokens` loses its beginning.
        """
        if not prompts:
            return []
        rows = encode_prompts(self.loaded.tokenizer, prompts, max_prompt_tokens)
        drawn = self.backend.draw(rows, group_size, max_new_tokens, temperature, generator_seed)
        texts = self.loaded.tokenizer.batch_decode(
            [ids for ids, _ in drawn], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        stops = set(self.loaded.stop_ids)
        completions = [
            Completion(text=text, token_ids=tuple(ids), logprobs=tuple(logprobs), finished=ids[-1] in stops)
            for text, (ids, logprobs) in zip(texts, drawn, strict=True)
        ]
        return [completions[i : i + group_size] for i in range(0, len(completions), group_size)]
