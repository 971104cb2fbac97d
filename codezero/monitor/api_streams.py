"""Server-sent events, and reads that concurrent requests share. Nothing is queued for a page that does not read."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

from aiohttp import web

from codezero.errors import HttpRefusal

Answer = TypeVar("Answer")


class Shared:
    """Of each question one read at a time, and none while the last answer is younger than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reads: dict[Hashable, asyncio.Future[Any]] = {}
        """Under way, or answered a moment ago."""

    async def get(self, question: Hashable, read: Callable[[], Awaitable[Answer]]) -> Answer:
        """Raises what `read` raises; a failure is forgotten at once. One asker who leaves disturbs no other."""
        if question not in self._reads:
            while len(self._reads) >= 64:  # the oldest is let go
                del self._reads[next(iter(self._reads))]
            self._reads[question] = asyncio.ensure_future(read())
            self._reads[question].add_done_callback(lambda task: self._forget_later(question, task))
        return cast(Answer, await asyncio.shield(self._reads[question]))

    def _forget_later(self, question: Hashable, task: asyncio.Future[Any]) -> None:
        def forget() -> None:
            if self._reads.get(question) is task:
                del self._reads[question]

        failed = task.cancelled() or task.exception() is not None
        asyncio.get_running_loop().call_later(0.0 if failed else self._seconds, forget)


MAX_STREAMS = 16
PAUSE_SECONDS = 1.0
SILENCE_SECONDS = 15.0
"""After so long a comment shows that the line still works."""
SLOW_SECONDS = 10.0
"""A page that takes longer to take one event is cut off."""


class Streams:
    """All open streams. An event is `view` with a JSON value without newlines as its data."""

    def __init__(self, *, pause: float = PAUSE_SECONDS, silence: float = SILENCE_SECONDS) -> None:
        self._pause, self._silence = pause, silence
        self._open = 0
        self._closing = asyncio.Event()

    async def close(self, _: web.Application) -> None:
        self._closing.set()

    async def serve(self, request: web.Request, read: Callable[[], Awaitable[bytes]]) -> web.StreamResponse:
        """Send what `read` gives whenever it has changed, until the page leaves or `close`.

        Raises HttpRefusal when there are MAX_STREAMS, and what `read` raises.
        """
        if self._open >= MAX_STREAMS:
            raise HttpRefusal(503, "too many pages are open; close some of them", retry_after=15)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self._open += 1
        try:
            await response.prepare(request)
            await self._send(request, response, read)
        except ConnectionResetError:
            pass  # the reader left
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._open -= 1
        return response

    async def _send(
        self, request: web.Request, response: web.StreamResponse, read: Callable[[], Awaitable[bytes]]
    ) -> None:
        sent, sent_at = b"", time.monotonic()
        while not self._closing.is_set() and request.transport is not None and not request.transport.is_closing():
            now = await read()
            silent = time.monotonic() - sent_at >= self._silence
            if now != sent or silent:
                line = b": nothing new\n\n" if now == sent else b"event: view\ndata: " + now + b"\n\n"
                async with asyncio.timeout(SLOW_SECONDS):
                    await response.write(line)
                sent, sent_at = now, time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._pause)
