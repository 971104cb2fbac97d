"""What a judge behind an endpoint is sent, and what its bytes mean. Pure functions; nothing here knows the network.

Answers are hostile. Whatever the bytes, reading them gives finite numbers within bounds, an abstention, or `Nonsense`.
Wire forms: chat and completions of OpenAI as vLLM speaks them, `/api/chat` of Ollama. Unknown fields are ignored.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from codezero.models.remote import Nonsense

TOP = 20
"""Likeliest tokens asked for with an answer; the most that servers give."""
LEAST_MASS = 0.5
"""Probability of Yes and No together below which the model has not answered."""
WIDEST = 30.0
"""Nats; no margin counts for more, so that no server can outweigh all other scores."""
FLOOR = -15.0
"""Nats; a token that is less likely than this is simply not written by this model."""
ROUNDING = 1e-3
"""How far above zero arithmetic may leave a log-prob; it counts as zero."""
OLLAMA_LOGPROBS = "0.12.11"
"""Ollama's first version that gives log-probs."""
YES, NO = (
    frozenset(" " * space + form for space in (0, 1) for form in (word, word.lower(), word.upper()))
    for word in ("Yes", "No")
)

_MARKER = re.compile(r"<(\|[^|\s]{1,40}\|>|/?s>|(?:start|end)_of_turn>|/?think>)|\[(/?INST\])", re.IGNORECASE)

Answer = float | None | tuple[float, float]
"""A margin, an abstention, or (least, mean) gap."""

Schema = TypeVar("Schema", bound=msgspec.Struct)


class NotRepeated(Nonsense):
    """The server speaks well, but not of the text it was sent."""


class _Token(msgspec.Struct):
    token: str
    logprob: float


class _Position(msgspec.Struct):
    top_logprobs: list[_Token] | None = None


class _ChatLogprobs(msgspec.Struct):
    content: list[_Position] | None = None


class _ChatChoice(msgspec.Struct):
    logprobs: _ChatLogprobs | None = None


class _Chat(msgspec.Struct):
    choices: list[_ChatChoice]


class _OllamaChat(msgspec.Struct):
    done: bool
    logprobs: list[_Position] | None = None


class _TextLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class _TextChoice(msgspec.Struct):
    logprobs: _TextLogprobs | None = None


class _Text(msgspec.Struct):
    choices: list[_TextChoice]


# ------------------------------------------------------------------ what is sent


def plain(text: str) -> str:
    """`text` as valid UTF-8 in which no common chat marker is spelt, so that it cannot end its turn.

    The server's own tokenizer is not known here; other markers stay what they are.
    """
    return _MARKER.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text.encode("utf-8", "replace").decode())


def openai_chat(model: str, turns: Sequence[str]) -> bytes:
    """One token after `turns`, which alternate between user and assistant and begin and end with the user."""
    return msgspec.json.encode(
        {
            "model": model,
            "messages": _messages(turns),
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": TOP,
        }
    )


def ollama_chat(model: str, turns: Sequence[str]) -> bytes:
    """As `openai_chat`. A question that is too long is to be refused, not cut: a judge must not read half of it."""
    return msgspec.json.encode(
        {
            "model": model,
            "messages": _messages(turns),
            "stream": False,
            "truncate": False,
            "logprobs": True,
            "top_logprobs": TOP,
            "options": {"num_predict": 1, "temperature": 0},
        }
    )


def openai_echo(model: str, text: str) -> bytes:
    """The log-probs of `text` itself, beside the likeliest token at each place."""
    return msgspec.json.encode(
        {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
    )


def _messages(turns: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": "assistant" if at % 2 else "user", "content": turn} for at, turn in enumerate(turns)]


# ------------------------------------------------------------------ what comes back


def openai_margin(answer: bytes) -> float | None:
    """log p(Yes) - log p(No) of the one token; None where the model says neither. Raises Nonsense."""
    choices = _decode(answer, _Chat).choices
    positions = choices[0].logprobs and choices[0].logprobs.content if choices else None
    return _margin(positions)


def ollama_margin(answer: bytes) -> float | None:
    """As `openai_margin`."""
    return _margin(_decode(answer, _OllamaChat).logprobs)


def echo_gaps(answer: bytes, written: str) -> tuple[float, float]:
    """(least, mean) nats of each token of `written` below the likeliest one, where `written` ends the text sent.

    Places are counted from the tokens' own spelling: servers differ in whether `text_offset` counts a token that
    begins the text. Raises Nonsense, also for a server that does not repeat what it was sent.
    """
    choices = _decode(answer, _Text).choices
    said = choices[0].logprobs if choices else None
    if said is None or not len(said.tokens) == len(said.token_logprobs) == len(said.top_logprobs):
        raise Nonsense("no log-probabilities for each token")
    start = "".join(said.tokens).rfind(written)
    if start < 0:
        raise NotRepeated("its tokens do not spell what it was sent")
    gaps: list[float] = []
    at = 0
    for token, logprob, top in zip(said.tokens, said.token_logprobs, said.top_logprobs, strict=True):
        at += len(token)
        if start < at and at - len(token) < start + len(written):
            gaps.append(_gap(logprob, top))
    return min(gaps), sum(gaps) / len(gaps)


def _decode(answer: bytes, schema: type[Schema]) -> Schema:
    try:
        return msgspec.json.decode(answer, type=schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Nonsense("not the JSON that was asked for") from error


def _margin(positions: Sequence[_Position] | None) -> float | None:
    top = positions[0].top_logprobs if positions else None
    if not top:
        raise Nonsense(f"no log-probabilities; vLLM gives them, and Ollama from {OLLAMA_LOGPROBS} on")
    listed = [(entry.token, _logprob(entry.logprob)) for entry in top]
    total = _probability(logprob for _, logprob in listed)
    if total > 1 + ROUNDING * len(listed):
        raise Nonsense("probabilities that add up to more than 1")
    says_yes = _probability(logprob for token, logprob in listed if token in YES)
    says_no = _probability(logprob for token, logprob in listed if token in NO)
    if says_yes + says_no < LEAST_MASS:
        return None
    # a word that is not listed is at most as likely as the last that is, and as all that are not listed together
    unlisted = max(min(math.exp(min(logprob for _, logprob in listed)), 1 - total), math.exp(-WIDEST))
    margin = math.log(says_yes or unlisted) - math.log(says_no or unlisted)
    return max(-WIDEST, min(WIDEST, margin))


def _probability(logprobs: Iterable[float]) -> float:
    return math.fsum(math.exp(logprob) for logprob in logprobs)


def _logprob(value: float) -> float:
    if not math.isfinite(value) or value > ROUNDING:
        raise Nonsense("a log-probability that is none")
    return min(0.0, value)


def _gap(logprob: float | None, top: Mapping[str, float] | None) -> float:
    if logprob is None or not top:
        raise Nonsense("no log-probabilities for each token")
    own = _logprob(logprob)
    return max(FLOOR, own - max(own, *map(_logprob, top.values())))
