"""Nothing secret lies in a file in plain, goes into a log or an answer; and the process leaves no picture of itself."""

import base64
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
from builders.login import PASSPHRASE, Page
from fakes.authenticator import Authenticator, decode

from codezero.chain.wallet import transaction_fields
from codezero.login.page_process import PageProcess
from codezero.login.routes import TransactionFields
from codezero.settings import compose, quoted


def spellings(secret: bytes | str) -> set[bytes]:
    raw = secret.encode() if isinstance(secret, str) else secret
    encoded = {base64.b64encode(raw).rstrip(b"="), base64.urlsafe_b64encode(raw).rstrip(b"=")}
    return {raw, raw.hex().encode(), raw.hex().upper().encode(), *encoded}


def assert_nowhere(secrets: set[bytes | str], folder: Path, log: str, but: tuple[str, ...] = ()) -> None:
    for secret in secrets:
        for spelling in spellings(secret):
            assert spelling not in log.encode()
            for path in folder.rglob("*"):
                if path.is_file() and path.name not in but:
                    assert spelling not in path.read_bytes(), path.name


def test_a_passkeys_secrets_are_nowhere(
    tab: Page, key: Authenticator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tab.post("/api/claim/passkey/options", {"code": "1234-5678"})
    body = tab.claim_body(key)
    tab.post("/api/claim/passkey/verify", body)
    prf = body["prf"]
    secrets: set[bytes | str] = {tab.login.vault.key(), decode(prf), tab.cookie, tab.codes[0], body["ticket"]}
    tab.log_in_with(key)
    tab.log_in_with(key, prf=prf[::-1])
    assert tab.sign(transaction_fields(1, 0, None, b"", 1, 1, 1)).status == 200
    secrets |= {tab.cookie, tab.codes[0].replace("-", "")}
    assert_nowhere(secrets | {tab.token}, tmp_path, caplog.text, but=("node.token",))
    assert_nowhere({(tmp_path / "device.key").read_bytes()}, tmp_path, caplog.text, but=("device.key",))
    assert "claimed with a passkey" in caplog.text and "signed transaction" in caplog.text


def test_a_passphrase_is_nowhere(tab: Page, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    tab.post("/api/claim/passphrase", {"code": tab.codes[0], "passphrase": PASSPHRASE})
    secrets: set[bytes | str] = {tab.login.vault.key(), PASSPHRASE, tab.cookie}
    tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE + "?"})
    tab.ask("POST", "/api/login/passphrase", raw=f'{{"passphrase": "{PASSPHRASE}", "more": 1}}'.encode())
    assert_nowhere(secrets, tmp_path, caplog.text)
    assert "a login with a passphrase failed" in caplog.text


def test_no_answer_tells_the_key_or_repeats_a_passphrase(tab: Page) -> None:
    answers = [
        tab.post("/api/claim/passphrase", {"code": tab.codes[0], "passphrase": PASSPHRASE}),
        tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE * 100}),
        tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE + "?"}),
        tab.get("/api/session"),
    ]
    for secret in (tab.login.vault.key(), PASSPHRASE, tab.cookie):
        for spelling in spellings(secret):
            assert all(spelling not in answer.raw for answer in answers)


def test_the_key_is_in_no_repr(owned: Page) -> None:
    shown = f"{owned.login!r} {vars(owned.login)} {vars(owned.login.vault)} {TransactionFields}"
    assert all(spelling.decode("latin-1") not in shown for spelling in spellings(owned.login.vault.key()))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_process_dumps_no_core_and_cannot_be_looked_into() -> None:
    code = """
import ctypes, resource
from codezero.login.server import harden
harden()
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(0, 0) 0"


def test_what_a_setting_takes_from_the_environment_is_in_no_argv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "PlantedProviderKey0123456789")
    url = "https://rpc.example/${oc.env:PROVIDER_KEY}"
    words = [f"{key}={quoted(tmp_path / name)}" for key, name in (("run.directory", "runs"), ("run.logs", "logs"))]
    words += ["chain.kind=rpc", f"chain.rpc_urls=['{url}']", f"login.directory={quoted(tmp_path / 'login')}"]
    with PageProcess(compose(words), words) as served:
        while not (argv := Path(f"/proc/{served._process.pid}/cmdline").read_bytes()):
            time.sleep(0.01)  # until it has begun
    assert b"dashboard" in argv and b"PlantedProviderKey" not in argv
