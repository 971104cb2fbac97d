"""The built user interface, as plain files; or, when it is not built yet, a page that says how."""

import re
from pathlib import Path

from aiohttp import web

from codezero.login.refusal import Refusal

STATIC = Path(__file__).with_name("static")
MAX_FILE = 4 << 20
"""Bytes."""
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/vnd.microsoft.icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain",
}
TEXT = ("text/", "image/svg", "application/")
NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9._-]*/)*[A-Za-z0-9_][A-Za-z0-9._-]*")
HASHED = re.compile(r"assets/.+-[A-Za-z0-9_-]{8}\.[a-z0-9]+")
"""Such a file never changes: its name would."""
MISSING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>CodeZero</title></head><body>
<h1>The page is not built yet</h1>
<p>Run <code>scripts/build_page.sh</code> in the project's folder, then load this page again.</p>
</body></html>
"""


def page_routes(folder: Path = STATIC) -> list[web.RouteDef]:
    """Everything outside /api/ that no other route answers; to be added last."""

    async def page(request: web.Request) -> web.Response:
        return _file(folder, request.match_info["path"])

    return [web.get("/{path:(?!api/).*}", page)]


def _file(folder: Path, path: str) -> web.Response:
    """Raises Refusal. The page's own views are behind a `#`, which no server sees."""
    name = path or "index.html"
    kind = KINDS.get(Path(name).suffix)
    content = None if kind is None else _read(folder, name)
    if content is None and name == "index.html":
        return web.Response(status=503, text=MISSING, content_type="text/html")
    if content is None or kind is None:
        raise Refusal(404, "there is nothing at this address")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"} if HASHED.fullmatch(name) else {}
    charset = "utf-8" if kind.startswith(TEXT) else None
    return web.Response(body=content, content_type=kind, charset=charset, headers=headers)


def _read(folder: Path, name: str) -> bytes | None:
    """None: no such file, or not one of the page's."""
    if not NAME.fullmatch(name):
        return None
    try:
        found = (folder / name).resolve(strict=True)
        if not found.is_relative_to(folder.resolve()) or not found.is_file() or found.stat().st_size > MAX_FILE:
            return None
        return found.read_bytes()
    except OSError:
        return None
