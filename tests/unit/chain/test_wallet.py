"""The account's key: kept encrypted, never overwritten, never shown; and what signs says no other."""

import copy
import json
import logging
import os
import pickle
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from eth_account import Account
from hypothesis import given
from hypothesis import strategies as some

from codezero.chain.wallet import LIGHT_WORK, KeystoreWallet, read_key, read_passphrase, transaction_fields
from codezero.errors import WalletError

PASSPHRASE = "correct horse battery"
KEY = bytes.fromhex("4c0883a69102937d6231471b5dbb6204fe5129617082792ae468d01a3f362318")
ADDRESS = "0x2c7536E3605D9C16a7a3D7b1898e529396a65c23"
TRANSFER = transaction_fields(31337, 7, "0x" + "11" * 20, b"\x01\x02", 21_000, 10**10, 10**9)


def make(path: Path, key: bytes | None = KEY) -> KeystoreWallet:
    return KeystoreWallet.create(path, PASSPHRASE, key=key, work=LIGHT_WORK)


def private(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(0o600)
    return path


def test_an_imported_key_comes_back_with_its_address_in_other_wallets_too(tmp_path: Path) -> None:
    assert make(tmp_path / "key.json").address == ADDRESS
    assert KeystoreWallet.open(tmp_path / "key.json", PASSPHRASE).address == ADDRESS
    assert Account.decrypt(json.loads((tmp_path / "key.json").read_text()), PASSPHRASE) == KEY


def test_the_file_is_private_and_has_no_trace_of_the_key(tmp_path: Path) -> None:
    make(tmp_path / "key.json")
    assert stat.S_IMODE((tmp_path / "key.json").stat().st_mode) == 0o600
    assert KEY.hex() not in (tmp_path / "key.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["key.json"]


def test_an_existing_file_is_never_overwritten_and_a_dangling_link_not_followed(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text("another's")
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere")
    for name in ("key.json", "link.json"):
        with pytest.raises(WalletError, match="never overwritten"):
            make(tmp_path / name)
    assert (tmp_path / "key.json").read_text() == "another's" and not (tmp_path / "elsewhere").exists()


def test_a_wrong_passphrase_opens_nothing(tmp_path: Path) -> None:
    make(tmp_path / "key.json")
    with pytest.raises(WalletError, match="does not open with this passphrase"):
        KeystoreWallet.open(tmp_path / "key.json", "wrong")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    make(tmp_path / "key.json")
    (tmp_path / "key.json").chmod(mode)
    with pytest.raises(WalletError, match="chmod 600"):
        KeystoreWallet.open(tmp_path / "key.json", PASSPHRASE)


@pytest.mark.parametrize("parameters", [{"n": 1 << 40}, {"r": 10**6}, {"p": 10**6}, {"dklen": 1 << 30}])
def test_a_file_cannot_make_us_compute_for_ever(tmp_path: Path, parameters: dict[str, int]) -> None:
    make(tmp_path / "key.json")
    keystore = json.loads((tmp_path / "key.json").read_text())
    keystore["crypto"]["kdfparams"] |= parameters
    with pytest.raises(WalletError, match="no keystore"):
        KeystoreWallet.open(private(tmp_path / "key.json", json.dumps(keystore)), PASSPHRASE)


@given(some.binary(max_size=200))
def test_any_bytes_are_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = private(tmp_path_factory.getbasetemp() / "any.json", content)
    with pytest.raises(WalletError, match="no keystore"):
        KeystoreWallet.open(path, PASSPHRASE)


def test_a_fifo_does_not_hang_us_and_a_huge_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.json", 0o600)
    private(tmp_path / "huge.json", b" " * 100_000)
    for name, words in (("fifo.json", "not a regular file"), ("huge.json", "larger")):
        with pytest.raises(WalletError, match=words):
            KeystoreWallet.open(tmp_path / name, PASSPHRASE)


def test_what_is_signed_is_what_was_requested_and_an_address_that_is_none_is_one_line(tmp_path: Path) -> None:
    wallet = make(tmp_path / "key.json")
    raw = wallet.sign_transaction(TRANSFER)
    assert Account.recover_transaction(raw) == ADDRESS and raw[0] == 2
    with pytest.raises(WalletError, match="cannot be signed"):
        wallet.sign_transaction(transaction_fields(31337, 0, "0x12", b"", 21_000, 1, 1))


def test_neither_repr_nor_pickle_nor_copy_shows_the_key(tmp_path: Path) -> None:
    wallet = make(tmp_path / "key.json")
    assert repr(wallet) == str(wallet) == f"KeystoreWallet({ADDRESS})"
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(wallet)
    with pytest.raises(TypeError, match="pickled"):
        copy.deepcopy(wallet)
    assert not hasattr(wallet, "__dict__")


@pytest.mark.parametrize("text", ["0" * 64, "f" * 64])
def test_numbers_that_are_no_keys_are_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(WalletError, match="no private key") as caught:
        make(tmp_path / "key.json", read_key(private(tmp_path / "key", text)))
    assert text not in str(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize("text", [KEY.hex(), "0x" + KEY.hex().upper() + "\r\nrest"])
def test_a_key_is_read_from_a_private_file(tmp_path: Path, text: str) -> None:
    assert read_key(private(tmp_path / "key", text)) == KEY


@pytest.mark.parametrize("text", ["", "\n", "secret-that-is-no-key", KEY.hex() + "0", "é" * 64])
def test_a_file_without_a_key_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(WalletError) as caught:
        read_key(private(tmp_path / "key", text))
    assert not text.strip() or text not in str(caught.value)


def test_a_passphrase_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "passphrase", PASSPHRASE)
    assert read_passphrase(path) == PASSPHRASE
    path.chmod(0o644)
    with pytest.raises(WalletError, match="chmod 600"):
        read_passphrase(path)


def test_a_passphrase_leaves_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_PASSPHRASE", PASSPHRASE)
    assert read_passphrase(None, "MY_PASSPHRASE") == PASSPHRASE
    child = subprocess.run([sys.executable, "-c", "import os; print(os.environ)"], capture_output=True, text=True)
    assert PASSPHRASE not in child.stdout
    with pytest.raises(WalletError, match="MY_PASSPHRASE is empty or not set"):
        read_passphrase(None, "MY_PASSPHRASE")


def test_a_short_passphrase_is_refused_for_a_new_file(tmp_path: Path) -> None:
    with pytest.raises(WalletError, match="at least 8"):
        KeystoreWallet.create(tmp_path / "key.json", "short")


def test_nobody_is_asked_without_a_terminal() -> None:
    code = "from codezero.chain.wallet import *\ntry: read_passphrase(None)\nexcept WalletError as e: print(e)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "nobody is there" in done.stdout


def test_prompts_are_answered_twice_where_it_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["one passphrase", "another", KEY.hex()])
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", lambda _text: next(answers))
    with pytest.raises(WalletError, match="differ"):
        read_passphrase(None, confirm=True)
    assert read_key(None) == KEY


def test_processes_that_start_together_share_an_ephemeral_account(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        wallets = list(pool.map(lambda _: KeystoreWallet.ephemeral(tmp_path / "solo" / "key.json"), range(4)))
    assert len({wallet.address for wallet in wallets}) == 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "solo").iterdir()} == {0o600}


HUNTED = """
import logging, os, sys
from pathlib import Path
from types import SimpleNamespace
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
from codezero.chain.wallet import *
wallet = KeystoreWallet.open(Path(sys.argv[1]), read_passphrase(None, "MY_PASSPHRASE"))
raw = wallet.sign_transaction(transaction_fields(31337, 7, None, b"", 21_000, 10**10, 10**9))
logging.getLogger("codezero").info("%s %r %s %s", wallet, wallet, wallet.__slots__, raw)
print(dir(wallet), Path("/proc/self/cmdline").read_bytes(), dict(os.environ))
try: wallet.sign_transaction(transaction_fields(31337, 1, "0x12", b"", 1, 1, 1))
except Exception: logging.exception("failed")
"""


def test_the_key_is_nowhere_to_be_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    make(tmp_path / "key.json")
    command, environment = [sys.executable, "-c", HUNTED, str(tmp_path / "key.json")], {"MY_PASSPHRASE": PASSPHRASE}
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=True)
    output = done.stdout + done.stderr + caplog.text
    assert "KeystoreWallet(0x2c75" in output
    for secret in (KEY.hex(), KEY.hex().upper(), str(KEY), str(int.from_bytes(KEY)), PASSPHRASE):
        assert secret not in output
