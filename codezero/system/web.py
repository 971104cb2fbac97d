"""Shared by our HTTP servers: a bounded body of a known form, a rate limit, a refusal in one line."""

import asyncio
import hmac
import math
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from aiohttp import web

from codezero.errors import HttpRefusal
from codezero.system.files import UNDECODABLE

T = TypeVar("T")
HEAD_SECONDS = 30.0  # How long a connection may be without a whole request head: `keepalive_timeout` of every server
WORDS = {404: "there is nothing at this address", 405: "this address is not asked in this way"}


async def read_body(request: web.Request, of: type[T]) -> T:
    """Read at most the application's `client_max_size` bytes. Raises HttpRefusal: 400, 408 or 413."""
    try:
        async with asyncio.timeout(10.0):
            return msgspec.json.decode(await request.read(), type=of)
    except TimeoutError:
        raise HttpRefusal(408, "the request came too slowly") from None
    except web.HTTPRequestEntityTooLarge:
        raise HttpRefusal(413, f"a request has at most {request.client_max_size} bytes") from None
    except msgspec.ValidationError as error:  # names a field, and shows no value
        raise HttpRefusal(400, f"the request is refused: {error}") from None
    except UNDECODABLE:
        raise HttpRefusal(400, "the request is not JSON") from None


class RateLimit:
    """burst: requests at once. seconds: until one more is allowed. clock: in seconds; one set back only delays."""

    def __init__(self, burst: int, seconds: float, clock: Callable[[], float]) -> None:
        self._burst, self._seconds, self._clock = burst, seconds, clock
        self._left, self._filled = float(burst), clock()

    def take(self) -> None:
        """Raises HttpRefusal when none is left."""
        now = self._clock()
        gained = max(0.0, now - self._filled) / self._seconds
        self._left, self._filled = min(self._burst, self._left + gained), now
        if self._left < 1:
            wait = max(1, math.ceil((1 - self._left) * self._seconds))
            raise HttpRefusal(429, f"too many attempts; wait {wait} seconds", retry_after=wait)
        self._left -= 1


def check_bearer(request: web.Request, token: str) -> None:
    """Raise HTTPUnauthorized unless the request bears `token`; empty: none is needed."""
    header = request.headers.get("Authorization", "").encode(errors="surrogateescape")
    if token and not hmac.compare_digest(header, f"Bearer {token}".encode()):
        raise web.HTTPUnauthorized(text="the bearer token is missing or wrong")


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(body=msgspec.json.encode(value), status=status, headers=headers)


def refuse(failure: HttpRefusal | web.HTTPException) -> web.Response:
    if isinstance(failure, HttpRefusal):
        headers = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
        return error(failure.status, failure.text, **headers)
    allow = {"Allow": failure.headers["Allow"]} if "Allow" in failure.headers else {}
    return error(failure.status, WORDS.get(failure.status, failure.reason), **allow)


def error(status: int, text: str, **headers: str) -> web.Response:
    line = "".join(character if character.isprintable() else " " for character in text[:500])
    return answer({"error": line}, status, headers)
