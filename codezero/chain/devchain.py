"""The embedded chain: a real EVM behind JSON-RPC on loopback, in a process of its own, its state in one directory.

`start` gives a node the chain of a directory: the process that serves it already, or a new one. Every handle holds a
shared lock on the directory's `users.lock`; a process that was started so ends when nobody holds one any more. The
operating system frees the locks of the dead, so that kill -9 leaves neither an orphan nor a lock behind. `run_devchain`
serves a chain by itself, until it is interrupted.

    chain.db        everything (SQLite)             serving.lock    held by the one process that serves
    faucet.key      the faucet's key, 0600          users.lock      held, shared, by those that use it
    endpoint.json   where it is served              starting.lock   held by the one caller that starts the process
    chain.log       what a process that `start` made had to say
"""

import argparse
import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from codezero.chain.devchain_files import (
    DATABASE,
    FAUCET_KEY,
    SERVING,
    USERS,
    ChainBusyError,
    ChainDirectory,
    Endpoint,
)
from codezero.chain.devchain_handle import BUSY, DevChainHandle, start
from codezero.errors import ChainError, CodeZeroError, ConfigError

if TYPE_CHECKING:
    from codezero.chain.devchain_server import Server
    from codezero.chain.devchain_store import Store

__all__ = ["DevChain", "DevChainHandle", "run_devchain", "start"]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
FIRST_CHAIN_ID, CHAIN_IDS = 1_000_000_000, 1_000_000_000
"""New chains get a random id of this range, so that what is signed for one means nothing on another."""
LARGEST_CHAIN_ID = (1 << 53) // 2 - 36
"""The largest that wallets written in JavaScript hold."""
LOOK_SECONDS = 0.25
"""Between two looks whether anybody uses it."""


class DevChain:
    """A chain that this process is to serve.

    path: its directory. port: 0 is the one it had last time, or any that is free. chain_id: for a new chain; None is a
    random one. Raises ConfigError.
    """

    def __init__(self, path: Path, *, host: str = "127.0.0.1", port: int = 0, chain_id: int | None = None) -> None:
        if host not in LOOPBACK:
            raise ConfigError(f"host={host}: the embedded chain is served on this machine only: {', '.join(LOOPBACK)}")
        if not 0 <= port <= 65535:
            raise ConfigError(f"port={port} is out of bounds; it must be 0 to 65535")
        if chain_id is not None and not 1 <= chain_id <= LARGEST_CHAIN_ID:
            raise ConfigError(f"chain_id={chain_id} is out of bounds; it must be 1 to {LARGEST_CHAIN_ID}")
        self._path, self._host, self._port, self._chain_id = path, host, port, chain_id

    def run(self, announce: Callable[[Endpoint], None], while_used: bool = False) -> signal.Signals | None:
        """Serve until SIGINT or SIGTERM, or, with `while_used`, until nobody holds a handle; what ended it.

        `announce` is told once it answers. For the main thread. Raises ChainError and ConfigError.
        """
        directory = ChainDirectory(self._path)
        serving = directory.lock(SERVING)
        try:
            if not serving.take():
                raise ChainBusyError(_who_serves(directory))
            from codezero.chain.devchain_store import Store

            store = Store(self._path / DATABASE)
            try:
                chain_id = self._settle_chain_id(store)
                return asyncio.run(self._serve(directory, store, chain_id, announce, while_used))
            finally:
                store.close()
        finally:
            serving.close()

    def _settle_chain_id(self, store: "Store") -> int:
        stored = store.meta("chain_id")
        if stored is None:
            chain_id = self._chain_id or FIRST_CHAIN_ID + secrets.randbelow(CHAIN_IDS)
            store.set_meta("chain_id", str(chain_id))
            return chain_id
        if self._chain_id not in (None, int(stored)):
            raise ConfigError(
                f"the chain in {self._path} has the id {stored}, not {self._chain_id}; "
                "leave the id out, or give another directory"
            )
        return int(stored)

    async def _serve(
        self,
        directory: ChainDirectory,
        store: "Store",
        chain_id: int,
        announce: Callable[[Endpoint], None],
        while_used: bool,
    ) -> signal.Signals | None:
        from codezero.chain.devchain_rpc import Node
        from codezero.chain.devchain_server import Server

        ended: asyncio.Future[signal.Signals | None] = asyncio.get_running_loop().create_future()
        for which in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(which, _settle, ended, which)
        version = f"codezero-devchain/py-evm/{secrets.token_hex(8)}"
        server = Server(Node(store, chain_id, version, self._path / FAUCET_KEY))
        users = directory.lock(USERS)
        try:
            port = await self._listen(server, directory)
            server.warm_up()
            name = f"[{self._host}]" if ":" in self._host else self._host
            endpoint = Endpoint(f"http://{name}:{port}", chain_id, self._host, port, os.getpid(), version, while_used)
            directory.write_endpoint(endpoint)
            announce(endpoint)
            while not ended.done():
                await asyncio.wait([ended], timeout=LOOK_SECONDS)
                if while_used and not ended.done() and users.take():  # and kept: who comes now waits for our end
                    ended.set_result(None)
            return ended.result()
        finally:
            await server.close()
            users.close()

    async def _listen(self, server: "Server", directory: ChainDirectory) -> int:
        """On the port asked for; otherwise on the last one, so that those who know its URL find it again."""
        last = directory.endpoint()
        if not self._port and last is not None:
            try:
                return await server.listen(self._host, last.port)
            except OSError:
                await server.forget()
        try:
            return await server.listen(self._host, self._port)
        except OSError as error:
            raise ChainError(
                f"cannot serve on {self._host}:{self._port}: {error.strerror}; give another port"
            ) from error


def run_devchain(
    path: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    chain_id: int | None = None,
    as_json: bool = False,
) -> signal.Signals | None:
    """Serve a chain and say so in one line; returns the signal that ended it. Raises ChainError and ConfigError."""

    def announce(endpoint: Endpoint) -> None:
        if as_json:
            told = {"url": endpoint.url, "chain_id": endpoint.chain_id, "data": str(path), "pid": endpoint.pid}
            print(msgspec.json.encode(told).decode(), flush=True)
        else:
            print(f"chain {endpoint.chain_id} at {endpoint.url}, kept in {path}; Ctrl-C ends it", flush=True)

    return DevChain(path, host=host, port=port, chain_id=chain_id).run(announce)


def main(arguments: Sequence[str]) -> int:
    """The process that `start` makes; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m codezero.chain.devchain")
    parser.add_argument("path", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--chain-id", type=int)
    options = parser.parse_args(arguments)
    try:
        DevChain(options.path, port=options.port, chain_id=options.chain_id).run(lambda _: None, while_used=True)
    except ChainBusyError:
        return BUSY
    except CodeZeroError as error:
        print(f"codezero: {error}", file=sys.stderr)
        return 1
    return 0


def _settle(ended: "asyncio.Future[signal.Signals | None]", which: signal.Signals) -> None:
    if not ended.done():
        ended.set_result(which)


def _who_serves(directory: ChainDirectory) -> str:
    endpoint = directory.endpoint()
    where = f" at {endpoint.url} (process {endpoint.pid})" if endpoint is not None else ""
    return f"the chain in {directory.path} is already served{where}; use that one, or give another directory"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
