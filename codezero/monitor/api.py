"""The data API: JSON, server-sent events, health and Prometheus, over a RunReader. It only reads.

Nobody who asks is trusted: each part of an address is checked, every answer is bounded, and files are read in threads,
once for all who ask within a second. Nothing is queued for a page that does not read. All methods raise HttpRefusal."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from aiohttp import web
from msgspec import Meta
from msgspec.structs import asdict
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from codezero.errors import HttpRefusal, MarketError, UnreadableError
from codezero.monitor.metrics_file import MAX_WHOLE
from codezero.monitor.reader import KEY, RunReader
from codezero.monitor.run_types import Health, RunView
from codezero.monitor.run_view import overall

Result = TypeVar("Result")
Query = TypeVar("Query", bound=msgspec.Struct)
Number = Annotated[int, Meta(ge=1, le=MAX_WHOLE)]


class Nothing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """An address without variable parts."""


class OfRun(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    run: Annotated[str, Meta(pattern=rf"\A{KEY}\Z")]


class OfRollout(OfRun, frozen=True):
    number: Number = msgspec.field(name="id")


class OfGames(OfRun, frozen=True):
    before: Number | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50


class OfRollouts(OfGames, frozen=True):
    peer: Annotated[str, Meta(pattern=r"\A[1-9A-HJ-NP-Za-km-z]{1,128}\Z")] | None = None
    own: bool | None = msgspec.field(name="mine", default=None)
    level: Annotated[int, Meta(ge=1, le=5)] | None = None
    status: Literal["judged", "certain_failure", "quarantined", "unavailable"] | None = None


class OfGame(OfRun, frozen=True):
    digits: Annotated[str, Meta(pattern=r"\A[0-9a-f]{4,64}\Z")] = msgspec.field(name="id")


PARTS = {  # the query of each part of a run, by its address below the run's
    **dict.fromkeys(("settings", "log", "checkpoints", "market"), OfRun),
    **{"rollouts": OfRollouts, "rollouts/{id}": OfRollout, "market/games": OfGames, "market/games/{id}": OfGame},
}


class Shared:
    """Shares reads: one at a time of each question, and none while the last answer is younger than `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._reads: dict[Hashable, asyncio.Future[Any]] = {}

    async def get(self, question: Hashable, read: Callable[[], Awaitable[Result]]) -> Result:
        """Raises what `read` raises; a failure is forgotten at once. One asker who leaves disturbs no other."""
        if question not in self._reads:
            while len(self._reads) >= 64:  # the oldest is let go
                del self._reads[next(iter(self._reads))]
            self._reads[question] = asyncio.ensure_future(read())
            self._reads[question].add_done_callback(lambda task: self._forget_later(question, task))
        return cast(Result, await asyncio.shield(self._reads[question]))

    def _forget_later(self, question: Hashable, task: asyncio.Future[Any]) -> None:
        def forget() -> None:
            if self._reads.get(question) is task:
                del self._reads[question]

        failed = task.cancelled() or task.exception() is not None
        task.get_loop().call_later(0.0 if failed else self._seconds, forget)


MAX_STREAMS = 16
SLOW_SECONDS = 10.0  # a page that takes longer to take one event is cut off


class Streams:
    """All open streams. An event is `view` with a JSON value without newlines as its data.

    pause: seconds between two reads. silence: after so many a comment shows that the line still works."""

    def __init__(self, *, pause: float = 1.0, silence: float = 15.0) -> None:
        self._pause, self._silence = pause, silence
        self._open, self._closing = 0, asyncio.Event()

    async def close(self, _: web.Application) -> None:
        self._closing.set()

    async def serve(self, request: web.Request, read: Callable[[], Awaitable[bytes]]) -> web.StreamResponse:
        """Send what `read` gives whenever it has changed, until the page leaves or `close`. Raises HttpRefusal when
        there are MAX_STREAMS, and what `read` raises."""
        if self._open >= MAX_STREAMS:
            raise HttpRefusal(503, "too many pages are open; close some of them", retry_after=15)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        self._open += 1
        sent, sent_at = b"", time.monotonic()
        try:
            await response.prepare(request)
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
        except ConnectionResetError:
            pass  # the reader left
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._open -= 1
        return response


Samples = Iterable[tuple[Mapping[str, str], float | None]]  # labels and value; None: not measured, and left out
OUTBOX_STATES = ("collecting", "pending", "accepted", "refused")
METRICS: dict[str, tuple[str, Callable[[RunView], Samples]]] = {
    "running": ("1 while its process is there.", lambda view: [({}, view.running)]),
    "iteration": ("Iterations done.", lambda view: [({}, view.iteration)]),
    "round": ("Round of the swarm it plays in.", lambda view: [({}, view.round)]),
    "last_step_timestamp_seconds": ("When its last step was recorded.", lambda view: [({}, view.updated)]),
    "step_seconds": ("Median of its last steps.", lambda view: [({}, view.seconds_per_iteration)]),
    "tokens_per_second": ("Sampled by its solver.", lambda view: [({}, view.tokens_per_second)]),
    "judge_weight": ("How far the judge counts; 0: without proven skill.", lambda view: [({}, view.judge.weight)]),
    "peers_kept_away_from": ("Peers that are not dealt with for now.",
                             lambda view: [({}, sum(peer.state != "ok" for peer in view.peers))]),
    "measured": ("The newest value of each curve of the page.",
                 lambda view: (({"curve": name}, value) for name, value in view.latest.items())),
    "exam": ("Share of the held-out problems solved: average@k and pass@k.", lambda view: (
        ({"measure": f"{measure}@{exam.samples}", "source": exam.source}, value)
        for exam in view.exams[-1:]
        for measure, value in (("average", exam.average), ("pass", exam.passed))
    )),
    "level_success": ("Mean posterior of the success rate at each level of difficulty.",
                      lambda view: (({"level": str(skill.level)}, skill.mean) for skill in view.difficulty)),
    "submissions": ("What became of the points, by state.",
                    lambda view: (({"state": state}, getattr(view.outbox, state, None)) for state in OUTBOX_STATES)),
}  # fmt: skip


class RunCollector(Collector):
    """Gives Prometheus its samples, in text format 0.0.4. Those of each run are labelled with its key."""

    def __init__(self, views: Sequence[RunView], health: Health) -> None:
        self._views, self._health = views, health

    def collect(self) -> Iterator[Metric]:
        """Metrics without a sample are left out."""
        healthy = Metric("codezero_healthy", "1 unless a run that is meant to learn has stalled or died.", "gauge")
        healthy.add_sample(healthy.name, {}, self._health.healthy)
        yield healthy
        for name, (text, read) in METRICS.items():
            yield from self._metric(Metric(f"codezero_{name}", text, "gauge"), read)
        errors = Metric("codezero_tolerated", "Errors that the run survived, by kind.", "counter")
        yield from self._metric(errors, lambda view: (({"kind": k}, n) for k, n in view.tolerated.items()), "_total")

    def _metric(self, metric: Metric, read: Callable[[RunView], Samples], suffix: str = "") -> Iterator[Metric]:
        """suffix: what the text format adds to the names of this kind."""
        for view in self._views:
            for labels, value in read(view):
                if value is not None:
                    metric.add_sample(f"{metric.name}{suffix}", {"run": view.run, **labels}, value)
        if metric.samples:
            yield metric


class DataApi:
    """Routes over one reader: `data` for the owner, once there is one, and `probes` for monitoring.

    `streams` has to be closed when the application of the routes shuts down."""

    def __init__(self, reader: RunReader, *, streams: Streams | None = None) -> None:
        self._reader, self.streams = reader, streams or Streams()
        self._shared = Shared(0.9)  # a little less than the pause of a stream
        self._boards = Shared(30.0)
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="page")

    @property
    def data(self) -> list[web.RouteDef]:
        reader = self._reader
        return [
            self._get("/api/runs", Nothing, lambda _: reader.runs()),
            self._get("/api/runs/{run}", OfRun, lambda query: reader.view(query.run)),
            *(
                self._get(f"/api/runs/{{run}}/{name}", kind, lambda of, name=name: reader.part(name, **asdict(of)))
                for name, kind in PARTS.items()
            ),
            web.get("/api/runs/{run}/leaderboard", self._leaderboard),
            web.get("/api/runs/{run}/events", self._events, allow_head=False),
        ]

    @property
    def probes(self) -> list[web.RouteDef]:
        return [web.get("/healthz", self._health), web.get("/metrics", self._metrics)]

    def _get(self, path: str, kind: type[Query], read: Callable[[Query], object]) -> web.RouteDef:
        async def answer(request: web.Request) -> web.StreamResponse:
            query = _query(request, kind)
            return await self._json((path, query), lambda: read(query))

        return web.get(path, answer)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        run, view = _query(request, OfRun).run, b""

        async def read() -> bytes:
            nonlocal view
            try:
                view = await self._once(("view", run), lambda: msgspec.json.encode(self._reader.view(run)))
            except HttpRefusal:  # once begun, a stream says nothing until it can
                if not view:
                    raise
            return view

        await read()
        return await self.streams.serve(request, read)

    async def _leaderboard(self, request: web.Request) -> web.StreamResponse:
        run = _query(request, OfRun).run
        with contextlib.suppress(TimeoutError):  # a longer read of the chain is shown at a later request
            async with asyncio.timeout(5.0):
                await self._boards.get("board", lambda: self._in_thread(self._reader.read_board))
        return await self._json(("board", run), lambda: self._reader.leaderboard(run))

    async def _health(self, request: web.Request) -> web.StreamResponse:
        _query(request, Nothing)
        health = await self._once("health", lambda: overall(self._reader.watched(), time.time()))
        return web.json_response(body=msgspec.json.encode(health), status=200 if health.healthy else 503)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        _query(request, Nothing)

        def read() -> bytes:
            views = self._reader.watched()
            return generate_latest(RunCollector(views, overall(views, time.time())))  # without those of this process

        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=await self._once("metrics", read), headers=headers)

    async def _json(self, question: Hashable, read: Callable[[], object]) -> web.Response:
        return web.json_response(body=await self._once(question, lambda: msgspec.json.encode(read())))

    async def _once(self, question: Hashable, read: Callable[[], Result]) -> Result:
        try:
            return await self._shared.get(question, lambda: self._in_thread(read))
        except (UnreadableError, MarketError) as failure:
            raise HttpRefusal(503, str(failure)) from failure

    def _in_thread(self, read: Callable[[], Result]) -> Awaitable[Result]:
        return asyncio.get_running_loop().run_in_executor(self._pool, read)


def _query(request: web.Request, kind: type[Query]) -> Query:
    """The parts of the path and the query, each of which is given once."""
    pairs = [*request.match_info.items(), *request.query.items()]
    if len(pairs) > len(dict(pairs)):
        raise HttpRefusal(400, "a part of this address is given twice")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        raise HttpRefusal(400, f"this address is not as /api/runs lists them: {error}") from error
