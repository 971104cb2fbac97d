"""What a rollout server is asked, in vLLM's form, and what of its answer is believed."""

import hashlib
import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from codezero.errors import EndpointError, translated
from codezero.models.generation import Drawn

Count = Annotated[int, Meta(ge=1)]
Tokens = list[Annotated[int, Meta(ge=0)]]


class Sampling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `vllm.SamplingParams`."""

    n: Count
    max_tokens: Count
    temperature: Annotated[float, Meta(ge=0, le=2)]
    seed: Annotated[int, Meta(ge=0, lt=1 << 53)]
    stop_token_ids: Annotated[Tokens, Meta(max_length=64)]
    logprobs: Literal[0] = 0
    """Of the chosen token, and no others."""
    top_p: Annotated[float, Meta(ge=1, le=1)] = 1.0
    top_k: Literal[0] = 0
    ignore_eos: bool = True
    """What the engine takes for EOS; ours are listed."""
    detokenize: bool = False
    logit_bias: dict[Annotated[int, Meta(ge=0)], Annotated[float, Meta(ge=-1e4, le=0)]] | None = None
    """Bars the ids that the tokenizer has not, which a server without a tokenizer cannot know."""


class GenerateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: Literal["policy"]
    token_ids: Annotated[Tokens, Meta(min_length=1)]
    sampling_params: Sampling


def requests(
    prompts: int,
    repeats: int,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    stop_ids: Sequence[int],
    bias: dict[int, float] | None = None,
) -> list[Sampling]:
    """One for each prompt. vLLM gives its draws the seeds s, s + 1, ...; so s is far from those of other prompts."""
    digests = [hashlib.sha256(f"{seed} {at}".encode()).digest()[:6] for at in range(prompts)]
    seeds = [int.from_bytes(digest) for digest in digests]
    return [Sampling(repeats, max_new_tokens, temperature, seed, list(stop_ids), logit_bias=bias) for seed in seeds]


class _LogProb(msgspec.Struct, frozen=True):
    logprob: Annotated[float, Meta(le=0)]


class _Span(msgspec.Struct, frozen=True):
    version: Annotated[str, Meta(pattern=r"\A[0-9]{1,16}\Z")]
    start: int
    end: int


class _Choice(msgspec.Struct, frozen=True):
    index: int
    token_ids: Annotated[Tokens, Meta(min_length=1)]
    logprobs: dict[Literal["content"], list[_LogProb]]
    weight_versions: Annotated[list[_Span], Meta(min_length=1)]


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


def parse_answer(body: bytes, params: Sampling, vocabulary: int, versions: Collection[int]) -> list[Drawn]:
    """The attempts in an answer to sampling parameters; `versions` may have drawn them. Raises EndpointError."""
    fault = "sent an answer that breaks its schema"
    with translated(EndpointError, fault, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        choices = sorted(msgspec.json.decode(body, type=_Answer).choices, key=lambda choice: choice.index)
    if [choice.index for choice in choices] != list(range(params.n)):
        raise EndpointError(f"sent {len(choices)} attempts, and {params.n} were asked for")
    return [_drawn(choice, params, vocabulary, versions) for choice in choices]


def _drawn(choice: _Choice, params: Sampling, vocabulary: int, versions: Collection[int]) -> Drawn:
    most, stops = params.max_tokens, params.stop_token_ids
    ids, logprobs = choice.token_ids, [token.logprob for token in choice.logprobs.get("content", [])]
    if max(ids) >= vocabulary or len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise EndpointError("sent tokens that the model has not, or no log-probability for each")
    if len(ids) > most or any(token in stops for token in ids[:-1]) or (len(ids) < most and ids[-1] not in stops):
        raise EndpointError("sent an attempt that ends too early or too late")
    spans, numbers = choice.weight_versions, {int(span.version) for span in choice.weight_versions}
    whole = spans[0].start == 0 and spans[-1].end == len(ids) and all(a.end == b.start for a, b in pairwise(spans))
    if not whole or not numbers <= set(versions):
        raise EndpointError(f"names versions {sorted(numbers)}, and not all its tokens can be of them")
    return Drawn(ids, logprobs, min(numbers))
