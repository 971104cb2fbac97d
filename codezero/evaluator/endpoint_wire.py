"""The responses of a judge's server as scores. Pure functions.

Responses are hostile: parsing any bytes gives finite numbers within bounds, an abstention, or `InvalidResponse`.
Formats: chat and completions of OpenAI as vLLM serves them, `/api/chat` of Ollama.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import msgspec

from codezero.evaluator.judge_prompts import FLOOR, LEAST_MASS
from codezero.models.openai_client import InvalidResponse, decode

WIDEST = 30.0
"""Nats; the largest margin, so that no server can outweigh all other scores."""
ROUNDING = 1e-3
"""Largest log-probability that counts as zero: arithmetic may leave it above."""
OLLAMA_LOGPROBS = "0.12.11"
"""Ollama's first version that gives log-probs."""
YES, NO = (
    frozenset(" " * space + form for space in (0, 1) for form in (word, word.lower(), word.upper()))
    for word in ("Yes", "No")
)
_MARKER = re.compile(r"<(\|[^|\s]{1,40}\|>|/?s>|(?:start|end)_of_turn>|/?think>)|\[(/?INST\])", re.IGNORECASE)

Answer = float | None | tuple[float, float]
"""A margin, an abstention, or (least, mean) gap."""


class NoEcho(InvalidResponse):
    """The response is valid, but not about the text that was sent."""


class _Token(msgspec.Struct):
    token: str
    logprob: float


class _Position(msgspec.Struct):
    top_logprobs: list[_Token] | None = None


class _Logprobs(msgspec.Struct):
    """`content` in a chat, the others in a completion."""

    content: list[_Position] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    logprobs: _Logprobs | None = None


class _Version(msgspec.Struct):
    version: Annotated[str, msgspec.Meta(pattern=r"^[\w.+-]{1,40}\Z")]


class _Response(msgspec.Struct):
    """`choices` from OpenAI's paths, `logprobs` from Ollama's."""

    choices: list[_Choice] = []
    logprobs: list[_Position] | None = None


def plain(text: str) -> str:
    """`text` as valid UTF-8 in which no common chat marker is spelt, so that it cannot end its turn.

    The server's own tokenizer is not known here; other markers stay what they are.
    """
    return _MARKER.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text.encode("utf-8", "replace").decode())


def server_version(body: bytes) -> str:
    """As vLLM and Ollama tell it. Raises InvalidResponse."""
    return decode(body, _Version).version


def chat_margin(body: bytes) -> float | None:
    """log p(Yes) - log p(No) of the first token; None where the model says neither. Raises InvalidResponse."""
    logprobs = _first(body)
    return _margin(logprobs and logprobs.content)


def ollama_margin(body: bytes) -> float | None:
    return _margin(decode(body, _Response).logprobs)


def echo_gaps(body: bytes, code: str) -> tuple[float, float]:
    """(least, mean) nats of each token of `code` below the likeliest one, where `code` ends the text sent.

    Places are counted from the tokens' own spelling: servers differ in whether `text_offset` counts a token that
    begins the text. Raises InvalidResponse, also for a server that does not echo what it was sent.
    """
    echo = _first(body)
    tokens, logprobs, tops = (echo.tokens, echo.token_logprobs, echo.top_logprobs) if echo else (None, None, None)
    if tokens is None or logprobs is None or tops is None or not len(tokens) == len(logprobs) == len(tops):
        raise InvalidResponse("no log-probabilities for each token")
    start = "".join(tokens).rfind(code)
    if start < 0:
        raise NoEcho("its tokens do not spell what it was sent")
    gaps: list[float] = []
    at = 0
    for token, logprob, top in zip(tokens, logprobs, tops, strict=True):
        at += len(token)
        if start < at and at - len(token) < start + len(code):
            gaps.append(_gap(logprob, top))
    return min(gaps), sum(gaps) / len(gaps)


def _first(body: bytes) -> _Logprobs | None:
    choices = decode(body, _Response).choices
    return choices[0].logprobs if choices else None


def _margin(positions: Sequence[_Position] | None) -> float | None:
    top = positions[0].top_logprobs if positions else None
    if not top:
        raise InvalidResponse(f"no log-probabilities; vLLM gives them, and Ollama from {OLLAMA_LOGPROBS} on")
    listed = [(entry.token, _logprob(entry.logprob)) for entry in top]
    total = _probability(logprob for _, logprob in listed)
    if total > 1 + ROUNDING * len(listed):
        raise InvalidResponse("probabilities that add up to more than 1")
    yes = _probability(logprob for token, logprob in listed if token in YES)
    no = _probability(logprob for token, logprob in listed if token in NO)
    if yes + no < LEAST_MASS:
        return None
    # a word that is not listed is at most as likely as the last that is, and as all that are not listed together
    unlisted = max(min(math.exp(min(logprob for _, logprob in listed)), 1 - total), math.exp(-WIDEST))
    return max(-WIDEST, min(WIDEST, math.log(yes or unlisted) - math.log(no or unlisted)))


def _probability(logprobs: Iterable[float]) -> float:
    return math.fsum(math.exp(logprob) for logprob in logprobs)


def _logprob(value: float) -> float:
    if not math.isfinite(value) or value > ROUNDING:
        raise InvalidResponse("a log-probability that is none")
    return min(0.0, value)


def _gap(logprob: float | None, top: Mapping[str, float] | None) -> float:
    if logprob is None or not top:
        raise InvalidResponse("no log-probabilities for each token")
    own = _logprob(logprob)
    return max(FLOOR, own - max(own, *map(_logprob, top.values())))
