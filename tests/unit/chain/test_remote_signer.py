"""A signer that keeps the key elsewhere is asked briefly and believed only about what it was asked."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.chain import Scripted, endpoint
from eth_account import Account

from codezero.chain.errors import ChainUnreachableError
from codezero.chain.wallet import RemoteWallet, transaction_fields
from codezero.errors import ConfigError, WalletError

ACCOUNT = Account.from_key(b"\x11" * 32)
OTHER = Account.from_key(b"\x22" * 32)
REQUESTED = transaction_fields(31337, 7, "0x" + "33" * 20, b"\x01\x02", 21_000, 10**10, 10**9)
CHANGED = {"to": "0x" + "44" * 20, "value": 1, "nonce": 8, "chainId": 1, "data": "0x"}
Reply = tuple[int, object]


def sign(fields: dict[str, object], account: Any = ACCOUNT, **changes: object) -> Reply:
    signed = account.sign_transaction(fields | changes)
    return 200, {"raw": signed.raw_transaction.to_0x_hex(), "address": ACCOUNT.address}


@contextmanager
def signer(reply: Callable[[dict[str, object]], Reply], token: str = "opens-it") -> Iterator[str]:
    def script(request: dict[str, dict[str, object]]) -> Callable[[Scripted], None]:
        def write(handler: Scripted) -> None:
            known = handler.path == "/api/sign-transaction" and handler.headers["Authorization"] == f"Bearer {token}"
            status, answer = reply(request["transaction"]) if known else (401, {})
            handler.reply(status, answer if isinstance(answer, bytes) else msgspec.json.encode(answer))

        return write

    with endpoint(script) as url:
        yield url


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("opens-it\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "reply",
    [
        *(partial(sign, **{field: other}) for field, other in {**CHANGED, "account": OTHER}.items()),
        *(lambda _, raw=raw: (200, {"raw": raw, "address": ACCOUNT.address}) for raw in ("0x02c0", "0x00")),
    ],
)
def test_what_was_not_asked_for_is_not_sent(token: Path, reply: Callable[[dict[str, object]], Reply]) -> None:
    with signer(reply) as url:
        wallet = RemoteWallet(url, token, ACCOUNT.address)
        with pytest.raises(WalletError, match="something else than was requested"):
            wallet.sign_transaction(REQUESTED)


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
            wallet.sign_transaction(REQUESTED)


def test_the_token_is_private_and_not_shown(token: Path) -> None:
    with signer(sign, token="another") as url:
        wallet = RemoteWallet(url, token, ACCOUNT.address)
        with pytest.raises(WalletError, match="does not accept the token") as caught:
            wallet.sign_transaction(REQUESTED)
        assert "opens-it" not in str(caught.value) + repr(wallet) + str(vars(wallet))
        token.chmod(0o644)
        with pytest.raises(WalletError, match="chmod 600"):
            wallet.sign_transaction(REQUESTED)


def test_it_asks_over_https_or_on_this_machine_only(token: Path) -> None:
    with pytest.raises(ConfigError, match="use https"):
        RemoteWallet("http://10.0.0.1:3000", token, ACCOUNT.address)
    with pytest.raises(ConfigError, match="is no address"):
        RemoteWallet("http://localhost:3000", token, "0x12")
