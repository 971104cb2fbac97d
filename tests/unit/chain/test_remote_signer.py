"""A signer that keeps the key elsewhere is asked briefly and believed only about what it was asked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import msgspec
import pytest
from eth_account import Account

from codezero.chain.errors import ChainUnreachableError
from codezero.chain.remote_signer import RemoteWallet
from codezero.chain.wallet import transaction_fields
from codezero.errors import ConfigError, WalletError

ACCOUNT = Account.from_key(b"\x11" * 32)
OTHER = Account.from_key(b"\x22" * 32)
ASKED = transaction_fields(31337, 7, "0x" + "33" * 20, b"\x01\x02", 21_000, 10**10, 10**9)
Reply = tuple[int, object]


def sign(fields: dict[str, object], **changes: object) -> Reply:
    signed = ACCOUNT.sign_transaction(fields | changes)
    return 200, {"raw": signed.raw_transaction.to_0x_hex(), "address": ACCOUNT.address}


@contextmanager
def signer(reply: Callable[[dict[str, object]], Reply], token: str = "opens-it") -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
            known = self.path == "/api/sign-transaction" and self.headers["Authorization"] == f"Bearer {token}"
            status, answer = reply(body["transaction"]) if known else (401, {})
            raw = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("opens-it\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("to", [ASKED["to"], None])
def test_it_signs_what_was_asked(token: Path, to: str | None) -> None:
    asked = transaction_fields(31337, 7, to, b"\x01", 21_000, 10**10, 10**9)
    with signer(sign) as url:
        wallet = RemoteWallet(url, token, ACCOUNT.address)
        assert Account.recover_transaction(wallet.sign_transaction(asked)) == wallet.address == ACCOUNT.address


@pytest.mark.parametrize(
    "reply",
    [
        lambda fields: sign(fields, to="0x" + "44" * 20),
        lambda fields: sign(fields, value=1),
        lambda fields: sign(fields, nonce=8),
        lambda fields: sign(fields, chainId=1),
        lambda fields: sign(fields, data="0x"),
        lambda fields: (
            200,
            {"raw": OTHER.sign_transaction(fields).raw_transaction.to_0x_hex(), "address": ACCOUNT.address},
        ),
        lambda fields: (200, {"raw": "0x02c0", "address": ACCOUNT.address}),
        lambda fields: (200, {"raw": "0x00", "address": ACCOUNT.address}),
    ],
)
def test_what_was_not_asked_for_is_not_sent(token: Path, reply: Callable[[dict[str, object]], Reply]) -> None:
    with signer(reply) as url:
        wallet = RemoteWallet(url, token, ACCOUNT.address)
        with pytest.raises(WalletError, match="something else than it was asked for"):
            wallet.sign_transaction(ASKED)


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        ((409, {}), WalletError, "nobody is logged in"),
        ((403, {}), WalletError, "log in again"),
        ((500, {}), ChainUnreachableError, "HTTP 500"),
        ((307, {}), ChainUnreachableError, "HTTP 307"),
        ((200, b"<html>"), WalletError, "no signer has"),
        ((200, {"raw": "0xzz", "address": ACCOUNT.address}), WalletError, "no signer has"),
        ((200, b" " * 1_000_000), ChainUnreachableError, "more than"),
        ((200, {"raw": "0x00", "address": OTHER.address}), WalletError, "log in with that account"),
    ],
)
def test_each_failure_is_named(token: Path, reply: Reply, error: type[Exception], words: str) -> None:
    with signer(lambda _fields: reply) as url:
        wallet = RemoteWallet(url, token, ACCOUNT.address)
        with pytest.raises(error, match=words):
            wallet.sign_transaction(ASKED)


def test_the_token_is_private_and_not_shown(token: Path) -> None:
    with signer(sign, token="another") as url:
        wallet = RemoteWallet(url, token, ACCOUNT.address)
        with pytest.raises(WalletError, match="does not accept the token") as caught:
            wallet.sign_transaction(ASKED)
        assert "opens-it" not in str(caught.value) + repr(wallet) + str(vars(wallet))
        token.chmod(0o644)
        with pytest.raises(WalletError, match="chmod 600"):
            wallet.sign_transaction(ASKED)


def test_it_asks_over_https_or_on_this_machine_only(token: Path) -> None:
    with pytest.raises(ConfigError, match="use https"):
        RemoteWallet("http://10.0.0.1:3000", token, ACCOUNT.address)
    with pytest.raises(ConfigError, match="is no address"):
        RemoteWallet("http://localhost:3000", token, "0x12")
