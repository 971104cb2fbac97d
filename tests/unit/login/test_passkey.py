"""A passkey claims the node and opens its key, and nothing that is not that passkey does."""

import hashlib
from pathlib import Path

import cbor2
import pytest
from builders.login import Page, ThrowAway, page
from eth_account import Account
from fakes.authenticator import PRESENT, Authenticator, Json, client_data, decode, encode

from codezero.errors import WalletError


def test_claim_restart_logout_and_login_again_to_the_same_address(tmp_path: Path) -> None:
    key = Authenticator()
    with page(tmp_path) as tab:
        nothing = dict.fromkeys(("method", "address", "expires", "chain_id"))
        nothing |= dict.fromkeys(("claimed", "logged_in", "unlocked"), False)
        assert tab.state() | {"chain_id": None} == nothing | {"methods": ["passkey", "passphrase"]}
        claimed = tab.claim_with(key)
        assert claimed.status == 200, claimed.raw
        state, cookie, clock = claimed.json, tab.cookie, tab.clock
        assert state["logged_in"] and state["unlocked"] and state["method"] == "passkey"
        assert state["expires"] == clock.now + 30 * 86_400
        assert tab.state() == state
    with page(tmp_path, clock=clock, cookie=cookie) as tab:
        assert tab.codes == [""]
        assert tab.state() == state
        assert Account.from_key(tab.login.vault.key()).address == state["address"]
        left = tab.post("/api/logout", {"lock": True}).json
        assert (left["logged_in"], left["unlocked"], left["address"]) == (False, False, None)
    with page(tmp_path, clock=clock, cookie=cookie) as tab:
        assert not tab.state()["logged_in"]
        again = tab.log_in_with(key)
        assert again.status == 200, again.raw
        assert again.json["address"] == state["address"] and again.json["unlocked"]


def test_the_options_ask_for_a_verified_user_and_a_secret(tab: Page, key: Authenticator) -> None:
    _, new = tab.options("/api/claim/passkey/options", {"code": tab.codes[-1].replace("-", "")})
    assert new["rp"]["id"] == "localhost" and new["attestation"] == "none"
    assert new["authenticatorSelection"]["userVerification"] == "required"
    assert len(decode(new["extensions"]["prf"]["eval"]["first"])) == 32
    tab.claim_with(key)
    _, known = tab.options("/api/login/passkey/options", {})
    assert known["userVerification"] == "required" and known["rpId"] == "localhost"
    assert known["extensions"]["prf"] != new["extensions"]["prf"]


def test_a_wrong_code_claims_nothing_and_five_make_a_new_one(tab: Page) -> None:
    first = tab.codes[0]
    wrong = "0000-0000" if first != "0000-0000" else "1111-1111"
    for typed in (wrong, "", "-", "१२३४५६७८", wrong):
        refused = tab.post("/api/claim/passkey/options", {"code": typed})
        assert refused.status == 403 and "code" in refused.error
    assert len(tab.codes) == 2 and "new one" in refused.error
    assert tab.post("/api/claim/passkey/options", {"code": first}).status == 403
    assert tab.claim_with(Authenticator()).status == 200


def test_a_code_is_good_for_one_claim(tab: Page, tmp_path: Path) -> None:
    body = tab.claim_body(Authenticator())
    assert tab.claim_with(Authenticator()).status == 200
    late = tab.post("/api/claim/passkey/verify", body)
    assert late.status == 409 and "has an owner" in late.error
    assert tab.post("/api/claim/passkey/options", {"code": tab.codes[0]}).status == 409
    (tmp_path / "owner.json").unlink()
    assert tab.post("/api/claim/passkey/options", {"code": tab.codes[0]}).status == 403


def test_each_start_has_another_code(tmp_path: Path) -> None:
    with page(tmp_path) as tab:
        first = tab.codes[0]
    with page(tmp_path) as tab:
        assert tab.codes[0] != first
        assert tab.post("/api/claim/passkey/options", {"code": first}).status == 403


@pytest.mark.parametrize("ceremony", ["claim", "login"])
def test_the_user_must_be_verified(tab: Page, key: Authenticator, ceremony: str) -> None:
    if ceremony == "login":
        tab.claim_with(key)
    key.flags = PRESENT
    refused = tab.claim_with(key) if ceremony == "claim" else tab.log_in_with(key)
    assert refused.status == 403 and "not verified" in refused.error


def test_another_origin_signed_by_the_browser_is_refused(tab: Page, key: Authenticator) -> None:
    for origin in ("http://evil.example", "http://localhost:1", f"https://localhost:{tab.port}"):
        assert "origin" in tab.post("/api/claim/passkey/verify", tab.claim_body(key, origin)).error
    tab.claim_with(key)
    refused = tab.post("/api/login/passkey/verify", tab.login_body(key, "http://evil.example"))
    assert refused.status == 403 and "origin" in refused.error


def test_a_ticket_is_used_once_and_not_for_long(owned: Page, key: Authenticator) -> None:
    body = owned.login_body(key)
    assert owned.post("/api/login/passkey/verify", body).status == 200
    assert "used already" in owned.post("/api/login/passkey/verify", body).error
    body = owned.login_body(key)
    owned.clock.now += 300
    late = owned.post("/api/login/passkey/verify", body)
    assert late.status == 403 and "five minutes" in late.error


