"""One HTTP exchange with a server that is not trusted: bounded in time and in bytes, never sent elsewhere."""

import asyncio
import contextlib
import ipaddress
import threading
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

import aiohttp
import msgspec

from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ConfigError

MAX_ANSWER = 8 << 20
"""Bytes of one answer. The largest honest one is a page of events or a block of a busy chain."""
MAX_HEADER = 8190
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises over bytes of another form."""


class BoundedHttp:
    """Posts from any thread; one background thread does the waiting. `close` ends it.

    No redirects, no proxy or password from the environment, no compression.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._session: aiohttp.ClientSession | None = None

    def post(
        self,
        url: str,
        body: bytes,
        seconds: float,
        *,
        headers: Mapping[str, str] | None = None,
        limit: int = MAX_ANSWER,
    ) -> tuple[int, bytes]:
        """Status and body. Raises ChainUnreachableError when the whole exchange takes longer or the body is larger."""
        exchange = self._post(url, body, seconds, {"Content-Type": "application/json", **(headers or {})}, limit)
        future = asyncio.run_coroutine_threadsafe(exchange, self._running())
        try:
            return future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """May be called twice; `post` opens it again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="chain-http", daemon=True)
                self._thread.start()
            return self._loop

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(
        self, url: str, body: bytes, seconds: float, headers: Mapping[str, str], limit: int
    ) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_line_size=MAX_HEADER,
                max_field_size=MAX_HEADER,
            )
        timeout = aiohttp.ClientTimeout(total=max(seconds, 0.001))
        where = shown(url)
        try:
            async with self._session.post(
                url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                received = bytearray()
                async for chunk in response.content.iter_any():
                    received += chunk
                    if len(received) > limit:
                        raise ChainUnreachableError(f"{where} answered with more than {limit} bytes")
                return response.status, bytes(received)
        except TimeoutError as error:
            raise ChainUnreachableError(f"{where} did not answer in time") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ChainUnreachableError(f"{where} cannot be reached ({type(error).__name__})") from error
        except asyncio.CancelledError as error:
            raise ChainUnreachableError(f"{where}: the connection was closed here") from error


def check_url(url: str, name: str, *, plain_http: bool = False) -> str:
    """`url` if it may be asked; `name` is the setting that holds it. Raises ConfigError, without repeating the URL.

    Plain http goes to this machine only, unless `plain_http`: between machines anyone could read and change it.
    """
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        raise ConfigError(f"{name} holds no address; give one like http://127.0.0.1:8545") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits or not url.isprintable():
        raise ConfigError(f"{name} holds no http or https address; give one like http://127.0.0.1:8545")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{name} must hold no password; it would end up in logs")
    if parts.scheme == "http" and not plain_http and not _is_loopback(parts.hostname):
        raise ConfigError(f"{name}: {parts.hostname} is another machine; use https, or allow plain http to it")
    return url


def _is_loopback(host: str) -> bool:
    """This machine, by a name or number that no name server decides."""
    with contextlib.suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def shown(url: str) -> str:
    """The part of an address that logs may show: path and query can hold an API key."""
    parts: SplitResult = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
