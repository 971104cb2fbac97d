"""What a foreign site, another name of this machine, or a careless client may send never reaches a handler."""

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from builders.login import Page, page
from fakes.authenticator import Authenticator

from codezero.login.guard import Access
from codezero.login.server import build_app, page_routes


async def hello(_request: web.Request) -> web.Response:
    return web.json_response("hello")


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    while True:
        await response.write(b": alive\n\n")
        await asyncio.sleep(0.05)


async def broken(_request: web.Request) -> web.Response:
    raise RuntimeError("a fault of our own")


ROUTES = {
    Access.READABLE: [web.get("/api/runs", hello), web.get("/api/events", stream), web.get("/api/broken", broken)],
    Access.PROBE: [web.get("/healthz", hello)],
    Access.BEARER: [web.post("/api/sign", hello)],
}


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Page]:
    with page(tmp_path, ROUTES) as one:
        yield one


def test_only_localhost_is_served(tab: Page) -> None:
    for host in ("evil.example", f"127.0.0.1:{tab.port}", f"[::1]:{tab.port}", "localhost", f"localhost:{tab.port}."):
        for path in ("/", "/api/session", "/api/none", "/api/runs"):
            refused = tab.get(path, Host=host)
            assert refused.status == 421 and f"http://localhost:{tab.port}" in refused.error


FURTHER = "https://x-3000.app.github.dev", "http://localhost:8080", "https://proxy.example:8443"


def test_named_origins_are_served_and_no_other(tmp_path: Path) -> None:
    with page(tmp_path, ROUTES, origins=FURTHER) as tab:
        local = f"localhost:{tab.port}"
        for origin in FURTHER:
            host = origin.partition("://")[2]
            assert tab.get("/", Host=host).status in (200, 503) and tab.get("/healthz", Host=host).status == 200
            assert tab.get("/api/runs", Host=host, Origin=origin).status == 200
            for asked in (host, local):  # a proxy may put there the host that it asks
                assert tab.post("/api/logout", {"lock": False}, Host=asked, Origin=origin).status == 200
            others = {*FURTHER, tab.origin, f"{origin}.", "null", "http://evil.example"} - {origin}
            others |= {origin.replace("https", "http") if origin.startswith("https") else "https" + origin[4:]}
            for other in others:
                refused = tab.post("/api/logout", {"lock": False}, Host=host, Origin=other)
                assert refused.status == 403 and refused.error.endswith("only"), (origin, other)
            cross = tab.post("/api/logout", {"lock": False}, Host=local, Origin=origin, Sec_Fetch_Site="same-site")
            assert cross.status == 403
        for host in ("evil.example", "proxy.example", "proxy.example:8444", "app.github.dev", "y.x-3000.app.github.dev",
                     "X-3000.app.github.dev", f"x-3000.app.github.dev:{tab.port}", "localhost:8081"):  # fmt: skip
            refused = tab.get("/api/session", Host=host)
            assert refused.status == 421 and all(origin in refused.error for origin in FURTHER)
            assert "evil" not in refused.error


@pytest.mark.parametrize("at", ["", *FURTHER])
def test_a_passkey_is_of_the_host_that_it_was_made_at(tmp_path: Path, at: str) -> None:
    key = Authenticator()
    key.relying_party = (at or "http://localhost").partition("://")[2].partition(":")[0]
    with page(tmp_path, ROUTES, origins=FURTHER) as tab:
        tab.at = at
        assert tab.claim_with(key).status == 200
        assert ("Secure" in tab.cookies[-1]) == at.startswith("https")
        assert tab.log_in_with(key).status == 200
        for other in ("", *FURTHER):
            body = tab.login_body(key, other or tab.origin)
            assert tab.post("/api/login/passkey/verify", body).status == (200 if other == at else 403)
        tab.at = FURTHER[2] if "proxy" not in at else ""
        refused = tab.post("/api/login/passkey/options", {})
        assert refused.status == 403 and key.relying_party in refused.error


