"""Many small HTTP questions to one server at once, within one deadline that nothing can stretch.

The caller waits in its own thread; the requests run on an event loop in a private one, so that whatever hangs, a
name look-up included, can be left behind. The transport of httpx2 is used without its client: no redirects, cookies,
proxies, decompression or log lines.
"""

import asyncio
import hashlib
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field
from threading import Thread

import httpx2

from codezero.errors import ConfigError, EvaluatorError
from codezero.evaluator.endpoint_wire import Nonsense

logger = logging.getLogger(__name__)

KEY_VARIABLE = "CODEZERO_JUDGE_KEY"
MAX_ANSWER = 1 << 20
"""Bytes of one answer; an honest one has some kilobytes."""
RETRIES = 2
BACK_OFF = 0.25
"""Seconds before the first retry, doubled for the next; each is shortened at random by up to half."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0
"""Seconds for which a server that gave no answer is left alone."""

_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "::1"})
_ABOUT_THE_QUESTION = frozenset({400, 413, 422})
_PASSING = frozenset({429, *range(500, 600)} - {501})
"""Answers that may be others a moment later."""

Answer = float | None | tuple[float, float]
"""A margin, an abstention, or (least, mean) gap."""


class Refused(EvaluatorError):
    """The server will not answer this question; another it may."""


class Unusable(EvaluatorError):
    """The server answers nothing, or wants to be asked otherwise. Like all of these it reads on after "the judge"."""


class Down(Unusable):
    """It cannot be reached, fails, or has too much to do; later it may answer."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question. Equal ones have the same answer."""

    path: str
    body: bytes
    read: Callable[[bytes], Answer] = field(compare=False)
    """Raises Nonsense."""
    optional: bool = field(default=False, compare=False)
    """Not every server has this path: its failure says nothing about the others."""

    @property
    def key(self) -> bytes:
        return hashlib.sha256(self.path.encode() + b"\0" + self.body).digest()


Answers = dict[Ask, Answer | EvaluatorError]
"""What became of each question; one that is not in it was not answered in time."""


class Endpoint:
    """One server. A key for it is read from CODEZERO_JUDGE_KEY and goes nowhere but into the request header.

    Raises ConfigError when the address or the key cannot be used.
    """

    def __init__(self, url: str, requests: int) -> None:
        self.url = _checked(url)
        self._requests = requests
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **_authorization(self.url)}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._transport: httpx2.AsyncHTTPTransport | None = None

    def ask(self, asks: Sequence[Ask], seconds: float) -> Answers:
        """Answers within `seconds` in all; early when the server proves unusable before it has answered anything."""
        future = self.submit(asks, seconds)
        try:
            return future.result()
        finally:
            future.cancel()

    def submit(self, asks: Sequence[Ask], seconds: float) -> "Future[Answers]":
        """As `ask`, without waiting."""
        return asyncio.run_coroutine_threadsafe(self._all(asks, time.monotonic() + seconds), self._running())

    def close(self) -> None:
        """Drop what is under way and end the thread. May be called twice."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = Thread(target=self._loop.run_forever, name="judge endpoint", daemon=True)
            self._thread.start()
        return self._loop

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._transport is not None:
            await self._transport.aclose()
            self._transport = None

    async def _all(self, asks: Sequence[Ask], until: float) -> Answers:
        answers: Answers = {}
        waiting = iter(asks)
        try:
            async with asyncio.timeout(until - time.monotonic()), asyncio.TaskGroup() as group:
                for _ in range(min(self._requests, len(asks))):
                    group.create_task(self._work(waiting, answers))
        except* (TimeoutError, Unusable):
            pass  # what was answered stands
        return answers

    async def _work(self, waiting: Iterator[Ask], answers: Answers) -> None:
        for ask in waiting:
            try:
                answers[ask] = ask.read(await self._send(ask))
            except EvaluatorError as error:
                answers[ask] = error
                if isinstance(error, Unusable) and not ask.optional and not any(map(is_answer, answers.values())):
                    raise

    async def _send(self, ask: Ask) -> bytes:
        why: EvaluatorError = Down("was not asked")
        for attempt in range(1 + RETRIES):
            if attempt:
                await asyncio.sleep(random.uniform(0.5, 1) * BACK_OFF * 2 ** (attempt - 1))
            try:
                status, body = await self._post(ask)
            except httpx2.TransportError as error:
                why = Down(f"cannot be reached ({type(error).__name__}); start it, or correct evaluator.url")
                continue
            if status == 200:
                return body
            why = _explain(status)
            if status not in _PASSING:
                break
        raise why

    async def _post(self, ask: Ask) -> tuple[int, bytes]:
        if self._transport is None:
            limits = httpx2.Limits(max_connections=self._requests, max_keepalive_connections=self._requests)
            self._transport = httpx2.AsyncHTTPTransport(limits=limits, trust_env=False)
        request = httpx2.Request("POST", self.url + ask.path, headers=self._headers, content=ask.body)
        response = await self._transport.handle_async_request(request)
        try:
            return response.status_code, await _body(response) if response.status_code == 200 else b""
        finally:
            await response.aclose()


class Breaker:
    """Closed while the server answers. Opens for 2 s when it does not, then for twice as long each time up to 60 s."""

    def __init__(self) -> None:
        self.closed = True
        self._pause = FIRST_PAUSE
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the server is tried again; 0 when it may be."""
        return max(0.0, self._until - time.monotonic())

    def record(self, answered: bool) -> None:
        self.closed = answered
        if answered:
            self._pause = FIRST_PAUSE
        else:
            self._until = time.monotonic() + self._pause
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)


def is_answer(answer: Answer | EvaluatorError) -> bool:
    return not isinstance(answer, EvaluatorError)


async def _body(response: httpx2.Response) -> bytes:
    body = bytearray()
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_ANSWER:
                raise Nonsense(f"more than {MAX_ANSWER >> 20} MiB for one token")
    return bytes(body)


def _explain(status: int) -> EvaluatorError:
    said = f"(HTTP {status})"
    if status in _ABOUT_THE_QUESTION:
        return Refused(f"refused to read it {said}")
    if status in (401, 403):
        return Unusable(f"refuses the key {said}; set {KEY_VARIABLE}")
    if status == 429:
        return Down(f"is asked too often {said}; lower evaluator.requests")
    if 300 <= status < 400:
        return Unusable(f"points elsewhere {said}; give the final address as evaluator.url")
    if 400 <= status < 500:
        return Unusable(f"does not know the address or the model {said}; correct evaluator.url or evaluator.model")
    return (Unusable if status not in _PASSING else Down)(f"fails {said}; see its own log")


def _checked(address: str) -> str:
    """The base address without a slash or /v1 at its end."""
    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise ConfigError("evaluator.url is no address; give one like http://127.0.0.1:8000") from error
    if url.userinfo:
        raise ConfigError(f"evaluator.url must hold no password; put a key into {KEY_VARIABLE}")
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535 or url.query or url.fragment:
        raise ConfigError("evaluator.url must be an http or https address like http://127.0.0.1:8000")
    return str(url).rstrip("/").removesuffix("/v1").rstrip("/")


def _authorization(address: str) -> dict[str, str]:
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{KEY_VARIABLE} holds characters that no key has; set it again")
    url = httpx2.URL(address)
    if url.scheme == "http" and url.host not in _THIS_MACHINE:
        logger.warning("the key for the judge goes unencrypted to %s; use https", url.host)
    return {"Authorization": f"Bearer {key}"}
