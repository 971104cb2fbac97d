"""What a request carries, bounded in bytes and seconds and checked against its type; and an answer as JSON."""

import asyncio
from typing import TypeVar

import msgspec
from aiohttp import web

from codezero.login.refusal import Refusal

T = TypeVar("T")

MAX_BODY = 64 << 10
"""Bytes. The largest honest one deploys a contract."""
BODY_SECONDS = 10.0


async def read_body(request: web.Request, of: type[T]) -> T:
    """Raises Refusal: 400, 408 or 413."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            raw = await _read(request)
    except TimeoutError:
        raise Refusal(408, "the request came too slowly") from None
    try:
        return msgspec.json.decode(raw, type=of)
    except msgspec.ValidationError as error:  # names a field, and shows no value
        raise Refusal(400, f"the request is refused: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Refusal(400, "the request is not JSON") from None


def answer(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def _read(request: web.Request) -> bytes:
    body = bytearray()
    if (request.content_length or 0) <= MAX_BODY:
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY:
                break
        else:
            return bytes(body)
    raise Refusal(413, f"a request has at most {MAX_BODY} bytes")
