"""Versions from a folder of this machine or over HTTP, and the routes that serve such a folder."""

import re
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from aiohttp import web

from codezero.errors import WeightsError, translated
from codezero.system.http_client import proxy_for, trusted, why
from codezero.system.web import check_bearer
from codezero.weights import MANIFEST
from codezero.weights.versions import VersionSource

FIRST_SECONDS, LEAST_RATE = 10.0, 1 << 20
"""A file may take so long, and a second more for every so many bytes."""
_FILE = re.compile(r"[0-9a-f]{64}\.(?:delta|safetensors)|" + re.escape(MANIFEST))


class FolderSource:
    """A folder that a `Publisher` writes, on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def file(self, name: str, most: int) -> Generator[Path]:
        path = self._folder / name
        with translated(WeightsError, f"{self._folder} is no folder of versions, or lacks {name}", OSError):
            size = path.stat().st_size
        if size > most:
            raise WeightsError(f"{path} is longer than {most} bytes")
        yield path


class HttpSource:
    """What `routes` serve at an address. token: sent to that server alone; redirects are not followed."""

    def __init__(self, url: str, token: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})

    @contextmanager
    def file(self, name: str, most: int) -> Generator[Path]:
        with tempfile.NamedTemporaryFile() as file:
            deadline = time.monotonic() + FIRST_SECONDS + most / LEAST_RATE
            way: Any = {"proxy": proxy_for(self._url), "verify": trusted(), "trust_env": False}
            try:
                with (
                    httpx2.Client(headers=self._headers, timeout=FIRST_SECONDS, **way) as client,
                    client.stream("GET", f"{self._url}/{name}") as response,
                ):
                    if response.status_code != 200:
                        raise WeightsError(f"{self._url} answers {response.status_code} for {name}")
                    for piece in response.iter_raw():
                        file.write(piece)
                        if file.tell() > most or time.monotonic() > deadline:
                            raise WeightsError(f"{self._url} sends {name} too slowly, or more than was published")
                file.flush()
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                raise WeightsError(f"{self._url} cannot be read: {why(error, self._url)}") from error
            yield Path(file.name)


def open_source(where: str, token: str) -> VersionSource:
    """An http(s) address, or a folder."""
    return HttpSource(where, token) if where.startswith(("http://", "https://")) else FolderSource(Path(where))


def routes(folder: Path, token: str) -> list[web.RouteDef]:
    """GET of the manifest and of files named by digest, nothing else of the folder; in ranges too.

    token: what a request has to bear; empty: whoever reaches the port may read, so that has to be a loopback address.
    """

    async def serve(request: web.Request) -> web.StreamResponse:
        check_bearer(request, token)
        name = request.match_info["name"]  # decoded, so there may be any character in it
        path = folder / name
        if not _FILE.fullmatch(name) or path.is_symlink() or not path.is_file():
            raise web.HTTPNotFound(text="no such version")
        return web.FileResponse(path)

    return [web.get("/{name}", serve)]
