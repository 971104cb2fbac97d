"""A frozen judge behind an HTTP endpoint: vLLM and other OpenAI-compatible servers, or Ollama.

The server may be down, slow or hostile: no read takes longer than its deadline, what was not answered is unavailable,
never wrong, and a server without answers is left alone for a while. Scores mean what they mean in `judge.py`.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import ClassVar

import msgspec

from codezero.code.parsing import fence
from codezero.config import EvaluatorConfig
from codezero.errors import EndpointError, EvaluatorError
from codezero.evaluator import judge_prompts as prompts
from codezero.evaluator.endpoint_wire import Answer, NoEcho, chat_margin, echo_gaps, ollama_margin, plain
from codezero.evaluator.types import Program, Reading
from codezero.models.openai_client import (
    Answers,
    EndpointClient,
    EndpointRequest,
    InvalidResponse,
    RejectedRequest,
    UnavailableEndpoint,
    UnusableEndpoint,
)

logger = logging.getLogger(__name__)

GAPS, TESTS = prompts.SCORES[prompts.LIKELIHOOD], prompts.SCORES[prompts.PER_TEST]
CACHED_ANSWERS = 131_072
"""Answers to single requests, which hold the model and the wording."""
TRIAL_SECONDS = 2.0
"""Deadline of the one request that tries a server which was down."""
PROBE = Program("Write a function f(x) that returns x.", "def f(x):\n    return x")
"""The program in requests that only test the server."""

Request = EndpointRequest[Answer]


class OpenAIJudge(AbstractContextManager["OpenAIJudge"]):
    """vLLM, or another server of `/v1/chat/completions` with log-probs. Likelihood needs `/v1/completions` with `echo`;
    without it those two scores are missing, which is logged once. `close` ends its thread and connections."""

    gives: ClassVar[tuple[str, ...]] = (*GAPS, prompts.YES_MARGIN, *TESTS)
    """Scores that this kind of server can give."""

    def __init__(self, settings: EvaluatorConfig) -> None:
        """Raises ConfigError when the address or the key in CODEZERO_JUDGE_KEY cannot be used. Sends nothing yet."""
        self._model, self._seconds = settings.model, settings.seconds
        scores = {name for question in settings.questions for name in prompts.SCORES[question]}
        self.names = tuple(name for name in self.gives if name in scores)
        self._client = EndpointClient[Answer](
            "judge", "evaluator", settings.url, requests=settings.requests, seconds=settings.seconds
        )
        self._echoes = True
        """Does the server echo what it is sent? `check` sets it."""
        self._cache: dict[bytes, Answer] = {}

    @property
    def url(self) -> str:
        """Without the /v1 that its end may have."""
        return self._client.url

    @property
    def reads_likelihood(self) -> bool:
        """Does the server give the log-probabilities of a prompt? Known after `check`."""
        return self._echoes and bool({*GAPS} & {*self.names})

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check(self) -> None:
        """Send a request of each kind. Raises EvaluatorError: one line that says why this judge cannot be used."""
        probe = self._yes_no(PROBE.question, PROBE.code, prompts.ABOUT_ALL)[0]
        echo = self._echo(PROBE) if {*GAPS} & {*self.names} else None
        answers = self._client.ask([probe] if echo is None else [probe, echo])
        if isinstance(answer := answers[probe], EndpointError):
            raise self._error(answer) from answer
        if answer is None:
            logger.warning("the judge at %s does not begin its answer with Yes or No", self._client.url)
        failure = None if echo is None else answers[echo]
        passing = isinstance(failure, UnavailableEndpoint)
        if isinstance(failure, NoEcho | RejectedRequest | UnusableEndpoint) and not passing:
            self._echoes = False
            logger.warning("the judge at %s gives no likelihood of a program: it %s", self._client.url, failure)

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
        self._cache |= {
            keys[request]: value for request, value in fresh.items() if not isinstance(value, EndpointError)
        }
        for key in list(self._cache)[:-CACHED_ANSWERS]:
            del self._cache[key]
        readings = {program: self._reading(program, wanted, answers | fresh) for program in programs}
        down = fresh and self._client.failure is not None
        failure = next((value for value in fresh.values() if isinstance(value, EndpointError)), None) if down else None
        if failure and not isinstance(failure, InvalidResponse) and not any(r.scores for r in readings.values()):
            raise self._error(failure) from failure
        return [readings[program] for program in programs]

    def forget(self) -> None:
        """Does nothing: a server reads one program at a time, and its answers need not be paid for again."""

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
        if wanted & {*GAPS} and self._echoes:
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
                logger.info("the judge at %s answers again", self._client.url)
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
        return EvaluatorError(f"the judge at {self._client.url} {reason}")


class OllamaJudge(OpenAIJudge):
    """Ollama by its own `/api/chat`, from `OLLAMA_LOGPROBS` on: its `/v1` silently cuts a long conversation from the
    front, and a judge must not read half of it. It gives no likelihood of a text."""

    gives: ClassVar[tuple[str, ...]] = (prompts.YES_MARGIN, *TESTS)

    def _chat(self, turns: Sequence[str]) -> Request:
        settings = {"stream": False, "truncate": False, "logprobs": True, "top_logprobs": 20}
        options = {"num_predict": 1, "temperature": 0}
        body = {"model": self._model, "messages": _messages(turns), "options": options, **settings}
        return EndpointRequest("/api/chat", msgspec.json.encode(body), ollama_margin)


def endpoint_judge(settings: EvaluatorConfig) -> OpenAIJudge:
    """The judge of `evaluator.kind` openai or ollama. Raises ConfigError."""
    return {"openai": OpenAIJudge, "ollama": OllamaJudge}[settings.kind](settings)


def _messages(turns: Sequence[str]) -> list[dict[str, str]]:
    return [{"role": "assistant" if at % 2 else "user", "content": turn} for at, turn in enumerate(turns)]