def test_probes_are_answered_by_number_too(tab: Page) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert tab.get("/healthz", Host=f"{host}:{tab.port}").status == 200
    assert tab.get("/healthz", Host=f"evil.example:{tab.port}").status == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": None}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://localhost"},
        {"Origin": "http://localhost:1"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"}, {"Origin": None, "Authorization": "Bearer wrong"},
    ],
)  # fmt: skip
def test_a_change_is_asked_for_by_our_page_only(tab: Page, headers: dict[str, str | None]) -> None:
    refused = tab.post("/api/logout", {"lock": False}, **headers)
    assert refused.status == 403 and tab.origin in refused.error


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "POST"])
def test_other_methods_are_changes_too(tab: Page, method: str) -> None:
    assert tab.ask(method, "/api/session", {}, Origin="http://evil.example").status == 403
    assert tab.ask(method, "/api/session", {}).status == 405


def test_foreign_pages_read_no_data_and_may_link_here(tab: Page) -> None:
    assert tab.get("/api/runs", Sec_Fetch_Site="cross-site").status == 403
    assert tab.get("/api/runs", Origin="http://localhost:1").status == 403
    assert tab.get("/api/runs", Sec_Fetch_Site="none").status == 200
    assert tab.get("/", Sec_Fetch_Site="cross-site").status != 403


def test_a_program_with_the_token_needs_no_origin_and_may_have_none(tab: Page) -> None:
    bearer, body = f"Bearer {tab.token}", {"lock": False}
    assert tab.post("/api/logout", body, Origin=None, Sec_Fetch_Site=None, Authorization=bearer).status == 200
    evil = tab.post("/api/logout", {"lock": False}, Origin="http://evil.example", Authorization=bearer)
    assert evil.status == 403


def test_routes_of_programs_need_the_token_and_know_no_pages(tab: Page) -> None:
    bearer = f"Bearer {tab.token}"
    assert tab.post("/api/sign", {}, Origin=None, Sec_Fetch_Site=None, Authorization=bearer).status == 200
    for wrong in (None, "Bearer ", "Bearer wrong", f"Basic {tab.token}", tab.token, "Bearer \xff"):
        refused = tab.post("/api/sign", {}, Origin=None, Sec_Fetch_Site=None, Authorization=wrong)
        assert refused.status == 401 and "node.token" in refused.error
    assert tab.post("/api/sign", {}, Authorization=bearer).status == 403


def test_data_is_everybodys_until_somebody_owns_the_node(tab: Page) -> None:
    assert tab.get("/api/runs").status == 200
    tab.claim_with(Authenticator())
    assert tab.get("/api/runs").status == 200
    tab.cookie = ""
    refused = tab.get("/api/runs")
    assert refused.status == 401 and "log in" in refused.error
    assert tab.get("/api/runs", Authorization=f"Bearer {tab.token}").status == 200
    assert tab.get("/healthz").status == 200


def test_a_stream_ends_when_its_reader_is_logged_out(owned: Page) -> None:
    with socket.create_connection(("127.0.0.1", owned.port), timeout=120) as connection:
        head = f"GET /api/events HTTP/1.1\r\nHost: localhost:{owned.port}\r\nCookie: codezero_session={owned.cookie}"
        connection.sendall(f"{head}\r\n\r\n".encode())
        assert b"200 OK" in connection.recv(4096)
        owned.post("/api/logout", {"lock": True})
        while connection.recv(4096):
            pass


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Type": "text/plain"}, {"Content_Type": "application/x-www-form-urlencoded"}, {"Content_Type": None},
        {"Content_Type": "application/json5"}, {"Content_Encoding": "gzip"},
    ],
)  # fmt: skip
def test_only_plain_json_is_read(tab: Page, headers: dict[str, str | None]) -> None:
    assert tab.post("/api/logout", {"lock": False}, **headers).status == 415


