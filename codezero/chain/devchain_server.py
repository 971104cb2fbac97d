"""The process that serves the embedded chain: JSON-RPC over HTTP on loopback, batches included.

No web page reaches it: another Host (DNS rebinding), any Origin, and any content type but JSON are refused."""

import asyncio
import inspect
import logging
import os
import secrets
import signal
import sqlite3
import sys
import threading
import typing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from eth.exceptions import VMError
from eth.vm.interrupt import EVMMissingData
from msgspec import Meta

from codezero.chain.devchain import DATABASE, Chain
from codezero.chain.devchain_evm import REFUSED, RpcRefusal
from codezero.chain.devchain_process import ENDPOINT, HOST, SERVING, USERS, ChainEndpoint
from codezero.chain.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR
from codezero.errors import ChainError, CodeZeroError, ConfigError, translated
from codezero.system.files import LOCAL, UNDECODABLE, Lock, write_atomic
from codezero.system.signals import Stop
from codezero.system.web import HEAD_SECONDS

NO_FILTERS = ": this chain keeps no filters; ask eth_blockNumber, and eth_getLogs with fromBlock and toBlock"
MAX_BODY, MAX_BATCH = 1 << 20, 256  # bytes of one request, a batch included; requests of a batch
MAX_NESTED = 10_000  # brackets of a body: py_ecc raises Python's limit, with which deeper JSON would overflow the stack
METHODS = {name for name in vars(Chain) if name.startswith(("web3_", "eth_", "codezero_"))}

logger = logging.getLogger(__name__)
CLIENT_ERRORS = HttpProcessingError, ConnectionError  # no HTTP, or a client that leaves early: not for the log
logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], CLIENT_ERRORS)))


class RpcRequest(msgspec.Struct, frozen=True):
    """One call. A request without an id would have no answer, so it is refused."""

    jsonrpc: Annotated[str, Meta(pattern=r"^2\.0\Z")]
    id: Annotated[str, Meta(max_length=256)] | Annotated[int, Meta(ge=-(2**53), le=2**53)] | None
    method: Annotated[str, Meta(max_length=64)]
    params: Any = []


