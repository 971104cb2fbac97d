"""An RPC endpoint that loses, delays and lies: an HTTP proxy in front of a chain, with a seed.

Of the requests it gets, `drop` are never passed on or never answered (half each), `delay` are answered late, and `lie`
are passed on, taken by the chain, and then answered with an error: an HTTP status, a JSON-RPC error or nonsense."""

import asyncio
import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Self

import aiohttp
import msgspec
from aiohttp import web

LATE = 0.2  # seconds


@dataclass
class ChaosProxy:
    """`with ChaosProxy(url, seed) as proxy: proxy.url`. Serves from a thread of its own."""

    target: str
    seed: int = 0
    drop: float = 0.2
    delay: float = 0.1
    lie: float = 0.1
    counts: Counter[str] = field(default_factory=Counter)
    url: str = ""

    def __enter__(self) -> Self:
        self._random = random.Random(self.seed)
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _serve(self, started: threading.Event) -> None:
        self._loop.run_until_complete(self._start())
        started.set()
        self._loop.run_forever()

    async def _start(self) -> None:
        self._session = aiohttp.ClientSession()
        app = web.Application()
        app.router.add_post("/{key:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        dice, kind = self._random.random(), self._random.random()
        if dice < self.drop and kind < 0.5:
            return self._cut(request, "dropped before")
        answer = await self._forward(body)
        if dice < self.drop:
            return self._cut(request, "dropped after")
        if dice < self.drop + self.delay:
            self.counts["delayed"] += 1
            await asyncio.sleep(LATE)
        elif dice < self.drop + self.delay + self.lie:
            self.counts["lied"] += 1
            return self._lie(body, kind)
        self.counts["passed"] += 1
        return web.Response(body=answer, content_type="application/json")

    async def _forward(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self.target, data=body, headers=headers) as response:
            return await response.read()

    def _cut(self, request: web.Request, how: str) -> web.Response:
        self.counts[how] += 1
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    def _lie(self, body: bytes, kind: float) -> web.Response:
        if kind < 0.3:
            return web.Response(status=502, text="bad gateway")
        if kind < 0.4:
            return web.Response(text="no JSON at all")
        code = -32603 if kind < 0.7 else -32000
        error = {"code": code, "message": "nonce too low" if kind < 0.85 else "transaction rejected"}
        answer = {"jsonrpc": "2.0", "id": msgspec.json.decode(body)["id"], "error": error}
        return web.Response(body=msgspec.json.encode(answer))
