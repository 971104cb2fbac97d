"""What a rollout server is asked, in vLLM's form, and what of its answer is believed."""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from codezero.errors import EndpointError
from codezero.models.generation import Drawn


def requests(
    prompts: int, repeats: int, max_new_tokens: int, temperature: float, seed: int, stop_ids: Sequence[int]
) -> list[dict[str, Any]]:
    """One request for each prompt, as arguments of `vllm.SamplingParams`.

    vLLM gives the draws of one prompt the seeds s, s + 1, ...; so s is far from those of other prompts.
    """
    same = {
        "n": repeats,
        "max_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "logprobs": 0,  # of the chosen token, and no others
        "ignore_eos": True,  # what the engine takes for EOS; ours are listed
        "stop_token_ids": list(stop_ids),
        "detokenize": False,
    }
    seeds = [hashlib.sha256(f"{seed} {at}".encode()).digest()[:6] for at in range(prompts)]
    return [same | {"seed": int.from_bytes(digest)} for digest in seeds]


class _LogProb(msgspec.Struct, frozen=True):
    logprob: Annotated[float, Meta(le=0)]


class _Span(msgspec.Struct, frozen=True):
    version: Annotated[str, Meta(pattern=r"\A[0-9]{1,16}\Z")]
    start: int
    end: int


class _Choice(msgspec.Struct, frozen=True):
    index: int
    token_ids: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]
    logprobs: dict[Literal["content"], list[_LogProb]]
    weight_versions: Annotated[list[_Span], Meta(min_length=1)]


class _Answer(msgspec.Struct, frozen=True):
    choices: list[_Choice]


def parse_answer(body: bytes, params: Mapping[str, Any], vocabulary: int, versions: Collection[int]) -> list[Drawn]:
    """The attempts in an answer to sampling parameters; `versions` may have drawn them. Raises EndpointError."""
    try:
        choices = sorted(msgspec.json.decode(body, type=_Answer).choices, key=lambda choice: choice.index)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EndpointError(f"sent an answer that breaks its schema ({error})") from error
    if [choice.index for choice in choices] != list(range(params["n"])):
        raise EndpointError(f"sent {len(choices)} attempts, and {params['n']} were asked for")
    return [_drawn(choice, params["max_tokens"], params["stop_token_ids"], vocabulary, versions) for choice in choices]


def _drawn(choice: _Choice, most: int, stops: Sequence[int], vocabulary: int, versions: Collection[int]) -> Drawn:
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