class RpcServer:
    """Answers for a chain on one loopback port."""

    def __init__(self, chain: Chain) -> None:
        self._chain, self._hosts = chain, list[list[str]]()
        threading.stack_size(64 << 20)  # bytes: calls may nest a thousand deep
        self._thread = ThreadPoolExecutor(1, "devchain")

    async def run(
        self, folder: Path, port: int, announce: Callable[[ChainEndpoint], None], stop: Stop, while_used: bool
    ) -> None:
        """Until it has to stop, or nobody uses it. Raises ChainError and OSError."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/", self._answer)
        runner = web.AppRunner(
            app, access_log=None, logger=logger, auto_decompress=False, handle_signals=False, shutdown_timeout=5.0,
            keepalive_timeout=HEAD_SECONDS,
        )  # fmt: skip
        await runner.setup()
        with closing(Lock(folder / USERS)) as users:
            try:
                bound, version = await self._listen(runner, port, ChainEndpoint.of(folder)), self._chain.version
                endpoint = ChainEndpoint(bound, self._chain.chain_id, os.getpid(), version, while_used)
                write_atomic(folder / ENDPOINT, msgspec.json.encode(endpoint), private=True)
                announce(endpoint)
                while not (stop or (while_used and users.take())):  # and kept: who comes now waits for our end
                    await asyncio.sleep(0.25)
            finally:
                await runner.cleanup()
                self._thread.shutdown(cancel_futures=True)

    async def _listen(self, runner: web.AppRunner, port: int, last: ChainEndpoint | None) -> int:
        # 0 is the last port, so that those who know its URL find it again, or any that is free
        for candidate in [port] if port or last is None else [last.port, 0]:
            try:
                await web.TCPSite(runner, HOST, candidate, backlog=256).start()
                break
            except OSError as error:
                if candidate == port:
                    raise ChainError(f"cannot serve on {HOST}:{port}: {error.strerror}; give another port") from error
        bound: int = runner.addresses[0][1]
        self._hosts = [[f"{name}:{bound}"] for name in (HOST, "localhost", "[::1]")]
        return bound

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.getall("Host", []) not in self._hosts or "Origin" in request.headers:
            raise web.HTTPForbidden(text="codezero: neither other hosts nor web pages are served here\n")
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            raise web.HTTPUnsupportedMediaType(text="codezero: only application/json, not compressed, is served here\n")
        return web.Response(body=await self._answer_body(await request.read()), content_type="application/json")

    async def _answer_body(self, body: bytes) -> bytes:
        try:
            if body.count(b"[") + body.count(b"{") > MAX_NESTED:
                raise RecursionError("too many brackets")
            content = msgspec.json.decode(body)
        except UNDECODABLE as error:
            return _error(None, PARSE_ERROR, f"not JSON: {error}")
        if not isinstance(content, list):
            return await self._answer_request(content)
        batch = cast("list[Any]", content)
        if not 0 < len(batch) <= MAX_BATCH:
            return _error(None, INVALID_REQUEST, f"a batch has 1 to {MAX_BATCH} requests")
        return b"[" + b",".join([await self._answer_request(request) for request in batch]) + b"]"

    async def _answer_request(self, content: object) -> bytes:
        try:
            request = msgspec.convert(content, RpcRequest)
        except msgspec.ValidationError as error:
            return _error(None, INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {error}")
        try:
            return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": await self._result(request)})
        except RpcRefusal as refusal:
            return _error(request.id, refusal.code, refusal.message, refusal.data)
        except (ChainError, sqlite3.Error, EVMMissingData, VMError) as error:
            return _error(request.id, REFUSED, f"{type(error).__name__}: {error}")

    async def _result(self, request: RpcRequest) -> object:
        """Raises RpcRefusal, and what the methods of Chain raise."""
        if request.method not in METHODS:
            hint = NO_FILTERS if "ilter" in request.method or "subscri" in request.method else ""
            raise RpcRefusal(METHOD_NOT_FOUND, f"the method {request.method} does not exist/is not available{hint}")
        method = getattr(self._chain, request.method)
        types = typing.get_type_hints(method, include_extras=True)
        try:
            named = inspect.signature(method).bind(*msgspec.convert(request.params, list[Any])).arguments
            params = [msgspec.convert(value, types[name]) for name, value in named.items()]
        except (msgspec.ValidationError, TypeError) as error:  # of `bind`: too many or too few
            raise RpcRefusal(INVALID_PARAMS, f"invalid params of {request.method}: {error}") from error
        if not params:  # reads no file, and so waits for no call
            return method()
        return await asyncio.get_running_loop().run_in_executor(self._thread, method, *params)


def serve(
    path: Path, announce: Callable[[ChainEndpoint], None], *, port: int, chain_id: int | None, while_used: bool = False
) -> signal.Signals | None:
    """Serve a chain until a signal, or, with `while_used`, until nobody holds a handle; what ended it.

    while_used: for `DevChainHandle`, which has taken the lock for this process.

    path: its directory. port: 0 is the one it had last time, or any that is free. chain_id: for a new chain; None is a
    random one. `announce` is called once it answers. For the main thread. Raises ChainError and ConfigError."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"port={port} is out of bounds; it must be 0 to 65535")
    stop = Stop()
    with closing(Lock(path / SERVING)) as serving, stop.on_signals():
        if not while_used and not serving.take():
            where = f" at {last.url} (process {last.pid})" if (last := ChainEndpoint.of(path)) else ""
            raise ChainError(f"the chain in {path} is already served{where}; use that one, or give another directory")
        with translated(ChainError, f"the chain in {path / DATABASE} failed", sqlite3.Error, OSError, mend=LOCAL):
            version = f"codezero-devchain/py-evm/{secrets.token_hex(8)}"
            with closing(Chain(path, version, chain_id)) as chain:
                asyncio.run(RpcServer(chain).run(path, port, announce, stop, while_used))
    return stop.received


def main(path: str, port: str, chain_id: str) -> int:
    """The process that `DevChainHandle` starts; returns its exit code. chain_id: 0 is none given."""
    try:
        serve(Path(path), lambda _: None, port=int(port), chain_id=int(chain_id) or None, while_used=True)
    except CodeZeroError as error:
        print(f"codezero: {error}", file=sys.stderr)
        return 1
    return 0


def _error(request_id: str | int | None, code: int, message: str, data: str | None = None) -> bytes:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
