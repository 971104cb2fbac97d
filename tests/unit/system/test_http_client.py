"""Each client of ours takes proxy and certificate authorities from the environment, and says why it failed."""

import contextlib
import datetime
import json
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from builders.servers import running
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from codezero.chain.bounded_http import post
from codezero.errors import CodeZeroError, ConfigError
from codezero.models.openai_client import EndpointClient, EndpointRequest
from codezero.rollout.client import RolloutServer, RolloutServers
from codezero.system.http_client import AUTHORITIES, answer_of, proxy_for, why
from codezero.weights.versions import VersionSource

HOST = "far.corp.example"


class Far(BaseHTTPRequestHandler):
    """A server that no name server knows; its proxy passes everything on to it."""

    def do_GET(self) -> None:
        data = json.dumps({"asked": self.command}).encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def do_CONNECT(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        with socket.create_connection(("127.0.0.1", self.server.behind)) as there:  # type: ignore[attr-defined]
            self.send_response(200)
            self.end_headers()
            pair = [self.connection, there]
            with contextlib.suppress(OSError):
                while True:
                    for ready in select.select(pair, [], [])[0]:
                        if not (data := ready.recv(1 << 16)):
                            return
                        pair[ready is self.connection].sendall(data)

    def log_message(self, format: str, *args: object) -> None: ...


class Corporation(NamedTuple):
    url: str
    proxy: str
    authority: Path
    asked: list[str]


def certificate(folder: Path) -> Path:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "corp")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(now - datetime.timedelta(1))
    builder = builder.not_valid_after(now + datetime.timedelta(9))
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    (folder / "authority.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    return folder / "authority.pem"


@pytest.fixture
def corporation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Corporation]:
    for name in (*AUTHORITIES, *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    authority, context = certificate(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority, tmp_path / "key.pem")
    far, proxy = (ThreadingHTTPServer(("127.0.0.1", 0), Far) for _ in range(2))
    far.socket = context.wrap_socket(far.socket, server_side=True, do_handshake_on_connect=False)
    proxy.behind, proxy.asked = far.server_port, list[str]()  # type: ignore[attr-defined]
    with running(far), running(proxy):
        yield Corporation(f"https://{HOST}", f"127.0.0.1:{proxy.server_port}", authority, proxy.asked)  # type: ignore[attr-defined]


def chain(url: str) -> bytes:
    return post(url, b"{}", 20)[1]


def weights(url: str) -> bytes:
    with VersionSource(url).file("manifest.json", 999) as path:
        return path.read_bytes()


def judge(url: str) -> bytes:
    request = EndpointRequest("/v1/completions", b"{}", bytes)
    with contextlib.closing(EndpointClient("judge", "evaluator", url, requests=1, seconds=20)) as client:
        answer = client.ask([request])[request]
    if isinstance(answer, CodeZeroError):
        raise answer
    return cast(bytes, answer)


def doctor(url: str) -> bytes:
    if (answer := answer_of(url, 20.0)) is None:
        raise CodeZeroError("SSL_CERT_FILE, without a proxy, nowhere.pem")
    return answer


CLIENTS: list[Callable[[str], bytes]] = [chain, weights, judge, doctor]


@pytest.mark.parametrize("ask", CLIENTS)
def test_what_is_elsewhere_is_asked_through_proxy_and_authority(
    ask: Callable[[str], bytes], corporation: Corporation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", corporation.proxy)
    with pytest.raises(CodeZeroError, match="SSL_CERT_FILE"):
        ask(corporation.url)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(corporation.authority))
    assert b"asked" in ask(corporation.url) and set(corporation.asked) == {f"{HOST}:443"}
    monkeypatch.setenv("NO_PROXY", "corp.example")
    with pytest.raises(CodeZeroError, match="without a proxy"):
        ask(corporation.url)
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(CodeZeroError, match=r"nowhere\.pem"):
        ask(corporation.url)


def test_rollout_servers_too(corporation: Corporation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", f"http://{corporation.proxy}")
    monkeypatch.setenv("SSL_CERT_FILE", str(corporation.authority))
    server = RolloutServer(corporation.url)
    client = RolloutServers(servers=[], vocabulary=9, stop_ids=[], max_requests=1, patience=1.0)
    with contextlib.closing(client):
        assert b"asked" in client._thread.run(client._post(server, "weight_info"))


def test_this_machine_is_asked_directly_and_a_reason_holds_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://user:secret@proxy.example:3128")
    assert {proxy_for(f"http://{host}:1/") for host in ("localhost", "127.0.0.7", "[::1]")} == {None}
    assert proxy_for("https://far.example/key") == "http://user:secret@proxy.example:3128"
    reason = why(ValueError("no http://user:secret@proxy.example:3128/key\n\x1b[2J"), "https://far.example/key")
    assert "secret" not in reason and reason.isprintable() and "through the proxy proxy.example:3128" in reason
    for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks5://127.0.0.1:9")
    assert proxy_for("https://far.example") is None and proxy_for("http://[") is None


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "empty.pem"))
    with pytest.raises(ConfigError, match=r"REQUESTS_CA_BUNDLE=.*empty\.pem has no certificates"):
        chain("https://localhost:1")
