"""The data API on loopback in a thread, over run folders that the real monitor made; for tests."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from builders.monitor import PEER, exam_row, group, row

from codezero.errors import ChainError, HttpRefusal
from codezero.inspection.status import RunFiles, parts
from codezero.monitor.api import DataApi, Streams
from codezero.monitor.monitor import RunMonitor
from codezero.monitor.reader import RunReader
from codezero.monitor.run_types import Leaderboard
from codezero.system.web import error as refused
from codezero.types import Metrics

OTHER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


def monitor(folder: Path) -> RunMonitor:
    """Of a run in `folder`, labelled as `codezero run` does it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text("{}")
    return RunMonitor(folder=folder, view="off", identity=PEER, facts={"swarm": "hivemind", "solver": "nano"})


def full_row(iteration: int, **more: float | str) -> Metrics:
    """A row as a node writes it, with the beliefs of the difficulty rule and the judge's figures."""
    measured = row(iteration) | {
        "train/loss": -0.01, "train/entropy": 0.3, "train/zero_spread_share": 0.25, "judge/canary_auroc": 0.97,
        "judge/canary_false_positive_share": 0.03, "judge/weight": 1.0, "judge/unavailable_share": 0.0,
    }  # fmt: skip
    for level in range(1, 6):
        key = f"difficulty/success_{level}"
        measured |= {key: 0.9 - 0.1 * level, f"{key}_low": 0.1, f"{key}_high": 0.95, f"difficulty/weight_{level}": 0.2}
    return measured | {key.replace("__", "/"): value for key, value in more.items()}


def played(folder: Path, upto: int = 20, *texts: str) -> RunMonitor:
    """A run of so many iterations with an exam at each tenth; still open."""
    running = monitor(folder)
    running.started(0)
    running.observe(0, exam_row(0, 0.2), [])
    for iteration in range(1, upto + 1):
        measured = full_row(iteration) | (exam_row(iteration, 0.5) if iteration % 10 == 0 else {})
        running.observe(iteration, measured, [group("Add up.", texts) if texts else group()])
    return running


def no_chain() -> Leaderboard:
    raise ChainError("there is no chain here")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        assert self.headers["content-type"].startswith("application/json")
        return json.loads(self.body)


@dataclass
class Served:
    """A server under test."""

    port: int
    stop: Callable[[], None]

    def get(self, path: str, method: str = "GET") -> Answer:
        """The path goes on the wire as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            connection.endheaders()
            response = connection.getresponse()
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read())
        finally:
            connection.close()


@web.middleware
async def answer_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """As the login's guard does it."""
    try:
        return await handler(request)
    except HttpRefusal as refusal:
        headers = {} if refusal.retry_after is None else {"Retry-After": str(refusal.retry_after)}
        return refused(refusal.status, refusal.text, **headers)


@contextlib.contextmanager
def in_thread(serving: contextlib.AbstractAsyncContextManager[int]) -> Generator[tuple[int, Callable[[], None]]]:
    """A server, in a thread: its port, and what ends it earlier."""
    loop, stack = asyncio.new_event_loop(), contextlib.AsyncExitStack()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def stop() -> None:
        asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result(60)

    try:
        yield asyncio.run_coroutine_threadsafe(stack.enter_async_context(serving), loop).result(60), stop
    finally:
        stop()
        asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def served(
    base: Path, *, board: Callable[[], Leaderboard] = no_chain, pause: float = 0.05, silence: float = 15.0
) -> Generator[Served]:
    """While this lasts; `stop` ends it earlier."""

    @contextlib.asynccontextmanager
    async def serving() -> AsyncGenerator[int]:
        reader = RunReader(base, lambda folder: RunFiles(folder).view, board, parts(base.parent / "logs"))
        api = DataApi(reader, streams=Streams(pause=pause, silence=silence))
        app = web.Application(middlewares=[answer_refusals])
        app.add_routes([*api.data, *api.probes])
        app.on_shutdown.append(api.streams.close)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=5.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()

    with in_thread(serving()) as (port, stop):
        yield Served(port, stop)
