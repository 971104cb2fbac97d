"""A frozen judge behind an HTTP endpoint: vLLM and other OpenAI-compatible servers, or Ollama.

The server may be down, slow or hostile: no read takes longer than its deadline, what was not answered is unavailable,
never wrong, and a server without answers is left alone for a while. Any bytes are parsed to finite numbers within
bounds, an abstention, or `InvalidResponse`. Scores mean what they mean in `judge.py`. Formats: chat and completions of
OpenAI, `/api/chat` of Ollama."""

import hashlib
import logging
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, ClassVar

import msgspec

from codezero.code.parsing import fence
from codezero.config import EvaluatorConfig
from codezero.errors import EndpointError, EvaluatorError
from codezero.evaluator import judge_prompts as prompts
from codezero.evaluator.judge_prompts import FLOOR, LEAST_MASS
from codezero.evaluator.types import Program, Reading
from codezero.models import openai_client
from codezero.models.openai_client import Answers, ChatAnswer, EndpointClient, EndpointRequest, InvalidResponse, decode

logger = logging.getLogger(__name__)

WIDEST = 30.0  # nats; the largest margin, so that no server can outweigh all other scores
ROUNDING = 1e-3  # largest log-probability that counts as zero: arithmetic may leave it above
OLLAMA_LOGPROBS = "0.12.11"  # Ollama's first version that gives log-probs
YES, NO = (
    frozenset(" " * space + form for space in (0, 1) for form in (word, word.lower(), word.upper()))
    for word in ("Yes", "No")
)
VERDICTS = 4  # for each program
MOST_TOKENS = 4096  # of one verdict, its thoughts included
END = 400  # last characters of an answer, where its verdict is looked for
VERDICT = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
ASK = (
    "{question}\n\nThis is an answer:\n{code}\n\nIs it correct for every input that the task allows? Think it through, "
    "then end with a last line that is `Verdict: Yes` or `Verdict: No`."
)
_MARKER = re.compile(r"<(\|[^|\s]{1,40}\|>|/?s>|(?:start|end)_of_turn>|/?think>)|\[(/?INST\])", re.IGNORECASE)

Answer = float | None | tuple[float, float]  # a margin, an abstention, or (least, mean) gap


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
    """`text` as valid UTF-8 in which no common chat marker is spelt, so that it cannot end its turn. The server's own
    tokenizer is not known here; other markers stay what they are."""
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
    """(least, mean) nats of each token of `code` below the likeliest one, where `code` ends the text sent. Places are
    counted from the tokens' own spelling: servers differ in whether `text_offset` counts a token that begins the text.
    Raises InvalidResponse, also for a server that does not echo what it was sent."""
    echo = _first(body)
    tokens, logprobs, tops = (echo.tokens, echo.token_logprobs, echo.top_logprobs) if echo else (None, None, None)
    if tokens is None or logprobs is None or tops is None or not len(tokens) == len(logprobs) == len(tops):
        raise InvalidResponse("no log-probabilities for each token")
    start = "".join(tokens).rfind(code)
    if start < 0:
        raise InvalidResponse("its tokens do not spell what it was sent")
    gaps: list[float] = []
    at = 0
    for token, logprob, top in zip(tokens, logprobs, tops, strict=True):
        at += len(token)
        if start < at and at - len(token) < start + len(code):
            gaps.append(_gap(logprob, top))
    return min(gaps), sum(gaps) / len(gaps)


def verdict_of(body: bytes) -> float | None:
    """1 for a Yes, 0 for a No, by the last such word; None where an answer ends without. Raises InvalidResponse."""
    words = VERDICT.findall((decode(body, ChatAnswer).choices[0].message.content or "")[-END:])
    return float(words[-1].lower() == "yes") if words else None


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


GAPS, TESTS = prompts.SCORES[prompts.LIKELIHOOD], prompts.SCORES[prompts.PER_TEST]
CACHED_ANSWERS = 131_072  # answers to single requests, which hold the model and the wording
TRIAL_SECONDS = 2.0  # deadline of the one request that tries a server which was down
PROBE = Program("Write a function f(x) that returns x.", "def f(x):\n    return x")  # only tests the server

Request = EndpointRequest[Answer]


