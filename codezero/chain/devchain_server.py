"""The process that serves the embedded chain: JSON-RPC over HTTP on loopback, batches, the one thread of the chain.

A browser must not reach it: another Host is refused (DNS rebinding), so is any Origin, and so is what a page could send
without asking first (a content type other than JSON).
"""

import asyncio
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from eth.vm.interrupt import EVMMissingData
from msgspec import Meta

from codezero.chain import devchain_rpc as rpc
from codezero.chain.devchain import Evm
from codezero.chain.devchain_blocks import REFUSED, RpcRefusal
from codezero.chain.devchain_process import (
    BUSY,
    DATABASE,
    FAUCET_KEY,
    SERVING,
    USERS,
    ChainDirectory,
    ChainEndpoint,
    foreign_id,
)
from codezero.chain.devchain_rpc import METHODS, Methods
from codezero.chain.devchain_store import Store
from codezero.errors import ChainError, CodeZeroError, ConfigError

HOST = "127.0.0.1"
FIRST_CHAIN_ID, CHAIN_IDS = 1_000_000_000, 1_000_000_000
"""New chains get a random id of this range, so that what is signed for one means nothing on another."""
LARGEST_CHAIN_ID = (1 << 53) // 2 - 36
"""The largest that wallets written in JavaScript hold."""
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
POLL_SECONDS = 0.25
"""Between two looks whether anybody uses it."""

logger = logging.getLogger(__name__)
logger.addFilter(lambda record: not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)))
"""Faults of our own; what strangers send that is not HTTP must not fill the log."""


class ChainBusyError(ChainError):
    """Another process serves this directory."""


class RpcRequest(msgspec.Struct, frozen=True):
    """One call. A request without an id would have no answer, so it is refused."""

    jsonrpc: Annotated[str, Meta(pattern=r"^2\.0\Z")]
    id: Annotated[str, Meta(max_length=256)] | Annotated[int, Meta(ge=-(2**53), le=2**53)] | None
    method: Annotated[str, Meta(max_length=64)]
    params: msgspec.Raw = msgspec.Raw(b"[]")


class RpcServer:
    """Answers for a chain, on one loopback port."""

    def __init__(self, methods: Methods) -> None:
        self._methods = methods
        self._hosts: frozenset[str] = frozenset()
        self._slots = asyncio.Semaphore(REQUESTS_AT_ONCE)
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_post("/", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, logger=logger, auto_decompress=False, handle_signals=False, shutdown_timeout=5.0
        )
        before = threading.stack_size(STACK)
        self._thread = ThreadPoolExecutor(1, "devchain")
        self._thread.submit(int).result()  # starts the thread, with the large stack
        threading.stack_size(before)

    async def listen(self, *ports: int) -> int:
        """Begin to answer, on the first port that is free; 0 is any. Raises ChainError."""
        await self._runner.setup()
        for port in ports:
            try:
                await web.TCPSite(self._runner, HOST, port, backlog=256).start()
            except OSError as error:
                if port == ports[-1]:
                    reason = f"cannot serve on {HOST}:{port}: {error.strerror}; give another port"
                    raise ChainError(reason) from error
            else:
                break
        bound: int = self._runner.addresses[0][1]
        self._hosts = frozenset(f"{name}:{bound}" for name in (HOST, "localhost", "[::1]"))
        return bound

    async def close(self) -> None:
        """Let what runs come to its end."""
        await self._runner.cleanup()
        self._thread.shutdown(cancel_futures=True)

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.getall("Host", []) not in [[host] for host in self._hosts]:
            raise web.HTTPForbidden(text="codezero: this host is not served here\n")
        if "Origin" in request.headers:
            raise web.HTTPForbidden(text="codezero: web pages are not served here\n")
        if request.content_type != "application/json" or "Content-Encoding" in request.headers:
            reason = "codezero: only application/json, not compressed, is served here\n"
            raise web.HTTPUnsupportedMediaType(text=reason)
        async with self._slots:
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    body = await request.read()
            except TimeoutError:
                raise web.HTTPRequestTimeout(text="codezero: the request came too slowly\n") from None
            return web.Response(body=await self._answer_body(body), content_type="application/json")

    async def _answer_body(self, body: bytes) -> bytes:
        try:
            if not body.lstrip(b" \t\r\n").startswith(b"["):
                return await self._answer_request(msgspec.Raw(body))
            batch = msgspec.json.decode(body, type=list[msgspec.Raw])
        except (msgspec.DecodeError, RecursionError) as error:
            return _error(None, RpcRefusal(rpc.PARSE_ERROR, f"not JSON: {error}"))
        if not batch:
            return _error(None, RpcRefusal(rpc.INVALID_REQUEST, "the batch is empty"))
        if len(batch) > MAX_BATCH:
            return _error(None, RpcRefusal(rpc.INVALID_REQUEST, f"a batch has at most {MAX_BATCH} requests"))
        answers: list[bytes] = []
        size = 0
        for raw in batch:
            answers.append(await self._answer_request(raw, full=size > MAX_ANSWER))
            size += len(answers[-1])
        return b"[" + b",".join(answers) + b"]"

    async def _answer_request(self, raw: msgspec.Raw, full: bool = False) -> bytes:
        try:
            request = msgspec.json.decode(raw, type=RpcRequest)
        except msgspec.ValidationError as error:
            return _error(None, RpcRefusal(rpc.INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {error}"))
        except (msgspec.DecodeError, RecursionError) as error:
            return _error(None, RpcRefusal(rpc.PARSE_ERROR, f"not JSON: {error}"))
        try:
            if full:
                raise RpcRefusal(rpc.OVER_LIMIT, "the batch's answers are too large")
            return await self._run(request)
        except RpcRefusal as refusal:
            return _error(request.id, refusal)
        except ChainError as error:
            return _error(request.id, RpcRefusal(rpc.INTERNAL, str(error)))
        except EVMMissingData:
            return _error(
                request.id, RpcRefusal(REFUSED, "missing trie node: the state of this block is kept no longer")
            )

    async def _run(self, request: RpcRequest) -> bytes:
        """Raises RpcRefusal, ChainError and EVMMissingData."""
        if request.method not in METHODS:
            raise RpcRefusal(rpc.NO_SUCH_METHOD, f"the method {request.method} does not exist/is not available")
        try:
            params = msgspec.json.decode(request.params, type=METHODS[request.method])
        except (msgspec.DecodeError, RecursionError) as error:
            raise RpcRefusal(rpc.INVALID_PARAMS, f"invalid params of {request.method}: {error}") from error

        def run() -> bytes:
            result = getattr(self._methods, request.method)(*msgspec.structs.astuple(params))
            return msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result})

        if not params.__struct_fields__:  # does not wait for the thread that owns the store
            return run()
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


