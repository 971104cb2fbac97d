"""A frozen judge behind an HTTP endpoint: vLLM and other OpenAI-compatible servers, or Ollama.

It may be down, slow or mad. No read takes longer than its deadline, what was not answered is unavailable and never
wrong, and a server that answers nothing is left alone for a while, so that it costs training almost nothing. The
scores mean what those of the judge in this process mean (`judge.py`). Not for several threads at once.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import ClassVar, Self

from codezero.errors import EndpointError, EvaluatorError
from codezero.evaluator.endpoint_questions import GAPS, PROBE, TESTS, Answers, Ask, Plan, make_plan, probe, written
from codezero.evaluator.endpoint_wire import (
    Answer,
    NotRepeated,
    echo_gaps,
    ollama_chat,
    ollama_margin,
    openai_chat,
    openai_echo,
    openai_margin,
)
from codezero.evaluator.judge_prompts import YES_MARGIN
from codezero.evaluator.types import Program, Reading
from codezero.models.remote import Breaker, Down, Endpoint, Nonsense, Part, Refused, Unusable, is_answer

logger = logging.getLogger(__name__)

JUDGE = Part("judge", "evaluator", "CODEZERO_JUDGE_KEY")
CACHED_ANSWERS = 131_072
"""To single questions. Model and wording are part of the key, so that no answer outlives a change of either."""
PATIENCE = 1.0
"""Seconds for which a read waits to see whether a server that was down has come back."""
NO_OPINION = "the judge has no opinion of this program"


class EndpointJudge(ABC):
    """What both kinds share. `close` ends its thread and connections."""

    gives: ClassVar[tuple[str, ...]]
    """Scores that this kind of server can give."""

    def __init__(
        self, url: str, model: str, *, seconds: float = 20.0, requests: int = 8, scores: Sequence[str] | None = None
    ) -> None:
        """`seconds`: deadline of a whole read. `requests`: most under way at once. `scores`: those asked for (all).

        Raises ConfigError when `url` or the key in CODEZERO_JUDGE_KEY cannot be used. Asks nothing yet.
        """
        self._model = model
        self._seconds = seconds
        self._names = tuple(name for name in self.gives if scores is None or name in scores)
        self._endpoint = Endpoint[Answer](JUDGE, url, requests)
        self._breaker = Breaker()
        self._trial: Future[Answers] | None = None
        self._why_down: EndpointError = Unusable("")
        self._repeats: bool | None = None
        self._cache: OrderedDict[bytes, Answer] = OrderedDict()

    @property
    def names(self) -> tuple[str, ...]:
        return self._names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self._trial = None
        self._endpoint.close()

    def check(self) -> None:
        """One question. Raises EvaluatorError: one line that says why this judge cannot be used."""
        ask = probe(self._chat)
        answer = self._endpoint.ask([ask], self._seconds).get(ask, self._too_late())
        if isinstance(answer, EndpointError):
            raise self._error(answer) from answer
        if answer is None:
            logger.warning("the judge at %s does not begin its answer with Yes or No", self._endpoint.url)

    def read(self, programs: Sequence[Program], wanted: frozenset[str]) -> list[Reading]:
        """Same program, same reading; within the deadline. Raises EvaluatorError when nothing at all was answered."""
        wanted &= {*self._names}
        plans = {program: self._plan(program, wanted) for program in programs}
        asks = dict.fromkeys(ask for plan in plans.values() for ask in plan.asks)
        if self._repeats is None and any(plan.gaps for plan in plans.values()):
            asks = dict.fromkeys((*self._trial_of_gaps(), *asks))
        answers: Answers = {ask: self._cache[ask.key] for ask in asks if ask.key in self._cache}
        silence = self._ask([ask for ask in asks if ask not in answers], answers)
        self._remember(answers)
        if self._repeats is None:
            self._learn_gaps(answers)
        readings = {program: self._reading(plan, wanted, answers, silence) for program, plan in plans.items()}
        if silence is not None and not any(reading.scores for reading in readings.values()):
            raise self._error(silence) from silence
        return [readings[program] for program in programs]

    def forget(self) -> None:  # noqa: B027 - the whole of it, not a gap to fill
        """Nothing: a server is asked one question at a time, and what it has answered need not be paid for again."""

    @abstractmethod
    def _chat(self, turns: Sequence[str]) -> Ask:
        """The server's first token after `turns`, as a margin."""

    def _echo(self, program: Program) -> Ask | None:
        """The likelihood of the program's own tokens; None where the server cannot tell."""
        return None

    def _plan(self, program: Program, wanted: frozenset[str]) -> Plan:
        gaps = None if self._repeats is False else self._echo(program)
        return make_plan(program, wanted, self._chat, gaps)

    # -------------------------------------------------------------- asking

    def _ask(self, asks: Sequence[Ask], answers: Answers) -> EndpointError | None:
        """Adds to `answers`. Returns what is wrong with the server as a whole; None when nothing is."""
        if not asks:
            return None
        until = time.monotonic() + self._seconds
        if not self._breaker.closed and (why := self._still_down()):
            return why
        fresh = self._endpoint.ask(asks, until - time.monotonic())
        answers |= fresh
        failures = [answer for answer in fresh.values() if isinstance(answer, EndpointError)]
        lives = len(failures) < len(fresh) or any(isinstance(failure, Refused) for failure in failures)
        self._why_down = failures[0] if failures else self._too_late()
        self._breaker.record(lives)
        replied = lives or any(isinstance(failure, Nonsense) for failure in failures)
        return None if replied else self._why_down

    def _still_down(self) -> EndpointError | None:
        """None when the server answers one question again. One that takes long over it is found by a later read."""
        if self._trial is None:
            if self._breaker.left:
                return Unusable(f"{self._why_down}; next try in {self._breaker.left:.0f} s")
            self._trial = self._endpoint.submit([probe(self._chat)], self._seconds)
        wait([self._trial], min(PATIENCE, self._seconds / 2))
        if not self._trial.done():
            return Unusable(f"{self._why_down}; being tried again")
        answers, self._trial = self._trial.result(), None
        self._breaker.record(any(map(is_answer, answers.values())))
        if self._breaker.closed:
            logger.info("the judge at %s answers again", self._endpoint.url)
            return None
        self._why_down = next((a for a in answers.values() if isinstance(a, EndpointError)), self._too_late())
        return self._why_down

    def _trial_of_gaps(self) -> Sequence[Ask]:
        echo = self._echo(PROBE)
        return () if echo is None else (probe(self._chat), echo)

    def _learn_gaps(self, answers: Answers) -> None:
        """Whether the server repeats what it is sent; believed only of one that answers otherwise."""
        answer = next((answers[ask] for ask in self._trial_of_gaps()[1:] if ask in answers), None)
        if isinstance(answer, tuple):
            self._repeats = True
            return
        final = isinstance(answer, NotRepeated | Refused | Unusable) and not isinstance(answer, Down)
        if final and any(map(is_answer, answers.values())):
            self._repeats = False
            logger.warning("the judge at %s gives no likelihood of a program: it %s", self._endpoint.url, answer)

    # -------------------------------------------------------------- answers

    def _remember(self, answers: Answers) -> None:
        for ask, answer in answers.items():
            if not isinstance(answer, EndpointError):
                self._cache[ask.key] = answer
                self._cache.move_to_end(ask.key)
        while len(self._cache) > CACHED_ANSWERS:
            self._cache.popitem(last=False)

    def _reading(self, plan: Plan, wanted: frozenset[str], answers: Answers, silence: EndpointError | None) -> Reading:
        def answer(ask: Ask) -> Answer:
            found = answers.get(ask, silence or self._late)
            if isinstance(found, EndpointError):
                raise found
            return found

        try:
            scores = (replace(plan, gaps=None) if self._repeats is False else plan).scores(answer)
        except EndpointError as error:
            return Reading(None, f"the judge {error}")
        values = tuple(scores.get(name) if name in wanted else None for name in self._names)
        silent = wanted and all(value is None for value in values)
        return Reading(None, NO_OPINION) if silent else Reading(values)

    @property
    def _late(self) -> EndpointError:
        return EndpointError(f"did not answer in {self._seconds:g} s")

    def _too_late(self) -> EndpointError:
        return EndpointError(f"{self._late}; start it, or raise evaluator.seconds")

    def _error(self, why: EndpointError) -> EvaluatorError:
        return EvaluatorError(f"the judge at {self._endpoint.url} {why}")


class OpenAIJudge(EndpointJudge):
    """vLLM, or another server of `/v1/chat/completions` with log-probs. Likelihood needs `/v1/completions` with `echo`;
    without it those two scores are missing, which is said once."""

    gives = (*GAPS, YES_MARGIN, *TESTS)

    def _chat(self, turns: Sequence[str]) -> Ask:
        return Ask("/v1/chat/completions", openai_chat(self._model, turns), openai_margin)

    def _echo(self, program: Program) -> Ask:
        question, answer = written(program)
        body = openai_echo(self._model, question + answer)
        return Ask("/v1/completions", body, partial(echo_gaps, written=answer), optional=True)


class OllamaJudge(EndpointJudge):
    """Ollama by its own `/api/chat`, from `OLLAMA_LOGPROBS` on. It gives no likelihood of a text it is sent."""

    gives = (YES_MARGIN, *TESTS)

    def _chat(self, turns: Sequence[str]) -> Ask:
        return Ask("/api/chat", ollama_chat(self._model, turns), ollama_margin)
