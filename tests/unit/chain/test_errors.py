"""Whatever form a refusal takes, it gets its name."""

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as some

from codezero.chain.contract import read_artifact
from codezero.chain.errors import TEXTS, decode_revert, refusal
from codezero.errors import ChainError

SELECTOR = bytes.fromhex("e39ce02e")  # RewardAlreadySubmitted()
NEVER_MET = {
    "ERC1967InvalidImplementation", "ERC1967NonPayable", "FailedCall", "InvalidBootnodeIndex", "InvalidInitialization",
    "InvalidOwner", "OnlyOwner", "UUPSUnauthorizedCallContext", "UUPSUnsupportedProxiableUUID",
}  # fmt: skip  # only an upgrade and calls of an owner meet these, which nothing here sends


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("execution reverted", "0x" + SELECTOR.hex()),
        ("execution reverted", "Reverted 0x" + SELECTOR.hex()),
        ("VM Exception", {"message": "reverted", "data": "0x" + SELECTOR.hex()}),
        ("VM Exception", {"data": {"data": "0x" + SELECTOR.hex()}}),
    ],
)
def test_every_shape_is_read(message: str, data: object) -> None:
    error = refusal(message, data)
    assert error is not None and error.name == "RewardAlreadySubmitted" and error.final


def test_every_error_of_the_contract_has_a_name_and_a_line_for_people() -> None:
    declared = {entry["name"] for entry in read_artifact().abi if entry["type"] == "error"}
    assert declared - NEVER_MET == TEXTS.keys()
    assert all(text and "\n" not in text for text in TEXTS.values())


def test_selectors_are_those_of_the_deployed_contract() -> None:
    for digits, name in (("723dc675", "PeerIdAlreadyRegistered"), ("3d51d827", "WinnerAlreadyVoted")):
        assert decode_revert(bytes.fromhex(digits)).name == name


def test_words_and_panics_are_told() -> None:
    words = bytes.fromhex("08c379a0") + encode(["string"], ["start\nafter end"])
    assert str(decode_revert(words)) == "the contract refused: start after end"
    panic = decode_revert(bytes.fromhex("4e487b71") + encode(["uint256"], [0x11]))
    assert panic.name == "Panic" and "panic 0x11" in str(panic)
    assert str(refusal("execution reverted: not today")) == "the contract refused: not today"
    assert str(refusal("execution reverted", "0x")) == "the contract refused without a reason"


def test_an_unknown_error_keeps_its_selector() -> None:
    error = decode_revert(b"\xde\xad\xbe\xef" + bytes(32))
    assert error.name == "" and not error.final and "0xdeadbeef" in str(error)


@pytest.mark.parametrize("message", ["nonce too low", "header not found", "insufficient funds", "", "internal error"])
def test_what_the_contract_did_not_say_is_no_refusal(message: str) -> None:
    assert refusal(message) is None


@given(
    some.text(max_size=400),
    some.recursive(some.none() | some.text() | some.binary(), lambda d: some.dictionaries(some.just("data"), d)),
)
def test_any_answer_gives_a_refusal_or_none(message: str, data: object) -> None:
    error = refusal(message, data)
    assert error is None or (isinstance(error, ChainError) and "\n" not in str(error) and len(str(error)) < 500)


@given(some.binary(max_size=300))
def test_any_revert_data_gives_one_bounded_line(raw: bytes) -> None:
    for prefix in (b"", bytes.fromhex("08c379a0"), bytes.fromhex("4e487b71")):
        assert len(str(decode_revert(prefix + raw))) < 500