def test_a_body_over_the_limit_is_refused_announced_or_not(tab: Page) -> None:
    long = json.dumps({"code": "x" * (65 << 10)}).encode()
    assert "65536 bytes" in tab.ask("POST", "/api/claim/passkey/options", raw=long).error
    connection = http.client.HTTPConnection("127.0.0.1", tab.port, timeout=120)
    headers = {"Host": f"localhost:{tab.port}", "Origin": tab.origin, "Content-Type": "application/json"}
    pieces = (b"[" * 4096 for _ in range(17))
    connection.request("POST", "/api/claim/passkey/options", pieces, headers, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"null", b"[]", b"{}", b"\xff", b'{"code":7}', b'{"code":"x","more":1}', b"[" * 9000,
     b'{"code":"\\ud800"}', b'{"code":"' + b"x" * 33 + b'"}'],
)  # fmt: skip
def test_a_body_of_another_form_is_refused_in_one_line(tab: Page, raw: bytes) -> None:
    refused = tab.ask("POST", "/api/claim/passkey/options", raw=raw)
    assert refused.status == 400 and "the request is" in refused.error


def test_every_answer_carries_the_headers(tab: Page) -> None:
    read = [tab.get(path) for path in ("/", "/api/session", "/api/none", "/healthz")]
    changed = [tab.post("/api/logout", {"lock": False}), tab.post("/api/logout", {}, Origin="http://evil.example")]
    for answer in (*read, *changed, tab.get("/", Host="evil.example")):
        headers = answer.headers
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Frame-Options"] == "DENY" and headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer" and headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and headers["Cache-Control"] == "no-store"
        assert "publickey-credentials-get=(self)" in headers["Permissions-Policy"]
        assert headers["Server"] is None and headers["Access-Control-Allow-Origin"] is None


def test_a_fault_of_our_own_tells_nothing(tab: Page, caplog: pytest.LogCaptureFixture) -> None:
    answer = tab.get("/api/broken")
    assert answer.status == 500 and b"fault" not in answer.raw and b"Traceback" not in answer.raw
    assert "a fault of our own" in caplog.text


def test_what_is_not_there_is_said_as_json(tab: Page) -> None:
    assert "nothing at this address" in tab.get("/api/none").error
    assert tab.get("/openapi.json").status == 404
    refused = tab.post("/api/session", {})
    assert refused.status == 405 and refused.headers["Allow"]


def test_what_is_not_http_fills_no_log(tab: Page, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", tab.port), timeout=120) as connection:
        connection.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        while connection.recv(4096):
            pass
    assert "nonsense" not in caplog.text and "Traceback" not in caplog.text


def test_a_path_has_one_access(tab: Page) -> None:
    with pytest.raises(ValueError, match="two kinds of access"):
        build_app(tab.login, {Access.OPEN: [web.get("/api/sign-transaction", hello)]})


def test_files_of_the_page(tmp_path: Path) -> None:
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "assets" / "index-B7k_x-9z.js").write_text("1")
    (static / "icon.svg").write_text("<svg/>")
    (static / ".env").write_text("secret")
    (static / "odd.exe").write_text("secret")
    (tmp_path / "out.txt").write_text("secret")
    (static / "link.txt").symlink_to(tmp_path / "out.txt")
    with page(tmp_path / "login", {Access.OPEN: page_routes_at(static)}) as tab:
        missing = tab.get("/at/")
        assert missing.status == 503 and b"scripts/build_page.sh" in missing.raw
        (static / "index.html").write_text("<!doctype html>")
        index = tab.get("/at/")
        assert index.raw == b"<!doctype html>" and index.headers["Content-Type"] == "text/html; charset=utf-8"
        assert index.headers["Cache-Control"] == "no-store"
        script = tab.get("/at/assets/index-B7k_x-9z.js")
        assert script.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert "immutable" in script.headers["Cache-Control"]
        assert tab.get("/at/icon.svg").headers["Content-Type"] == "image/svg+xml; charset=utf-8"
        assert tab.ask("HEAD", "/at/icon.svg").status == 200
        above = ("../out.txt", "%2e%2e/out.txt", "assets/..%2f..%2fout.txt", "link.txt")
        for path in (*above, ".env", "odd.exe", "assets", "assets/", "%00.txt", "x" * 300 + ".txt", "index.html/"):
            answer = tab.get(f"/at/{path}")
            assert answer.status == 404 and b"secret" not in answer.raw, path


def page_routes_at(static: Path) -> list[web.RouteDef]:
    return [web.get("/at" + route.path, route.handler) for route in page_routes(static)]
