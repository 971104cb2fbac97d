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
from typing import Generic, TypeVar

import httpx2

from codezero.errors import ConfigError, EndpointError

logger = logging.getLogger(__name__)

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

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Part:
    """Who asks, as messages name it."""

    role: str
    """What the server is to this node: `judge`."""
    section: str
    """Of the config, where its address stands."""
    key_variable: str
    """Environment variable that may hold a key for it."""


class Nonsense(EndpointError):
    """An answer that no working server gives."""

    def __init__(self, what: str) -> None:
        super().__init__(f"answered nonsense: {what}")


class Refused(EndpointError):
    """The server will not answer this question; another it may."""


class Unusable(EndpointError):
    """The server answers nothing, or wants to be asked otherwise. Like all of these it reads on after "the judge"."""


class Down(Unusable):
    """It cannot be reached, fails, or has too much to do; later it may answer."""


@dataclass(frozen=True)
class Ask(Generic[Answer]):
    """One question. Equal ones have the same answer. Not slotted: Python 3.11 makes no frozen, slotted `Ask[...]()`."""

    path: str
    body: bytes
    read: Callable[[bytes], Answer] = field(compare=False)
    """Raises Nonsense."""
    optional: bool = field(default=False, compare=False)
    """Not every server has this path: its failure says nothing about the others."""

    @property
    def key(self) -> bytes:
        return hashlib.sha256(self.path.encode() + b"\0" + self.body).digest()


Answers = dict[Ask[Answer], Answer | EndpointError]
"""What became of each question; one that is not in it was not answered in time."""


class Endpoint(Generic[Answer]):
    """One server. A key for it is read from its variable and goes nowhere but into the request header.

    Raises ConfigError when the address or the key cannot be used.
    """

    def __init__(self, part: Part, url: str, requests: int) -> None:
        self._part = part
        self.url = _checked(url, part)
        self._requests = requests
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **_authorization(self.url, part),
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None
        self._transport: httpx2.AsyncHTTPTransport | None = None

    def ask(self, asks: Sequence[Ask[Answer]], seconds: float) -> Answers[Answer]:
        """Answers within `seconds` in all; early when the server proves unusable before it has answered anything."""
        future = self.submit(asks, seconds)
        try:
            return future.result()
        finally:
            future.cancel()

    def submit(self, asks: Sequence[Ask[Answer]], seconds: float) -> "Future[Answers[Answer]]":
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
            self._thread = Thread(target=self._loop.run_forever, name=f"{self._part.role} endpoint", daemon=True)
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

    async def _all(self, asks: Sequence[Ask[Answer]], until: float) -> Answers[Answer]:
        answers: Answers[Answer] = {}
        waiting = iter(asks)
        try:
            async with asyncio.timeout(until - time.monotonic()), asyncio.TaskGroup() as group:
                for _ in range(min(self._requests, len(asks))):
                    group.create_task(self._work(waiting, answers))
        except* (TimeoutError, Unusable):
            pass  # what was answered stands
        return answers

    async def _work(self, waiting: Iterator[Ask[Answer]], answers: Answers[Answer]) -> None:
        for ask in waiting:
            try:
                answers[ask] = ask.read(await self._send(ask))
            except EndpointError as error:
                answers[ask] = error
                if isinstance(error, Unusable) and not ask.optional and not any(map(is_answer, answers.values())):
                    raise

    async def _send(self, ask: Ask[Answer]) -> bytes:
        why: EndpointError = Down("was not asked")
        for attempt in range(1 + RETRIES):
            if attempt:
                await asyncio.sleep(random.uniform(0.5, 1) * BACK_OFF * 2 ** (attempt - 1))
            try:
                status, body = await self._post(ask)
            except httpx2.TransportError as error:
                why = Down(f"cannot be reached ({type(error).__name__}); start it, or correct {self._part.section}.url")
                continue
            if status == 200:
                return body
            why = _explain(status, self._part)
            if status not in _PASSING:
                break
        raise why

    async def _post(self, ask: Ask[Answer]) -> tuple[int, bytes]:
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


def is_answer(answer: object) -> bool:
    return not isinstance(answer, EndpointError)


async def _body(response: httpx2.Response) -> bytes:
    body = bytearray()
    async with aclosing(response.aiter_raw()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_ANSWER:
                raise Nonsense(f"more than {MAX_ANSWER >> 20} MiB in one answer")
    return bytes(body)


def _explain(status: int, part: Part) -> EndpointError:
    said = f"(HTTP {status})"
    if status in _ABOUT_THE_QUESTION:
        return Refused(f"refused to read it {said}")
    if status in (401, 403):
        return Unusable(f"refuses the key {said}; set {part.key_variable}")
    if status == 429:
        return Down(f"is asked too often {said}; lower {part.section}.requests")
    if 300 <= status < 400:
        return Unusable(f"points elsewhere {said}; give the final address as {part.section}.url")
    if 400 <= status < 500:
        return Unusable(
            f"does not know the address or the model {said}; correct {part.section}.url or {part.section}.model"
        )
    return (Unusable if status not in _PASSING else Down)(f"fails {said}; see its own log")


def _checked(address: str, part: Part) -> str:
    """The base address without a slash or /v1 at its end."""
    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"{part.section}.url is no address; give one like http://127.0.0.1:8000") from error
    if url.userinfo:
        raise ConfigError(f"{part.section}.url must hold no password; put a key into {part.key_variable}")
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535 or url.query or url.fragment:
        raise ConfigError(f"{part.section}.url must be an http or https address like http://127.0.0.1:8000")
    return str(url).rstrip("/").removesuffix("/v1").rstrip("/")


def _authorization(address: str, part: Part) -> dict[str, str]:
    key = os.environ.get(part.key_variable, "").strip()
    if not key:
        return {}
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigError(f"{part.key_variable} holds characters that no key has; set it again")
    url = httpx2.URL(address)
    if url.scheme == "http" and url.host not in _THIS_MACHINE:
        logger.warning("the key for the %s goes unencrypted to %s; use https", part.role, url.host)
    return {"Authorization": f"Bearer {key}"}
