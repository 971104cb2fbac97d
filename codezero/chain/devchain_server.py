"""The process that serves the embedded chain: JSON-RPC over HTTP on loopback, batches, the threads of the chain.

No browser reaches it: another Host (DNS rebinding), any Origin, and any content type but JSON are refused.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Sequence
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

from codezero.chain.devchain import Evm
from codezero.chain.devchain_metering import REFUSED, RUN_SECONDS, OutOfTime, RpcRefusal
from codezero.chain.devchain_process import BUSY, ENDPOINT, SERVING, USERS, ChainEndpoint, check_id
from codezero.chain.devchain_rpc import INVALID_PARAMS, METHODS, OVER_LIMIT, WRITING, Methods
from codezero.chain.devchain_store import Store
from codezero.errors import ChainError, CodeZeroError, ConfigError, translated
from codezero.system.files import LOCAL, UNDECODABLE, Lock, write_atomic
from codezero.system.signals import Stop
from codezero.system.web import HEAD_SECONDS

HOST = "127.0.0.1"
DATABASE, FAUCET_KEY = "chain.db", "faucet.key"
PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INTERNAL = -32700, -32600, -32601, -32603
NO_FILTERS = ": this chain keeps no filters; ask eth_blockNumber, and eth_getLogs with fromBlock and toBlock"
FIRST_CHAIN_ID, CHAIN_IDS = 1_000_000_000, 1_000_000_000
"""New chains get a random id of this range, so that what is signed for one means nothing on another."""
LARGEST_CHAIN_ID = (1 << 53) // 2 - 36
"""The largest that wallets written in JavaScript hold."""
MAX_BODY = 1 << 20
"""Bytes of one request, a batch included."""
MAX_BATCH = 256
MAX_NESTED = 10_000
"""Brackets of a body. py_ecc raises Python's limit, with which deeper JSON would overflow the stack."""
MAX_ANSWER = 32 << 20
"""Bytes of a batch's answers, after which its other requests are refused."""
BODY_SECONDS = 2.0
"""Until a body has come; honest ones come at once on one machine."""
SMALL_BODY, LARGE_AT_ONCE = 64 << 10, 64
"""Bytes of a body that is read at once, and how many larger ones are held at one time; others of those wait."""
QUICK_SECONDS, SLOW_AT_ONCE = 0.1, 8
"""CPU of a call that keeps the next one waiting, and how many may begin anew apart, for RUN_SECONDS, after that."""
STACK = 64 << 20
"""Bytes of the EVM's thread: calls may nest a thousand deep."""
POLL_SECONDS = 0.25
"""Between two looks whether anybody uses it, and whether it has to stop."""

logger = logging.getLogger(__name__)
STRANGERS = HttpProcessingError, ConnectionError
logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], STRANGERS)))
"""Faults of our own; what is not HTTP, and who leaves before the end, must not fill the log."""


class ChainBusyError(ChainError):
    """Another process serves this directory."""


class RpcRequest(msgspec.Struct, frozen=True):
    """One call. A request without an id would have no answer, so it is refused."""

    jsonrpc: Annotated[str, Meta(pattern=r"^2\.0\Z")]
    id: Annotated[str, Meta(max_length=256)] | Annotated[int, Meta(ge=-(2**53), le=2**53)] | None
    method: Annotated[str, Meta(max_length=64)]
    params: Any = []


class ChainThread:
    """A thread with a connection of its own, so that one's work does not keep another waiting."""

    def __init__(self, store: Store, path: Path, chain_id: int, version: str, seconds: float) -> None:
        self.store = store
        self.methods = Methods(store, Evm(store, chain_id, path / FAUCET_KEY, seconds), chain_id, version)
        self.thread = ThreadPoolExecutor(1, "devchain")
        before = threading.stack_size(STACK)
        self.thread.submit(int).result()  # starts the thread, with the large stack
        threading.stack_size(before)