def test_a_ticket_of_another_ceremony_is_refused(tab: Page, key: Authenticator) -> None:
    ticket, options = tab.options("/api/claim/passkey/options", {"code": tab.codes[0]})
    tab.claim_with(key)
    credential, prf = key.get(options | {"allowCredentials": [{"id": encode(key.id)}]}, tab.origin)
    sent = {"ticket": ticket, "credential": credential, "prf": prf}
    assert tab.post("/api/login/passkey/verify", sent).status == 403


def test_a_count_that_does_not_grow_is_refused(owned: Page, key: Authenticator) -> None:
    assert owned.log_in_with(key).status == 200
    key.count -= 1
    assert "sign count" in owned.log_in_with(key).error
    assert owned.log_in_with(key).status == 200


def test_an_authenticator_without_a_secret_cannot_claim_until_it_gives_one(tab: Page, key: Authenticator) -> None:
    body = tab.claim_body(key)
    refused = tab.post("/api/claim/passkey/verify", body | {"prf": None})
    assert refused.status == 422 and "use a passphrase" in refused.error
    assert not tab.state()["claimed"]
    assert tab.post("/api/claim/passkey/verify", body).status == 200


def test_another_secret_opens_nothing(owned: Page, key: Authenticator, tmp_path: Path) -> None:
    owned.post("/api/logout", {"lock": True})
    before = (tmp_path / "owner.json").read_bytes()
    refused = owned.log_in_with(key, prf=encode(bytes(32)))
    assert refused.status == 403 and "does not open the key" in refused.error
    assert owned.log_in_with(key, prf=None).status == 422
    assert (tmp_path / "owner.json").read_bytes() == before and not owned.state()["unlocked"]
    assert owned.log_in_with(key).status == 200


def test_another_passkey_and_another_key_are_refused(tab: Page) -> None:
    key, other = Authenticator(), Authenticator()
    tab.claim_with(key)
    ticket, options = tab.options("/api/login/passkey/options", {})
    options["allowCredentials"][0]["id"] = encode(other.id)
    credential, prf = other.get(options, tab.origin)
    refused = tab.post("/api/login/passkey/verify", {"ticket": ticket, "credential": credential, "prf": prf})
    assert refused.status == 403 and "another passkey" in refused.error
    other.id, other.count = key.id, 9
    assert "signature" in tab.log_in_with(other).error


def test_an_attestation_is_not_looked_at(tab: Page, key: Authenticator) -> None:
    body = tab.claim_body(key)
    response = body["credential"]["response"]
    attestation = {"fmt": "tpm", "attStmt": {"x5c": [b"\xff" * 99], "ver": 2.0}}
    attestation = cbor2.loads(decode(response["attestationObject"])) | attestation
    response["attestationObject"] = encode(cbor2.dumps(attestation))
    assert tab.post("/api/claim/passkey/verify", body).status == 200


def test_a_public_key_that_is_no_point_of_the_curve_is_refused(tab: Page, key: Authenticator) -> None:
    ticket, options = tab.options("/api/claim/passkey/options", {"code": tab.codes[0]})
    cose = cbor2.dumps({1: 2, 3: -7, -1: 1, -2: bytes(32), -3: b"\x01" * 32})
    data = hashlib.sha256(b"localhost").digest() + b"\x45" + bytes(4) + bytes(16) + b"\x00\x10" + key.id + cose
    response = {
        "clientDataJSON": encode(client_data("webauthn.create", options["challenge"], tab.origin)),
        "attestationObject": encode(cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})),
    }
    credential: Json = {"id": encode(key.id), "rawId": encode(key.id), "type": "public-key", "response": response}
    sent = {"ticket": ticket, "credential": credential, "prf": encode(bytes(32))}
    refused = tab.post("/api/claim/passkey/verify", sent)
    assert refused.status == 403 and "malformed" in refused.error and not tab.state()["claimed"]


def test_the_adopted_key_is_on_the_disk_before_the_plain_passphrase_is_forgotten(tmp_path: Path) -> None:
    key, there = Authenticator(), list[bool]()

    class Broken(ThrowAway):
        def adopted(self) -> None:
            there.extend((tmp_path / "login" / name).exists() for name in ("owner.json", "unlocked.json"))
            raise WalletError("the disk is gone")

    broken = Broken(tmp_path / "wallet.json")
    with page(tmp_path / "login", accounts=broken) as tab:
        assert tab.state()["address"] == broken.address
        assert tab.claim_with(key).json["unlocked"]
        assert broken.passphrase.exists() and there == [True, True]
    mended = ThrowAway(tmp_path / "wallet.json")
    with page(tmp_path / "login", accounts=mended) as tab:
        assert tab.log_in_with(key).json["address"] == mended.address
        assert Account.from_key(tab.login.vault.key()).address == mended.address == broken.address
        assert not mended.passphrase.exists() and mended.path.exists()
