"""A wallet extension signs in by EIP-4361, and its second signature opens the key."""

from pathlib import Path
from typing import Any

import pytest
from builders_login import Answer, Page, page
from eth_account import Account
from eth_account.messages import encode_defunct

OWNER = Account.from_key(b"\x11" * 32)
OTHER = Account.from_key(b"\x22" * 32)
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


def sign(text: str, account: Any = OWNER) -> str:
    """What `personal_sign` gives."""
    return account.sign_message(encode_defunct(text=text)).signature.to_0x_hex()


def another(signature: str) -> str:
    """The other valid signature of the same message by the same key."""
    r, s, v = int(signature[2:66], 16), int(signature[66:130], 16), int(signature[130:], 16)
    return f"0x{r:064x}{N - s:064x}{55 - v:02x}"


def ask_claim(tab: Page) -> dict[str, str]:
    answer = tab.post("/api/claim/wallet/options", {"code": tab.codes[-1], "address": OWNER.address.lower()})
    assert answer.status == 200, answer.raw
    return answer.json


def claim(tab: Page) -> Answer:
    asked = ask_claim(tab)
    unlock = sign(asked["unlock"])
    sent = {"ticket": asked["ticket"], "signature": sign(asked["message"]), "unlock": [unlock, unlock]}
    return tab.post("/api/claim/wallet/verify", sent)


def log_in(tab: Page, account: Any = OWNER) -> Answer:
    asked = tab.post("/api/login/wallet/options", {}).json
    assert asked["address"] == OWNER.address
    sent = {"ticket": asked["ticket"], "signature": sign(asked["message"], account), "unlock": sign(asked["unlock"])}
    return tab.post("/api/login/wallet/verify", sent)


def test_claim_lock_restart_and_login_again_to_the_same_address(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        claimed = claim(tab)
        assert claimed.status == 200, claimed.raw
        assert claimed.json["address"] not in (OWNER.address, None)
        tab.post("/api/logout", {"lock": True})
    with page(tmp_path) as tab:
        assert log_in(tab).json["address"] == claimed.json["address"]


def test_the_message_is_of_eip_4361(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        lines = ask_claim(tab)["message"].split("\n")
        assert lines[0] == f"localhost:{tab.port} wants you to sign in with your Ethereum account:"
        assert lines[1] == OWNER.address and lines[2] == lines[4] == ""
        names = [line.partition(": ")[0] for line in lines[5:]]
        assert names == ["URI", "Version", "Chain ID", "Nonce", "Issued At", "Expiration Time"]
        assert lines[5].endswith(tab.origin) and lines[7] == "Chain ID: 31337"
        assert ask_claim(tab)["message"] != ask_claim(tab)["message"]


def test_a_wallet_that_signs_differently_each_time_cannot_claim(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        asked = ask_claim(tab)
        unlock = sign(asked["unlock"])
        sent = {"ticket": asked["ticket"], "signature": sign(asked["message"]), "unlock": [unlock, another(unlock)]}
        refused = tab.post("/api/claim/wallet/verify", sent)
        assert refused.status == 422 and "differently" in refused.error and not tab.state()["claimed"]


@pytest.mark.parametrize("wrong", ["message", "unlock"])
def test_another_wallet_cannot_claim(tmp_path: Path, wrong: str) -> None:
    with page(tmp_path) as tab:
        asked = ask_claim(tab)
        by = {"message": OWNER, "unlock": OWNER} | {wrong: OTHER}
        unlock = sign(asked["unlock"], by["unlock"])
        signature = sign(asked["message"], by["message"])
        sent = {"ticket": asked["ticket"], "signature": signature, "unlock": [unlock, unlock]}
        refused = tab.post("/api/claim/wallet/verify", sent)
        assert refused.status == 403 and OWNER.address in refused.error


def test_another_wallet_cannot_log_in_and_a_ticket_is_used_once(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        claim(tab)
        assert log_in(tab, OTHER).status == 403
        asked = tab.post("/api/login/wallet/options", {}).json
        sent = {"ticket": asked["ticket"], "signature": sign(asked["message"]), "unlock": sign(asked["unlock"], OTHER)}
        assert OWNER.address in tab.post("/api/login/wallet/verify", sent).error
        asked = tab.post("/api/login/wallet/options", {}).json
        sent = {"ticket": asked["ticket"], "signature": sign(asked["message"]), "unlock": sign(asked["unlock"])}
        assert tab.post("/api/login/wallet/verify", sent).status == 200
        assert tab.post("/api/login/wallet/verify", sent).status == 403


def test_another_signature_of_the_right_wallet_opens_nothing(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        claim(tab)
        asked = tab.post("/api/login/wallet/options", {}).json
        signature, unlock = sign(asked["message"]), another(sign(asked["unlock"]))
        sent = {"ticket": asked["ticket"], "signature": signature, "unlock": unlock}
        refused = tab.post("/api/login/wallet/verify", sent)
        assert refused.status == 403 and "does not open the key" in refused.error


def test_both_ways_to_write_the_last_byte_are_read(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        claim(tab)
        asked = tab.post("/api/login/wallet/options", {}).json

        def low(signature: str) -> str:
            return signature[:-2] + f"{int(signature[-2:], 16) - 27:02x}"

        signature, unlock = low(sign(asked["message"])), low(sign(asked["unlock"]))
        sent = {"ticket": asked["ticket"], "signature": signature, "unlock": unlock}
        assert tab.post("/api/login/wallet/verify", sent).status == 200


@pytest.mark.parametrize("signature", ["0x" + "00" * 65, "0x" + "ff" * 65])
def test_bytes_that_are_no_signature_are_refused(tmp_path: Path, signature: str) -> None:
    with page(tmp_path) as tab:
        asked = ask_claim(tab)
        sent = {"ticket": asked["ticket"], "signature": signature, "unlock": [signature, signature]}
        assert tab.post("/api/claim/wallet/verify", sent).status == 403
