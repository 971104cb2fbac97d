"""The embedded chain over HTTP on loopback: what may come in, batches, and the one thread that owns the store.

A browser must not reach it: another Host is refused (DNS rebinding), so is any Origin, and so is what a page could send
without asking first (a content type other than JSON).
"""

import asyncio
import importlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from codezero.chain.devchain_rpc import METHODS, Node
from codezero.chain.devchain_wire import (
    INTERNAL,
    INVALID_PARAMS,
    INVALID_REQUEST,
    NO_SUCH_METHOD,
    OVER_LIMIT,
    PARSE_ERROR,
    Request,
    RpcRefusal,
)
from codezero.errors import ChainError

MAX_BODY = 1 << 20
"""Bytes of one request, a batch included."""
MAX_BATCH = 256
MAX_ANSWER = 32 << 20
"""Bytes of a batch's answers, after which its other requests are refused."""
BODY_SECONDS = 10.0
REQUESTS_AT_ONCE = 64
"""Whose bodies are held at one time; the others wait."""
STACK = 64 << 20
"""Bytes of the EVM's thread: calls may nest a thousand deep."""


logger = logging.getLogger(__name__)
logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Faults of our own; what strangers send that is not HTTP must not fill the log."""


class Server:
    """Answers for a node. Bound to one loopback address. `close` ends the thread, not the node's store."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._hosts: frozenset[str] = frozenset()
        self._runner: web.AppRunner | None = None
        before = threading.stack_size(STACK)
        self._thread = ThreadPoolExecutor(1, "devchain")
        self._thread.submit(int).result()  # starts the thread, with the large stack
        threading.stack_size(before)

    async def listen(self, host: str, port: int) -> int:
        """Begin to answer; the port. Raises OSError."""
        app = web.Application()
        app.router.add_route("*", "/", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, logger=logger, auto_decompress=False, handle_signals=False, shutdown_timeout=5.0
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=256).start()
        bound: int = self._runner.addresses[0][1]
        self._hosts = frozenset(f"{name}:{bound}" for name in ("127.0.0.1", "localhost", "[::1]"))
        return bound

    def warm_up(self) -> None:
        """Load py-evm beside the first answers. The store's thread waits for it where it needs it."""
        module = "codezero.chain.devchain_engine"
        threading.Thread(target=importlib.import_module, args=(module,), daemon=True).start()

    async def forget(self) -> None:
        """Listen nowhere again."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def close(self) -> None:
        """Let what runs come to its end, soon."""
        self._node.stop()
        await self.forget()
        self._thread.shutdown(cancel_futures=True)

    async def _answer(self, request: web.Request) -> web.Response:
        refused = self._refusal(request)
        if refused is not None:
            return refused
        async with self._slots:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await _body(request)
            except TimeoutError:
                return _plain(408, "the request came too slowly")
            if body is None:
                return _plain(413, f"a request has at most {MAX_BODY} bytes")
            answer = await self._answer_body(body)
        return web.Response(body=answer, content_type="application/json")

    def _refusal(self, request: web.Request) -> web.Response | None:
        if request.headers.getall("Host", []) not in [[host] for host in self._hosts]:
            return _plain(403, "this host is not served here")
        if "Origin" in request.headers:
            return _plain(403, "web pages are not served here")
        if request.method != "POST":
            return _plain(405, "only POST is served here", Allow="POST")
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            return _plain(415, "only application/json, not compressed, is served here")
        return None

    async def _answer_body(self, body: bytes) -> bytes:
        try:
            if not body.lstrip(b" \t\r\n").startswith(b"["):
                return await self._one(msgspec.Raw(body))
            batch = msgspec.json.decode(body, type=list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            return _error(None, RpcRefusal(PARSE_ERROR, f"not JSON: {error}"))
        if not batch:
            return _error(None, RpcRefusal(INVALID_REQUEST, "the batch is empty"))
        if len(batch) > MAX_BATCH:
            return _error(None, RpcRefusal(INVALID_REQUEST, f"a batch has at most {MAX_BATCH} requests"))
        answers: list[bytes] = []
        size = 0
        for one in batch:
            answers.append(await self._one(one, full=size > MAX_ANSWER))
            size += len(answers[-1])
        return b"[" + b",".join(answers) + b"]"

    async def _one(self, raw: msgspec.Raw, full: bool = False) -> bytes:
        try:
            request = msgspec.json.decode(raw, type=Request)
        except msgspec.ValidationError as error:
            return _error(None, RpcRefusal(INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {error}"))
        except (msgspec.DecodeError, RecursionError) as error:
            return _error(None, RpcRefusal(PARSE_ERROR, f"not JSON: {error}"))
        try:
            if full:
                raise RpcRefusal(OVER_LIMIT, "the batch's answers are too large")
            return await self._run(request)
        except RpcRefusal as refusal:
            return _error(request.id, refusal)
        except ChainError as error:
            return _error(request.id, RpcRefusal(INTERNAL, str(error)))

    async def _run(self, request: Request) -> bytes:
        """Raises RpcRefusal and ChainError."""
        method = METHODS.get(request.method)
        if method is None:
            raise RpcRefusal(NO_SUCH_METHOD, f"the method {request.method} does not exist/is not available")
        try:
            params = msgspec.json.decode(request.params, type=method.params)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RpcRefusal(INVALID_PARAMS, f"invalid params of {request.method}: {error}") from error

        def run() -> bytes:
            told: dict[str, Any] = {"jsonrpc": "2.0", "id": request.id, "result": method.run(self._node, params)}
            return msgspec.json.encode(told)

        if method.constant:
            return run()
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


async def _body(request: web.Request) -> bytes | None:
    """None where it is too long."""
    if (request.content_length or 0) > MAX_BODY:
        return None
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            return None
    return bytes(body)


def _plain(status: int, reason: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=f"codezero: {reason}\n", headers=headers)


def _error(request_id: str | int | None, refusal: RpcRefusal) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": refusal.to_json()})
