"""Many ask, one reads: the answer to a question is shared by all who ask it within a moment."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")
MAX_QUESTIONS = 64
"""Whose answers are held at one time; the oldest is let go."""


class Shared:
    """Of each question one read at a time, and none while the last answer is younger than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reads: dict[Hashable, asyncio.Task[Any]] = {}
        """Under way, or answered a moment ago."""

    async def get(self, question: Hashable, read: Callable[[], Awaitable[Answer]]) -> Answer:
        """Raises what `read` raises; a failure is forgotten at once. One asker who leaves disturbs no other."""
        task = self._reads.get(question)
        if task is None:
            task = self._begin(question, read)
        return cast(Answer, await asyncio.shield(task))

    def _begin(self, question: Hashable, read: Callable[[], Awaitable[Answer]]) -> asyncio.Task[Any]:
        while len(self._reads) >= MAX_QUESTIONS:
            del self._reads[next(iter(self._reads))]
        task = self._reads[question] = asyncio.ensure_future(_run(read))
        task.add_done_callback(lambda done: self._keep(question, done))
        return task

    def _keep(self, question: Hashable, done: asyncio.Task[Any]) -> None:
        failed = done.cancelled() or done.exception() is not None
        asyncio.get_running_loop().call_later(0.0 if failed else self._seconds, self._forget, question, done)

    def _forget(self, question: Hashable, done: asyncio.Task[Any]) -> None:
        if self._reads.get(question) is done:
            del self._reads[question]


async def _run(read: Callable[[], Awaitable[Answer]]) -> Answer:
    return await read()
