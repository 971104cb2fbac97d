"""Programs have transactions signed and never see the key: the chain's own client asks a real server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.login import Page, ThrowAway, page
from eth_account import Account
from fakes.authenticator import Authenticator

from codezero.chain.wallet import RemoteWallet, transaction_fields
from codezero.errors import WalletError
from codezero.login.login import log_out

ASKED = transaction_fields(31337, 7, "0x" + "aB" * 20, b"\x01\x02", 21_000, 10**10, 10**9)
FIELDS: dict[str, Any] = ASKED


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Page]:
    with page(tmp_path / "login", accounts=ThrowAway(tmp_path / "wallet.json")) as one:
        yield one


def remote(tab: Page, tmp_path: Path) -> RemoteWallet:
    address = ThrowAway(tmp_path / "wallet.json").address
    assert address is not None
    return RemoteWallet(f"http://localhost:{tab.port}", tmp_path / "login" / "node.token", address)


@pytest.mark.parametrize("to", [ASKED["to"], None])
def test_the_chains_client_signs_through_it(tab: Page, tmp_path: Path, to: str | None) -> None:
    wallet = remote(tab, tmp_path)
    tab.claim_with(Authenticator())
    asked = transaction_fields(31337, 7, to, b"\x60" * 20_000, 5_000_000, 10**10, 10**9)
    assert Account.recover_transaction(wallet.sign_transaction(asked)) == wallet.address


def test_it_signs_nothing_before_a_claim_and_after_a_logout(tab: Page, tmp_path: Path) -> None:
    wallet, key = remote(tab, tmp_path), Authenticator()
    with pytest.raises(WalletError, match="nobody is logged in"):
        wallet.sign_transaction(ASKED)
    tab.claim_with(key)
    wallet.sign_transaction(ASKED)
    log_out(tmp_path / "login")
    with pytest.raises(WalletError, match="nobody is logged in"):
        wallet.sign_transaction(ASKED)
    tab.log_in_with(key)
    wallet.sign_transaction(ASKED)
    (tmp_path / "login" / "node.token").write_text("another-token")
    with pytest.raises(WalletError, match="does not accept the token"):
        wallet.sign_transaction(ASKED)


def test_a_restart_goes_on_signing(tmp_path: Path) -> None:
    accounts = ThrowAway(tmp_path / "wallet.json")
    with page(tmp_path / "login", accounts=accounts) as tab:
        tab.claim_with(Authenticator())
    with page(tmp_path / "login", accounts=accounts) as tab:
        wallet = RemoteWallet(tab.origin, tmp_path / "login" / "node.token", accounts.address or "")
        assert Account.recover_transaction(wallet.sign_transaction(ASKED)) == accounts.address


@pytest.mark.parametrize(
    "change",
    [{"value": 1}, {"type": 0}, {"gas": -1}, {"nonce": 1 << 63}, {"nonce": 1.5}, {"to": "0x12"}, {"to": None},
     {"data": "0x1"}, {"data": "0x11\n"}, {"accessList": []}, {"chainId": "1"}],
)  # fmt: skip
def test_what_is_no_such_transaction_is_refused(owned: Page, change: dict[str, object]) -> None:
    refused = owned.sign(FIELDS | change)
    assert refused.status == 400 and refused.error


@pytest.mark.parametrize("field", sorted(FIELDS.keys() - {"to"}))
def test_every_field_is_needed(owned: Page, field: str) -> None:
    assert field in owned.sign({key: value for key, value in FIELDS.items() if key != field}).error


def test_a_session_alone_signs_nothing(owned: Page) -> None:
    assert owned.post("/api/sign-transaction", {"transaction": FIELDS}).status == 403
    refused = owned.post("/api/sign-transaction", {"transaction": FIELDS}, Origin=None, Sec_Fetch_Site=None)
    assert refused.status == 401
