"""The code: one short word that says where the founder is and what to believe; a slip of the pen is no other code."""

import base58
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from codezero.chain.invitation import CODE_PREFIX as PREFIX
from codezero.chain.invitation import ChainPart, Invitation, JudgePart, NetworkPart, decode_code, encode_code
from codezero.errors import ConfigError, InviteError

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
LETTERS = base58.BITCOIN_ALPHABET.decode()
hosts = st.one_of(
    st.ip_addresses(v=4).map("ip4/{}".format),
    st.ip_addresses(v=6).map("ip6/{}".format),
    st.from_regex(r"dns[46]?/[a-z0-9-]{1,60}\.example", fullmatch=True),
)
ways = st.lists(st.tuples(hosts, st.integers(1, 65535)), min_size=1, max_size=4)


def invitation(*addresses: str, name: str = "codezero-1a2b3c4d") -> Invitation:
    return Invitation(
        version=1,
        founder="0x" + 40 * "b",
        chain=ChainPart(31337, ["http://127.0.0.1:8545"], "0x" + 40 * "a", 60.0),
        network=NetworkPart(name, 1, list(addresses)),
        judge=JudgePart("nano", ""),
    )


CODE = encode_code(invitation(f"/ip4/203.0.113.155/tcp/38331/p2p/{PEER}"))


@given(st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True), ways)
def test_a_code_says_what_the_invitation_says(name: str, ways: list[tuple[str, int]]) -> None:
    addresses = [f"/{host}/tcp/{port}/p2p/{PEER}" for host, port in ways]
    signed = invitation(*addresses, name=name)
    code = decode_code(encode_code(signed))
    assert (code.name, code.digest, code.addresses) == (name, signed.digest, addresses)


def test_a_code_of_two_addresses_is_short_and_one_word() -> None:
    code = encode_code(invitation(*(f"/ip4/203.0.113.{end}/tcp/38331/p2p/{PEER}" for end in (155, 156))))
    assert code.isalnum() and len(code) < 180 and len(CODE) < 150


def test_of_others_addresses_and_other_kinds_nothing_is_in_it() -> None:
    other = f"/ip4/203.0.113.6/tcp/1/p2p/{PEER[:-1]}M"
    odd = f"/ip4/203.0.113.7/udp/1/quic/p2p/{PEER}"
    own = f"/ip4/203.0.113.5/tcp/1/p2p/{PEER}"
    assert decode_code(encode_code(invitation(odd, own, other))).addresses == [own]
    with pytest.raises(ConfigError, match=r"swarm\.announce"):
        encode_code(invitation(odd))


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
