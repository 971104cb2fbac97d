"""The data API: JSON, server-sent events, health and Prometheus, over a Reader. It only reads.

Whoever asks is a stranger: each part of an address is checked, every answer is bounded, and files are read in threads,
once for all who ask within a second.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from codezero.errors import UnreadableError
from codezero.monitor.api_streams import Shared, Streams
from codezero.monitor.health import overall
from codezero.monitor.reader import KEY, RunReader

Result = TypeVar("Result")
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]

THREADS = 8
FRESH_SECONDS = 0.9
"""For which a read serves all who ask; a little less than the pause of a stream."""
NO_RUN = "there is no such run"
NO_GROUP = "there is no such run, or no such group in it any more"
MAX_LIMIT = 100
DEFAULT_LIMIT = 50
MAX_ID = 2**53 - 1
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"
PEER = "[1-9A-HJ-NP-Za-km-z]{1,128}"


class InvalidRequest(ValueError):
    """A part of the address is not as its route takes it."""


class DataApi:
    """Routes over one reader; who may request them is decided elsewhere. Give the application to `end_with`."""

    def __init__(self, reader: RunReader, *, streams: Streams | None = None) -> None:
        self._reader = reader
        self._streams = streams or Streams()
        self._shared = Shared(FRESH_SECONDS)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="page")

    @property
    def data(self) -> list[web.RouteDef]:
        """What only the owner may read, once there is one."""
        gets = {
            "/api/runs": self._runs,
            "/api/runs/{run}": self._view,
            "/api/runs/{run}/rollouts": self._rollouts,
            "/api/runs/{run}/rollouts/{id}": self._rollout,
            "/api/runs/{run}/leaderboard": self._leaderboard,
        }
        events = web.get("/api/runs/{run}/events", _guarded(self._events), allow_head=False)
        return [*(web.get(path, _guarded(handler)) for path, handler in gets.items()), events]

    @property
    def probes(self) -> list[web.RouteDef]:
        """What monitoring asks."""
        return [web.get("/healthz", _guarded(self._health)), web.get("/metrics", _guarded(self._metrics))]

    def end_with(self, app: web.Application) -> None:
        """When it stops listening, open streams end; then the threads."""

        async def end_streams(_: web.Application) -> None:
            self._streams.close()

        async def end_threads(_: web.Application) -> None:
            self._pool.shutdown(wait=False, cancel_futures=True)

        app.on_shutdown.append(end_streams)
        app.on_cleanup.append(end_threads)

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        _query(request)
        return _json(await self._once("runs", lambda: _encoded(self._reader.runs())))

    async def _view(self, request: web.Request) -> web.StreamResponse:
        _query(request)
        return _json(await self._viewed(_key(request)), NO_RUN)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        _query(request)
        key = _key(request)
        view = await self._viewed(key)
        if view is None:
            return error(404, NO_RUN)
        if self._streams.full:
            return error(503, "too many pages are open; close some of them", **{"Retry-After": "15"})

        async def read() -> bytes | None:
            nonlocal view
            with contextlib.suppress(UnreadableError):  # once begun, a stream says nothing until it can
                view = await self._viewed(key)
            return view

        return await self._streams.serve(request, read)

    async def _rollouts(self, request: web.Request) -> web.StreamResponse:
        query, key = _query(request, "before", "limit", "peer", "mine"), _key(request)
        before, limit = _number(query, "before", MAX_ID), _number(query, "limit", MAX_LIMIT) or DEFAULT_LIMIT
        peer, side = query.get("peer"), query.get("mine")
        if peer is not None and not re.fullmatch(PEER, peer):
            raise InvalidRequest("peer is no peer id")
        if side not in (None, "true", "false"):
            raise InvalidRequest("mine is true or false")
        own_only = None if side is None else side == "true"

        def read() -> bytes | None:
            return _encoded(self._reader.rollouts(key, before=before, limit=limit, peer=peer, own=own_only))

        return _json(await self._once(("rollouts", key, before, limit, peer, own_only), read), NO_RUN)

    async def _rollout(self, request: web.Request) -> web.StreamResponse:
        _query(request)
        key, number = _key(request), _number(request.match_info, "id", MAX_ID) or 0
        read = self._once(("rollout", key, number), lambda: _encoded(self._reader.rollout(key, number)))
        return _json(await read, NO_GROUP)

    async def _leaderboard(self, request: web.Request) -> web.StreamResponse:
        _query(request)
        key = _key(request)
        return _json(await self._once(("board", key), lambda: _encoded(self._reader.leaderboard(key))), NO_RUN)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        _query(request)
        health = await self._once("health", lambda: overall(self._reader.watched(), time.time()))
        return _json(_encoded(health), status=200 if health.healthy else 503)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        _query(request)

        def read() -> bytes:
            from codezero.monitor.prometheus import exposition

            views = self._reader.watched()
            return exposition(views, overall(views, time.time()))

        return web.Response(body=await self._once("metrics", read), headers={"Content-Type": PROMETHEUS_TEXT})

    async def _viewed(self, key: str) -> bytes | None:
        return await self._once(("view", key), lambda: _encoded(self._reader.view(key)))

    async def _once(self, question: object, read: Callable[[], Result]) -> Result:
        loop = asyncio.get_running_loop()
        return await self._shared.get(question, lambda: loop.run_in_executor(self._pool, read))


def error(status: int, text: str, **headers: str) -> web.Response:
    """One line, as every refusal here."""
    body = msgspec.json.encode({"error": " ".join(text.split())[:500]})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def _guarded(handler: Answering) -> Answering:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except InvalidRequest as refused:
            return error(400, str(refused))
        except UnreadableError as failure:
            return error(503, str(failure))

    return answer


def _key(request: web.Request) -> str:
    key = request.match_info["run"]
    if not re.fullmatch(KEY, key):
        raise InvalidRequest("a run is called by letters, digits and . _ ~ -, as /api/runs lists it")
    return key


def _query(request: web.Request, *allowed: str) -> dict[str, str]:
    """Each name at most once."""
    query: dict[str, str] = {}
    for name, value in request.query.items():
        if name not in allowed:
            raise InvalidRequest(f"this address takes {'no query' if not allowed else 'only ' + ', '.join(allowed)}")
        if name in query:
            raise InvalidRequest(f"{name} is given twice")
        query[name] = value
    return query


def _number(query: Mapping[str, str], name: str, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,16}", text) or not 1 <= int(text) <= most:
        raise InvalidRequest(f"{name} is a whole number from 1 to {most}")
    return int(text)


def _encoded(value: Any) -> bytes | None:
    return None if value is None else msgspec.json.encode(value)


def _json(body: bytes | None, missing: str = "", *, status: int = 200) -> web.Response:
    if body is None:
        return error(404, missing)
    return web.Response(status=status, body=body, content_type="application/json")