class RpcServer:
    """Answers for a chain, on one loopback port. stores: of its file, for what writes, what reads, and what is slow."""

    def __init__(self, path: Path, stores: Sequence[Store], chain_id: int) -> None:
        self._path, self._chain_id = path, chain_id
        self._version = f"codezero-devchain/py-evm/{secrets.token_hex(8)}"
        self._threads: list[ChainThread] = []
        for store, seconds in zip(stores, (RUN_SECONDS, QUICK_SECONDS, RUN_SECONDS), strict=True):
            store.head = stores[0].head  # of a new chain: begun by the first
            self._threads.append(ChainThread(store, path, chain_id, self._version, seconds))
        self._hosts: list[list[str]] = []
        self._large, self._slow = asyncio.Semaphore(LARGE_AT_ONCE), 0

    async def run(self, port: int, announce: Callable[[ChainEndpoint], None], stop: Stop, while_used: bool) -> None:
        """Until it has to stop, or nobody uses it. Raises ChainError and OSError."""
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/", self._answer)
        runner = web.AppRunner(
            app, access_log=None, logger=logger, auto_decompress=False, handle_signals=False, shutdown_timeout=5.0,
            keepalive_timeout=HEAD_SECONDS,
        )  # fmt: skip
        await runner.setup()
        with closing(Lock(self._path / USERS)) as users:
            try:
                bound = await self._listen(runner, port)
                url, version = f"http://{HOST}:{bound}", self._version
                endpoint = ChainEndpoint(url, self._chain_id, HOST, bound, os.getpid(), version, while_used)
                write_atomic(self._path / ENDPOINT, msgspec.json.encode(endpoint), private=True)
                announce(endpoint)
                while not (stop or (while_used and users.take())):  # and kept: who comes now waits for our end
                    await asyncio.sleep(POLL_SECONDS)
            finally:
                await runner.cleanup()
                for worker in self._threads:
                    worker.thread.shutdown(cancel_futures=True)

    async def _listen(self, runner: web.AppRunner, port: int) -> int:
        """0 is the last port, so that those who know its URL find it again, or any that is free. Raises ChainError."""
        last = ChainEndpoint.of(self._path)
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
            reason = "codezero: only application/json, not compressed, is served here\n"
            raise web.HTTPUnsupportedMediaType(text=reason)
        small = request.content_length is not None and request.content_length <= SMALL_BODY
        async with contextlib.nullcontext() if small else self._large:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await request.read()
            except TimeoutError:
                raise web.HTTPRequestTimeout(text="codezero: the request came too slowly\n") from None
            return web.Response(body=await self._answer_body(body), content_type="application/json")

    async def _answer_body(self, body: bytes) -> bytes:
        try:
            if body.count(b"[") + body.count(b"{") > MAX_NESTED:
                raise RecursionError("too many brackets")
            asked = msgspec.json.decode(body)
        except UNDECODABLE as error:
            return _error(None, RpcRefusal(PARSE_ERROR, f"not JSON: {error}"))
        if not isinstance(asked, list):
            return await self._answer_request(asked)
        batch = cast("list[Any]", asked)
        if not 0 < len(batch) <= MAX_BATCH:
            return _error(None, RpcRefusal(INVALID_REQUEST, f"a batch has 1 to {MAX_BATCH} requests"))
        answers: list[bytes] = []
        size = 0
        for request in batch:
            answers.append(await self._answer_request(request, full=size > MAX_ANSWER))
            size += len(answers[-1])
        return b"[" + b",".join(answers) + b"]"

    async def _answer_request(self, asked: object, full: bool = False) -> bytes:
        try:
            request = msgspec.convert(asked, RpcRequest)
        except msgspec.ValidationError as error:
            return _error(None, RpcRefusal(INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {error}"))
        try:
            if full:
                raise RpcRefusal(OVER_LIMIT, "the batch's answers are too large")
            return await self._run(request)
        except RpcRefusal as refusal:
            return _error(request.id, refusal)
        except (ChainError, sqlite3.Error) as error:
            return _error(request.id, RpcRefusal(INTERNAL, str(error)))
        except (EVMMissingData, VMError) as error:
            return _error(request.id, RpcRefusal(REFUSED, f"{type(error).__name__}: {error}"))

    async def _run(self, request: RpcRequest) -> bytes:
        """Raises RpcRefusal, ChainError, sqlite3.Error, VMError and EVMMissingData."""
        if request.method not in METHODS:
            hint = NO_FILTERS if "ilter" in request.method or "subscri" in request.method else ""
            raise RpcRefusal(NO_SUCH_METHOD, f"the method {request.method} does not exist/is not available{hint}")
        try:
            params = msgspec.structs.astuple(msgspec.convert(request.params, METHODS[request.method]))
        except msgspec.ValidationError as error:
            raise RpcRefusal(INVALID_PARAMS, f"invalid params of {request.method}: {error}") from error

        writer, reader, slow = self._threads
        if not params:  # waits for no thread
            return _answered(writer, request, params)
        if request.method in WRITING:
            return await self._run_in(writer, request, params)
        try:
            return await self._run_in(reader, request, params)
        except OutOfTime:
            if self._slow >= SLOW_AT_ONCE:
                raise RpcRefusal(OVER_LIMIT, "too many long calls are running; try again later") from None
        self._slow += 1
        try:
            return await self._run_in(slow, request, params)
        finally:
            self._slow -= 1

    async def _run_in(self, worker: ChainThread, request: RpcRequest, params: tuple[Any, ...]) -> bytes:
        worker.store.head = self._threads[0].store.head  # which the writing one alone moves on
        return await asyncio.get_running_loop().run_in_executor(worker.thread, _answered, worker, request, params)


def serve(
    path: Path,
    announce: Callable[[ChainEndpoint], None],
    *,
    port: int = 0,
    chain_id: int | None = None,
    while_used: bool = False,
) -> signal.Signals | None:
    """Serve a chain until a signal, or, with `while_used`, until nobody holds a handle; what ended it.

    path: its directory. port: 0 is the one it had last time, or any that is free. chain_id: for a new chain; None is a
    random one. `announce` is called once it answers. For the main thread. Raises ChainError and ConfigError.
    """
    for name, value, low, high in ("port", port, 0, 65535), ("chain_id", chain_id, 1, LARGEST_CHAIN_ID):
        if value is not None and not low <= value <= high:
            raise ConfigError(f"{name}={value} is out of bounds; it must be {low} to {high}")
    stop = Stop()
    with closing(Lock(path / SERVING)) as serving, stop.on_signals():
        if not serving.take():
            last = ChainEndpoint.of(path)
            where = f" at {last.url} (process {last.pid})" if last is not None else ""
            reason = f"the chain in {path} is already served{where}; use that one, or give another directory"
            raise ChainBusyError(reason)
        failed = translated(ChainError, f"the chain in {path / DATABASE} failed", sqlite3.Error, OSError, mend=LOCAL)
        with failed, contextlib.ExitStack() as stack:
            stores = [stack.enter_context(closing(Store(path / DATABASE))) for _ in range(3)]
            store = stores[0]
            new = chain_id or FIRST_CHAIN_ID + secrets.randbelow(CHAIN_IDS)
            store.row("INSERT OR IGNORE INTO meta VALUES('chain_id',?)", str(new))
            stored = int(store.row("SELECT value FROM meta WHERE key='chain_id'")[0])
            server = RpcServer(path, stores, check_id(path, stored, chain_id))
            asyncio.run(server.run(port, announce, stop, while_used))
    return stop.received


def main(path: str, port: str, chain_id: str) -> int:
    """The process that `DevChainHandle` starts; returns its exit code. chain_id: 0 is none given."""
    try:
        serve(Path(path), lambda _: None, port=int(port), chain_id=int(chain_id) or None, while_used=True)
    except ChainBusyError:
        return BUSY
    except CodeZeroError as error:
        print(f"codezero: {error}", file=sys.stderr)
        return 1
    return 0


def _answered(worker: ChainThread, request: RpcRequest, params: tuple[Any, ...]) -> bytes:
    result = getattr(worker.methods, request.method)(*params)
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result})


def _error(request_id: str | int | None, refusal: RpcRefusal) -> bytes:
    data = {} if refusal.data is None else {"data": refusal.data}
    error = {"code": refusal.code, "message": refusal.message, **data}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
