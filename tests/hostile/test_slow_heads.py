"""A stranger who begins a request, or goes on with it for ever, is let go; one who waits for an answer is not.

Does not show: servers of vLLM, which answer on loopback alone, behind our door."""

import ast
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from builders.login import page

from codezero.login import server
from codezero.rollout import client as servers

PACKAGE = Path(server.__file__).parents[1]


async def slow(_: web.Request) -> web.Response:
    time.sleep(1.0)
    return web.Response(text="late")


@pytest.fixture(params=["page", "others"])
def port(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server whose limit is 0.5 s. The judge service, weights and rollout servers' door are served by `serving`."""
    for module in (server, servers):
        monkeypatch.setattr(module, "HEAD_SECONDS", 0.5)
    app = web.Application()
    app.router.add_get("/slow", slow)
    if request.param == "page":
        with page(tmp_path) as tab:
            yield tab.port
    else:
        with servers.serving(app, "127.0.0.1:0", "test", "") as port:
            yield port


@pytest.mark.slow
@pytest.mark.parametrize("whole_first", [False, True])
def test_a_head_that_never_ends_is_cut_off(port: int, whole_first: bool) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as stranger:
        if whole_first:
            stranger.sendall(f"GET /slow HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            assert stranger.recv(1 << 20).startswith(b"HTTP/1.1 ")
        stranger.sendall(b"GET / HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):
            while True:
                stranger.sendall(b"X-Slow: 1\r\n")  # a part of it again and again gains nothing
                time.sleep(0.05)


def test_every_server_has_the_limit() -> None:
    found = 0
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("web.AppRunner", "web.run_app"):
                found += 1
                bounds = {word.arg: ast.unparse(word.value) for word in node.keywords}
                assert bounds.get("keepalive_timeout") == "HEAD_SECONDS", path
    assert found == 4
