"""A passphrase claims the node and opens its key; guessing it is slow."""

import fcntl
from pathlib import Path

import pytest
from builders.login import PASSPHRASE, Page
from fakes.authenticator import Authenticator

from codezero.errors import LoginError
from codezero.login import vault
from codezero.login.vault import LOCK, Folder


def claim(tab: Page, passphrase: str = PASSPHRASE) -> str:
    answer = tab.post("/api/claim/passphrase", {"code": tab.codes[-1], "passphrase": passphrase})
    assert answer.status == 200, answer.raw
    return answer.json["address"]


def test_claim_lock_and_login_again_to_the_same_address(tab: Page) -> None:
    address = claim(tab)
    tab.post("/api/logout", {"lock": True})
    assert tab.state()["methods"] == ["passphrase"] and not tab.state()["unlocked"]
    wrong = tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE + "!"})
    assert wrong.status == 403 and "not the passphrase" in wrong.error
    again = tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE})
    assert again.json["address"] == address and again.json["unlocked"]


def test_an_accent_opens_the_key_however_the_keyboard_writes_it(tab: Page) -> None:
    claim(tab, "caf\u00e9 caf\u00e9 caf\u00e9")
    assert tab.post("/api/login/passphrase", {"passphrase": "cafe\u0301 cafe\u0301 cafe\u0301"}).status == 200


@pytest.mark.parametrize("passphrase", ["", "123456789", "x" * 1025, None, 7])
def test_a_passphrase_out_of_bounds_claims_nothing(tab: Page, passphrase: object) -> None:
    refused = tab.post("/api/claim/passphrase", {"code": tab.codes[0], "passphrase": passphrase})
    assert refused.status == 400 and "passphrase" in refused.error
    assert str(passphrase) not in refused.error or passphrase in ("", None, 7)


def test_guesses_are_few(tab: Page) -> None:
    claim(tab)
    tab.clock.step = 0.0
    tries = [tab.post("/api/login/passphrase", {}) for _ in range(7)]
    assert [one.status for one in tries] == [400] * 5 + [429] * 2
    assert tries[-1].headers["Retry-After"] == "30" and "wait 30 seconds" in tries[-1].error
    tab.clock.now += 29
    assert tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE}).status == 429
    tab.clock.now += 1
    assert tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE}).status == 200


def test_guesses_of_the_code_are_few(tab: Page) -> None:
    tab.clock.step = 0.0
    statuses = [tab.post("/api/claim/passkey/options", {"code": "x"}).status for _ in range(11)]
    assert statuses == [403] * 10 + [429]


def test_who_claimed_otherwise_is_told_so(tab: Page) -> None:
    assert "nobody owns" in tab.post("/api/login/passphrase", {"passphrase": "x"}).error
    tab.claim_with(Authenticator())
    refused = tab.post("/api/login/passphrase", {"passphrase": PASSPHRASE})
    assert refused.status == 409 and "claimed with a passkey" in refused.error


def test_a_lock_that_another_process_keeps_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "LOCK_SECONDS", 0.05)
    folder = Folder(tmp_path)
    with (tmp_path / LOCK).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(LoginError, match=r"another process holds .*login\.lock"), folder.locked():
            raise AssertionError("it was not alone")
    with folder.locked():
        assert (tmp_path / LOCK).exists()
