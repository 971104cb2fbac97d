"""The invitation: what the founder signed is what a joiner reads, and nothing else is believed.

And the code: one short word that says where the founder is and what to believe; a slip of the pen is no other code."""

from pathlib import Path

import base58
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codezero.chain import invitation as module
from codezero.chain.invitation import CODE_PREFIX as PREFIX
from codezero.chain.invitation import Invitation, decode_code, encode_code, read_invitation, signed, write_invitation
from codezero.chain.wallet import KeystoreWallet
from codezero.errors import ConfigError, InviteError

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
ADDRESS = f"/ip4/203.0.113.5/tcp/38331/p2p/{PEER}"


LETTERS = base58.BITCOIN_ALPHABET.decode()
hosts = st.one_of(
    st.ip_addresses(v=4).map("ip4/{}".format),
    st.ip_addresses(v=6).map("ip6/{}".format),
    st.from_regex(r"dns[46]?/[a-z0-9-]{1,60}\.example", fullmatch=True),
)
ways = st.lists(st.tuples(hosts, st.integers(1, 65535)), min_size=1, max_size=4)


def unsigned(*addresses: str, name: str = "codezero-test", founder: str = "0x" + 40 * "b") -> Invitation:
    return Invitation(
        version=1,
        founder=founder,
        chain=module.ChainPart(31337, ["http://127.0.0.1:8545"], "0x" + 40 * "a", 60.0),
        network=module.NetworkPart(name, 1, list(addresses)),
        judge=module.JudgePart("nano", 64 * "0"),
    )


@pytest.fixture(scope="module")
def founder(tmp_path_factory: pytest.TempPathFactory) -> KeystoreWallet:
    return KeystoreWallet.ephemeral(tmp_path_factory.mktemp("founder") / "wallet.json")


@pytest.fixture
def invitation(founder: KeystoreWallet) -> Invitation:
    return signed(unsigned(ADDRESS, founder=founder.address), founder.sign_message)


def test_what_was_signed_is_what_is_read_and_never_overwritten(tmp_path: Path, invitation: Invitation) -> None:
    write_invitation(tmp_path / "swarm.toml", invitation)
    assert read_invitation(tmp_path / "swarm.toml") == invitation
    with pytest.raises(ConfigError, match="File exists"):
        write_invitation(tmp_path / "swarm.toml", invitation)


def test_anothers_signature_or_one_that_is_none_is_refused(invitation: Invitation, tmp_path: Path) -> None:
    mallory = KeystoreWallet.ephemeral(tmp_path / "mallory.json")
    with pytest.raises(InviteError, match="another account"):
        module.check_signature(signed(invitation, mallory.sign_message))
    for signature in ("", "0x" + 130 * "0", "0x" + 130 * "f"):
        with pytest.raises(InviteError):
            module.check_signature(msgspec.structs.replace(invitation, signature=signature))


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        *(
            (before, after, "ask the founder")
            for before, after in {
                "codezero-test": "codezero-evil", "203.0.113.5": "203.0.113.6", "127.0.0.1:8545": "127.0.0.1:8546",
                40 * "a": 40 * "b", '"nano"': '"other"', "= 60.0": "= 61.0",
            }.items()
        ),
        *(
            (before, after, "is no invitation")
            for before, after in {
                "version = 1": "version = 2", "protocol = 1": "protocol = -1", "http://127": "file://127",
                f"/p2p/{PEER}": "/p2p/../../x", '"codezero-test"': '"a/b"', "= 60.0": "= 0.0",
                "[judge]": "[judge]\nextra = 1", "60.0": "60.0\nblock = -1", "= 60": "= 60\nblock = '${oc.env:H}'\nx",
            }.items()
        ),
    ],
)  # fmt: skip
def test_any_field_that_is_changed_is_noticed_and_one_out_of_bounds_named(
    tmp_path: Path, invitation: Invitation, before: str, after: str, words: str
) -> None:
    path = tmp_path / "swarm.toml"
    write_invitation(path, invitation)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    with pytest.raises(InviteError, match=words) as caught:
        read_invitation(path)
    assert str(caught.value).count("is no invitation") < 2


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")))
def test_any_file_at_all_is_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(raw)
    with pytest.raises(InviteError) as refused:
        read_invitation(path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_too_long_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_bytes(b"#" * (module.MAX_FILE + 1))
    with pytest.raises(InviteError, match="larger"):
        read_invitation(tmp_path / "long.toml")
    with pytest.raises(ConfigError, match="No such file"):
        read_invitation(tmp_path / "missing.toml")


# ---- the code

CODE = encode_code(unsigned(f"/ip4/203.0.113.155/tcp/38331/p2p/{PEER}"))


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True), ways)
def test_a_code_says_what_the_invitation_says(name: str, ways: list[tuple[str, int]]) -> None:
    addresses = [f"/{host}/tcp/{port}/p2p/{PEER}" for host, port in ways]
    invitation = unsigned(*addresses, name=name)
    code = decode_code(encode_code(invitation))
    assert (code.name, code.digest, code.addresses) == (name, invitation.digest, addresses)


def test_a_code_of_two_addresses_is_short_and_one_word() -> None:
    code = encode_code(unsigned(*(f"/ip4/203.0.113.{end}/tcp/38331/p2p/{PEER}" for end in (155, 156))))
    assert code.isalnum() and len(code) < 180 and len(CODE) < 150


def test_of_others_addresses_and_other_kinds_nothing_is_in_it() -> None:
    other = f"/ip4/203.0.113.6/tcp/1/p2p/{PEER[:-1]}M"
    odd = f"/ip4/203.0.113.7/udp/1/quic/p2p/{PEER}"
    own = f"/ip4/203.0.113.5/tcp/1/p2p/{PEER}"
    assert decode_code(encode_code(unsigned(odd, own, other))).addresses == [own]
    with pytest.raises(ConfigError, match=r"swarm\.announce"):
        encode_code(unsigned(odd))


@given(st.integers(0, len(CODE) - 1), st.sampled_from(LETTERS + "0OIl .") | st.just(""))
def test_a_letter_that_is_wrong_or_missing_is_one_line(at: int, letter: str) -> None:
    text = CODE[:at] + letter + CODE[at + 1 :]
    if text != CODE:
        with pytest.raises(InviteError, match=r"mistyped|later version"):
            decode_code(text)


@given(st.text(max_size=2000) | st.text(LETTERS, max_size=2000).map(PREFIX.__add__))
@example(CODE + CODE)
@example(CODE + "\n")
def test_any_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InviteError) as refused:
        decode_code(text)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 300


fields = st.recursive(
    st.none() | st.integers(-(2**31), 2**31) | st.binary(max_size=40) | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=6),
)


@given(fields | st.tuples(st.text(max_size=64), st.binary(max_size=20), st.binary(max_size=50), st.lists(fields)))
@example(["a", bytes(16), bytes(34), [["ip4/${x}", 1]]])
@example(["a", bytes(16), bytes(34), [["ip4/1.2.3.4", 65536]]])
@example(["a", bytes(16), bytes(34), [["ip4/1.2.3.4", 1]] * 5])
@example(["a", bytes(16), bytes(34), [["ip4/1.2.3.4", 1]], "more"])
def test_whoever_knows_the_checksum_gets_no_further(content: object) -> None:
    with pytest.raises(InviteError, match="mistyped"):
        decode_code(PREFIX + base58.b58encode_check(msgspec.msgpack.encode(content)).decode())