def serve(
    path: Path,
    announce: Callable[[ChainEndpoint], None],
    *,
    port: int = 0,
    chain_id: int | None = None,
    while_used: bool = False,
) -> signal.Signals | None:
    """Serve a chain until SIGINT or SIGTERM, or, with `while_used`, until nobody holds a handle; what ended it.

    path: its directory. port: 0 is the one it had last time, or any that is free. chain_id: for a new chain; None is a
    random one. `announce` is called once it answers. For the main thread. Raises ChainError and ConfigError.
    """
    if not 0 <= port <= 65535:
        raise ConfigError(f"port={port} is out of bounds; it must be 0 to 65535")
    if chain_id is not None and not 1 <= chain_id <= LARGEST_CHAIN_ID:
        raise ConfigError(f"chain_id={chain_id} is out of bounds; it must be 1 to {LARGEST_CHAIN_ID}")
    directory = ChainDirectory(path)
    serving = directory.lock(SERVING)
    try:
        if not serving.take():
            endpoint = directory.endpoint()
            where = f" at {endpoint.url} (process {endpoint.pid})" if endpoint is not None else ""
            reason = f"the chain in {path} is already served{where}; use that one, or give another directory"
            raise ChainBusyError(reason)
        store = Store(path / DATABASE)
        try:
            return asyncio.run(_serve(directory, store, _settled_id(path, store, chain_id), port, announce, while_used))
        finally:
            store.close()
    finally:
        serving.close()


def _settled_id(path: Path, store: Store, wanted: int | None) -> int:
    stored = store.meta("chain_id")
    if stored is None:
        chain_id = wanted or FIRST_CHAIN_ID + secrets.randbelow(CHAIN_IDS)
        store.set_meta("chain_id", str(chain_id))
        return chain_id
    if wanted is not None and wanted != int(stored):
        raise foreign_id(path, int(stored), wanted)
    return int(stored)


async def _serve(
    directory: ChainDirectory,
    store: Store,
    chain_id: int,
    port: int,
    announce: Callable[[ChainEndpoint], None],
    while_used: bool,
) -> signal.Signals | None:
    endings: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for which in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(which, endings.put_nowait, which)
    version = f"codezero-devchain/py-evm/{secrets.token_hex(8)}"
    evm = Evm(store, chain_id, directory.path / FAUCET_KEY)
    server = RpcServer(Methods(store, evm, chain_id, version))
    users, last = directory.lock(USERS), directory.endpoint()
    try:
        # without a port of its own the last one, so that those who know its URL find it again
        bound = await server.listen(*([last.port] if not port and last is not None else []), port)
        endpoint = ChainEndpoint(f"http://{HOST}:{bound}", chain_id, HOST, bound, os.getpid(), version, while_used)
        directory.write_endpoint(endpoint)
        announce(endpoint)
        while True:
            try:
                return await asyncio.wait_for(endings.get(), POLL_SECONDS)
            except TimeoutError:
                if while_used and users.take():  # and kept: who comes now waits for our end
                    return None
    finally:
        evm.stop()
        await server.close()
        users.close()


def run_devchain(path: Path, *, port: int = 0, as_json: bool = False) -> signal.Signals | None:
    """Serve a chain and print where; returns the signal that ended it. Raises ChainError and ConfigError."""

    def announce(endpoint: ChainEndpoint) -> None:
        if as_json:
            place = {"url": endpoint.url, "chain_id": endpoint.chain_id, "data": str(path), "pid": endpoint.pid}
            print(msgspec.json.encode(place).decode(), flush=True)
        else:
            print(f"chain {endpoint.chain_id} at {endpoint.url}, kept in {path}; Ctrl-C ends it", flush=True)

    return serve(path, announce, port=port)


def main(path: str, port: str, chain_id: str) -> int:
    """The process that `devchain_process.start` makes; returns its exit code. chain_id: 0 is none given."""
    try:
        serve(Path(path), lambda _: None, port=int(port), chain_id=int(chain_id) or None, while_used=True)
    except ChainBusyError:
        return BUSY
    except CodeZeroError as error:
        print(f"codezero: {error}", file=sys.stderr)
        return 1
    return 0


def _error(request_id: str | int | None, refusal: RpcRefusal) -> bytes:
    error: dict[str, Any] = {"code": refusal.code, "message": refusal.message}
    if refusal.data is not None:
        error["data"] = refusal.data
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "error": error})


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
