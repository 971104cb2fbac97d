"""Samples completions in groups: every problem of an iteration, all its attempts, in one batched decode."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from codezero.models.cached import CachedDecoder
from codezero.models.chat import encode_prompts
from codezero.models.decode import LeanDecoder, is_lean
from codezero.models.load import LoadedModel
from codezero.types import Completion

CACHE_BUDGET = 2**30
"""Most bytes of keys and values in one batched decode; more rows are decoded in several."""
DROP_SHARE = 4
"""Finished rows are dropped when they are a DROP_SHARE-th of the batch: copying the cache has its price."""

Drawn = tuple[list[int], list[float]]
"""Ids of one completion, EOS included, and their log-probabilities."""


class Decoder(Protocol):
    """The state of one batched decode."""

    def prefill(self, prompts: Sequence[Sequence[int]], repeats: int, room: int) -> Tensor: ...

    def step(self, tokens: Tensor) -> Tensor: ...

    def keep(self, rows: Tensor) -> None: ...


class Sampler:
    """Draws from a model as it is at the time of the call; the policy may have been trained since the last."""

    def __init__(self, loaded: LoadedModel):
        self.loaded = loaded
        self.lean = is_lean(loaded.model)
        self.stops = torch.tensor(loaded.stop_ids, device=loaded.device)

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
        drawn = self.sample_ids(rows, group_size, max_new_tokens, temperature, generator_seed)
        texts = self.loaded.tokenizer.batch_decode(
            [ids for ids, _ in drawn], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        stops = set(self.loaded.stop_ids)
        completions = [
            Completion(text=text, token_ids=tuple(ids), logprobs=tuple(logprobs), finished=ids[-1] in stops)
            for text, (ids, logprobs) in zip(texts, drawn, strict=True)
        ]
        return [completions[i : i + group_size] for i in range(0, len(completions), group_size)]

    @torch.inference_mode()
    def sample_ids(
        self, prompts: Sequence[Sequence[int]], repeats: int, max_new_tokens: int, temperature: float, seed: int
    ) -> list[Drawn]:
        """`repeats` draws after each prompt, those of one prompt beside each other."""
        model = self.loaded.model
        generator = torch.Generator(device=self.loaded.device).manual_seed(seed)
        drawn: dict[int, list[Drawn]] = {}
        training = model.training
        model.eval()
        try:
            for chunk in self._chunks(prompts, repeats, max_new_tokens):
                decoder = (LeanDecoder if self.lean else CachedDecoder)(model, self.loaded.pad_id)
                logits = decoder.prefill([prompts[i] for i in chunk], repeats, max_new_tokens)
                rows = self._draw(decoder, logits, max_new_tokens, temperature, generator)
                drawn |= {i: rows[at * repeats : (at + 1) * repeats] for at, i in enumerate(chunk)}
        finally:
            model.train(training)
        return [row for i in range(len(prompts)) for row in drawn[i]]

    def _draw(
        self, decoder: Decoder, logits: Tensor, max_new_tokens: int, temperature: float, generator: torch.Generator
    ) -> list[Drawn]:
        """Token by token until every row has ended. Gumbel-max: argmax(log p - log E), E ~ Exp(1), draws from p."""
        ids = torch.full((len(logits), max_new_tokens), -1, device=logits.device)
        logprobs = torch.zeros(ids.shape, device=logits.device)
        rows = torch.arange(len(logits), device=logits.device)  # of `ids`, for each row still being decoded
        done = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        for at in range(max_new_tokens):
            log_p = (logits.float() / temperature).log_softmax(-1)
            noise = torch.empty_like(log_p).exponential_(generator=generator).log_()
            tokens = (log_p - noise).argmax(-1)
            ids[rows, at] = tokens.masked_fill(done, -1)
            logprobs[rows, at] = log_p.gather(-1, tokens[:, None])[:, 0]
            done = done | torch.isin(tokens, self.stops)
            finished = int(done.sum())
            if finished == len(rows) or at + 1 == max_new_tokens:
                break
            if finished * DROP_SHARE >= len(rows):
                alive = (~done).nonzero()[:, 0]
                rows, tokens, done = rows[alive], tokens[alive], done[alive]
                decoder.keep(alive)
            logits = decoder.step(tokens)
        lengths = (ids >= 0).sum(-1).tolist()
        both = zip(ids.tolist(), logprobs.tolist(), lengths, strict=True)
        return [(row[:length], row_logprobs[:length]) for row, row_logprobs, length in both]

    def _chunks(self, prompts: Sequence[Sequence[int]], repeats: int, room: int) -> Iterator[list[int]]:
        """Indices of prompts alike in length, as many as the cache budget holds (at least one)."""
        per_token = repeats * self._cache_bytes_per_token()
        chunk: list[int] = []
        for i in sorted(range(len(prompts)), key=lambda i: len(prompts[i])):
            if chunk and (len(chunk) + 1) * (len(prompts[i]) + room) * per_token > CACHE_BUDGET:
                yield chunk
                chunk = []
            chunk.append(i)
        if chunk:
            yield chunk

    def _cache_bytes_per_token(self) -> int:
        config = self.loaded.model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return 2 * config.num_hidden_layers * heads * size * self.loaded.model.dtype.itemsize