class OpenAIJudge(AbstractContextManager["OpenAIJudge"]):
    """vLLM, or another server of `/v1/chat/completions` with log-probs. Likelihood needs `/v1/completions` with `echo`;
    without it those two scores are missing, which is logged once. `close` ends its thread and connections."""

    gives: ClassVar[tuple[str, ...]] = (*GAPS, prompts.YES_MARGIN, *TESTS)  # scores that this kind of server can give

    def __init__(self, settings: EvaluatorConfig) -> None:
        """Raises ConfigError when the address or the key in CODEZERO_JUDGE_KEY cannot be used. Sends nothing yet."""
        self._model, self._seconds = settings.model, settings.seconds
        scores = {name for question in settings.questions for name in prompts.SCORES[question]}
        self.names = tuple(name for name in self.gives if name in scores)
        self._client = EndpointClient[Answer](
            "judge", "evaluator", settings.url, requests=settings.requests, seconds=settings.seconds
        )
        self.url = self._client.url  # without the /v1 that its end may have
        self.reads_likelihood = not {*GAPS}.isdisjoint(self.names)  # and the server gives it: `check` finds out
        self._cache: dict[bytes, Answer] = {}

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check(self) -> None:
        """Send a request of each kind. Raises EvaluatorError: one line that says why this judge cannot be used."""
        probe = self._yes_no(PROBE.question, PROBE.code, prompts.ABOUT_ALL)[0]
        echo = self._echo(PROBE) if self.reads_likelihood else None
        answers = self._client.ask([probe] if echo is None else [probe, echo])
        if isinstance(answer := answers[probe], EndpointError):
            raise self._error(answer) from answer
        if answer is None:
            logger.warning("the judge at %s does not begin its answer with Yes or No", self.url)
        failure = None if echo is None else answers[echo]
        if isinstance(failure, EndpointError) and not isinstance(failure, openai_client.UnavailableEndpoint):
            # llama.cpp, for one, takes the request and echoes nothing
            self.reads_likelihood = False
            logger.warning("the judge at %s gives no likelihood of a program: it %s", self.url, failure)

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """Same program, same reading; within the deadline. Raises EvaluatorError when nothing at all was answered."""
        wanted &= {*self.names}
        requests: dict[Request, None] = {}
        for program in programs:  # with every answer unknown, the scores ask for all that they need
            self._scores(program, wanted, requests.setdefault)
        keys = {request: hashlib.sha256(f"{request.path}\0".encode() + request.body).digest() for request in requests}
        missing = [request for request, key in keys.items() if key not in self._cache]
        answers = {request: self._cache[key] for request, key in keys.items() if key in self._cache}
        fresh = self._ask(missing) if missing else {}
        self._cache |= {keys[it]: value for it, value in fresh.items() if not isinstance(value, EndpointError)}
        for key in list(self._cache)[:-CACHED_ANSWERS]:
            del self._cache[key]
        readings = {program: self._reading(program, wanted, answers | fresh) for program in programs}
        down = fresh and self._client.failure is not None
        failure = next((value for value in fresh.values() if isinstance(value, EndpointError)), None) if down else None
        if failure and not isinstance(failure, InvalidResponse) and not any(r.scores for r in readings.values()):
            raise self._error(failure) from failure
        return [readings[program] for program in programs]

    def forget(self) -> None:
        """Keep all: a server reads one program at a time, and its answers need not be paid for again."""

    def _chat(self, turns: Sequence[str]) -> Request:
        """The margin of the one token after `turns`, by user and assistant in turn, the user first and last."""
        settings = {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 20}
        body = {"model": self._model, "messages": _messages(turns), **settings}
        return EndpointRequest("/v1/chat/completions", msgspec.json.encode(body), chat_margin)

    def _echo(self, program: Program) -> Request:
        """The likelihood of the program's own tokens behind the question and the opening fence."""
        opening, _, code = fence(plain(program.code)).partition("\n")
        settings = {"max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}
        prompt = f"{plain(program.question)}\n\n{opening}\n{code}"
        body = msgspec.json.encode({"model": self._model, "prompt": prompt, **settings})
        return EndpointRequest("/v1/completions", body, partial(echo_gaps, code=code), optional=True)

    def _yes_no(self, question: str, code: str, about: str) -> list[Request]:
        """One question in both orders."""
        texts = [plain(prompts.yes_or_no(about, order)) for order in prompts.ORDERS]
        return [self._chat([plain(question), fence(plain(code)), text]) for text in texts]

    def _scores(
        self, program: Program, wanted: frozenset[str], answer: Callable[[Request], Answer]
    ) -> dict[str, float | None]:
        """By name. `answer` may raise EndpointError, and so does this."""

        def mean(codes: Sequence[str], about: str) -> float | None:
            requests = [request for code in codes for request in self._yes_no(program.question, code, about)]
            return prompts.mean_of_all([value if isinstance(value, float) else None for value in map(answer, requests)])

        def margin(about: str) -> float | None:
            """The mean over both orders, less the bias: that of programs without content."""
            value, bias = mean([program.code], about), mean(prompts.CONTENT_FREE, about)
            return None if value is None or bias is None else value - bias

        scores: dict[str, float | None] = {}
        if prompts.YES_MARGIN in wanted:
            scores[prompts.YES_MARGIN] = margin(prompts.ABOUT_ALL)
        if wanted & {*GAPS} and self.reads_likelihood:
            gaps = answer(self._echo(program))
            scores |= zip(GAPS, gaps, strict=True) if isinstance(gaps, tuple) else {}
        if wanted & {*TESTS}:
            margins = [margin(prompts.about_test(example, program.stdio)) for example in prompts.asked_about(program)]
            scores |= zip(TESTS, prompts.per_test_scores(margins), strict=True)
        return scores

    def _ask(self, requests: Collection[Request]) -> Answers[Answer]:
        until = time.monotonic() + self._seconds
        if self._client.failure is not None and not self._client.pause:
            trial = self._yes_no(PROBE.question, PROBE.code, prompts.ABOUT_ALL)[:1]
            self._client.ask(trial, min(TRIAL_SECONDS, self._seconds / 2))
            if not self._client.pause:
                logger.info("the judge at %s answers again", self.url)
        return self._client.ask(requests, until - time.monotonic())

    def _reading(self, program: Program, wanted: frozenset[str], answers: Answers[Answer]) -> Reading:
        def answer(request: Request) -> Answer:
            value = answers[request]
            if isinstance(value, EndpointError):
                raise value
            return value

        try:
            scores = self._scores(program, wanted, answer)
        except EndpointError as error:
            return Reading(None, f"the judge {error}")
        values = tuple(scores.get(name) if name in wanted else None for name in self.names)
        silent = wanted and all(value is None for value in values)
        return Reading(None, "the judge has no opinion of this program") if silent else Reading(values)

    def _error(self, reason: EndpointError) -> EvaluatorError:
        return EvaluatorError(f"the judge at {self.url} {reason}")


class OllamaJudge(OpenAIJudge):
    """Ollama by its own `/api/chat`, from `OLLAMA_LOGPROBS` on: its `/v1` silently cuts a long conversation from the
    front, and a judge must not read half of it. It gives no likelihood of a text."""

    gives: ClassVar[tuple[str, ...]] = (prompts.YES_MARGIN, *TESTS)

    def _chat(self, turns: Sequence[str]) -> Request:
        settings = {"stream": False, "truncate": False, "logprobs": True, "top_logprobs": 20}
        options = {"num_predict": 1, "temperature": 0}
        body = {"model": self._model, "messages": _messages(turns), "options": options, **settings}
        return EndpointRequest("/api/chat", msgspec.json.encode(body), ollama_margin)


class ChatJudge(OpenAIJudge):
    """A hosted or thinking model without log-probabilities, which is asked for its verdict VERDICTS times: the share of
    Yes is its score. After `evaluator.calls` requests of this process none is sent any more."""

    gives: ClassVar[tuple[str, ...]] = (prompts.YES_MARGIN,)

    def __init__(self, settings: EvaluatorConfig) -> None:
        super().__init__(settings)
        self._left = settings.calls or math.inf
        self._spent = EndpointError(f"was asked evaluator.calls={settings.calls} times; raise that")

    def _yes_no(self, question: str, code: str, about: str) -> list[Request]:
        text = ASK.format(question=plain(question), code=fence(plain(code)))
        body = {"model": self._model, "messages": [{"role": "user", "content": text}], "max_tokens": MOST_TOKENS}
        bodies = (msgspec.json.encode({**body, "temperature": 1, "seed": seed}) for seed in range(VERDICTS))
        return [EndpointRequest("/v1/chat/completions", each, verdict_of) for each in bodies]

    def _scores(
        self, program: Program, wanted: frozenset[str], answer: Callable[[Request], Answer]
    ) -> dict[str, float | None]:
        """The log-odds of Yes, by Laplace's rule; unavailable where half of the verdicts, or more, failed."""
        if prompts.YES_MARGIN not in wanted:
            return {}
        votes, failures = list[float](), list[EndpointError]()
        for request in self._yes_no(program.question, program.code, prompts.ABOUT_ALL):
            try:
                value = answer(request)
            except EndpointError as error:
                failures.append(error)
            else:
                votes += [value] if isinstance(value, float) else []
        if 2 * len(failures) >= VERDICTS:
            raise failures[-1]
        yes = sum(votes)
        return {prompts.YES_MARGIN: math.log((yes + 1) / (len(votes) - yes + 1)) if votes else None}

    def _ask(self, requests: Collection[Request]) -> Answers[Answer]:
        some = list(requests)[: int(min(self._left, len(requests)))]
        self._left -= 0 if self._client.pause else len(some)  # while it rests nothing is sent
        answers = super()._ask(some) if some else {}
        return {request: answers.get(request, self._spent) for request in requests}


ENDPOINT_JUDGES = {"openai": OpenAIJudge, "ollama": OllamaJudge, "chat": ChatJudge}  # by `evaluator.kind`


def _messages(turns: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": "assistant" if at % 2 else "user", "content": turn} for at, turn in enumerate(turns)]
