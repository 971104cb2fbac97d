"""One HTTP exchange with a server that is not trusted: bounded in time and in bytes, never sent elsewhere."""

import atexit
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from codezero.chain.errors import ChainUnreachableError
from codezero.system.http_client import LoopThread, proxy_for, trusted, why

MAX_ANSWER = 8 << 20  # bytes; the largest honest answer is a page of events


@cache
def _client() -> tuple[LoopThread, aiohttp.ClientSession]:
    """Without passwords of the environment, cookies and compression."""
    headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
    sizes: Any = {"max_line_size": 8190, "max_field_size": 8190}

    async def start() -> aiohttp.ClientSession:
        jar = aiohttp.DummyCookieJar()
        return aiohttp.ClientSession(headers=headers, cookie_jar=jar, auto_decompress=False, **sizes)

    thread = LoopThread("chain-http")
    session = thread.run(start())
    atexit.register(lambda: thread.run(session.close()))
    return thread, session


def post(
    url: str, body: bytes, seconds: float, headers: Mapping[str, str] | None = None, limit: int = MAX_ANSWER
) -> tuple[int, bytes]:
    """Status and body, from any thread. No redirects. Raises ChainUnreachableError when the whole exchange takes longer
    than `seconds` or the body is above `limit` bytes."""
    thread, session = _client()
    where = shown(url)
    way: Any = {"proxy": proxy_for(url), "ssl": trusted(), "headers": headers, "allow_redirects": False}

    async def exchange() -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=max(seconds, 0.001))
        received = bytearray()
        async with session.post(url, data=body, timeout=timeout, **way) as response:
            async for chunk in response.content.iter_any():
                received += chunk
                if len(received) > limit:
                    raise ChainUnreachableError(f"{where} answered with more than {limit} bytes")
            return response.status, bytes(received)

    try:
        return thread.run(exchange())
    except TimeoutError as error:
        raise ChainUnreachableError(f"{where} did not answer in time") from error
    except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:  # RuntimeError: this process ends
        raise ChainUnreachableError(f"{where} cannot be reached: {why(error, url)}") from error


def shown(url: str) -> str:
    """The part of an address that logs may show: path and query can hold an API key, and a multiaddress has neither."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme else url
