"""The invitation: what the founder signed is what a joiner reads, and nothing else is believed."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.chain.invitation import (
    MAX_FILE,
    ChainPart,
    Invitation,
    JudgePart,
    NetworkPart,
    check_signature,
    read_invitation,
    signed,
    write_invitation,
)
from codezero.chain.wallet import KeystoreWallet
from codezero.errors import ConfigError, InviteError

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


@pytest.fixture(scope="module")
def founder(tmp_path_factory: pytest.TempPathFactory) -> KeystoreWallet:
    return KeystoreWallet.ephemeral(tmp_path_factory.mktemp("founder") / "wallet.json")


@pytest.fixture
def invitation(founder: KeystoreWallet) -> Invitation:
    bare = Invitation(
        version=1,
        founder=founder.address,
        chain=ChainPart(31337, ["http://127.0.0.1:8545"], "0x" + 40 * "a", 60.0),
        network=NetworkPart("codezero-test", 1, [f"/ip4/203.0.113.5/tcp/38331/p2p/{PEER}"]),
        judge=JudgePart("nano", 64 * "0"),
    )
    return signed(bare, founder.sign_message)


def test_what_was_signed_is_what_is_read(tmp_path: Path, invitation: Invitation) -> None:
    write_invitation(tmp_path / "swarm.toml", invitation)
    assert read_invitation(tmp_path / "swarm.toml") == invitation


def test_an_invitation_is_never_overwritten(tmp_path: Path, invitation: Invitation) -> None:
    write_invitation(tmp_path / "swarm.toml", invitation)
    with pytest.raises(ConfigError, match="File exists"):
        write_invitation(tmp_path / "swarm.toml", invitation)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("codezero-test", "codezero-evil"),
        ("203.0.113.5", "203.0.113.6"),
        ("127.0.0.1:8545", "127.0.0.1:8546"),
        (40 * "a", 40 * "b"),
        ('"nano"', '"other"'),
        ("= 60.0", "= 61.0"),
    ],
)
def test_any_field_that_is_changed_is_noticed(tmp_path: Path, invitation: Invitation, before: str, after: str) -> None:
    path = tmp_path / "swarm.toml"
    write_invitation(path, invitation)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(InviteError, match="ask the founder"):
        read_invitation(path)


def test_another_s_signature_is_refused(invitation: Invitation, tmp_path: Path) -> None:
    mallory = KeystoreWallet.ephemeral(tmp_path / "mallory.json")
    with pytest.raises(InviteError, match="another account"):
        check_signature(signed(invitation, mallory.sign_message))


@pytest.mark.parametrize("signature", ["", "0x" + 130 * "0", "0x" + 130 * "f"])
def test_a_signature_that_is_none_is_refused(invitation: Invitation, signature: str) -> None:
    with pytest.raises(InviteError):
        check_signature(msgspec.structs.replace(invitation, signature=signature))


@pytest.mark.parametrize(
    ("pattern", "broken"),
    [
        (r"version = 1", "version = 2"),
        (r"protocol = 1", "protocol = -1"),
        (r"http://127.0.0.1:8545", "file:///etc/passwd"),
        (r"/p2p/Qm\w+", "/p2p/../../x"),
        (r'name = "codezero-test"', 'name = "a/b"'),
        (r"round_seconds = 60.0", "round_seconds = 0.0"),
        (r"\[judge\]", "[judge]\nextra = 1"),
        (r"round_seconds = 60.0", "round_seconds = 60.0\nblock = -1"),
        (r"round_seconds = 60.0", "round_seconds = 60.0\nblock = '${oc.env:HOME}'"),
    ],
)
def test_fields_out_of_bounds_are_named(tmp_path: Path, invitation: Invitation, pattern: str, broken: str) -> None:
    path = tmp_path / "swarm.toml"
    write_invitation(path, invitation)
    text = re.sub(pattern, lambda _: broken, path.read_text())
    assert text != path.read_text()
    path.write_text(text)
    with pytest.raises(InviteError, match="is no invitation"):
        read_invitation(path)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")))
def test_any_file_at_all_is_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(raw)
    with pytest.raises(InviteError) as refused:
        read_invitation(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_too_long_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_bytes(b"#" * (MAX_FILE + 1))
    with pytest.raises(InviteError, match="larger"):
        read_invitation(tmp_path / "long.toml")
    with pytest.raises(ConfigError, match="No such file"):
        read_invitation(tmp_path / "missing.toml")
