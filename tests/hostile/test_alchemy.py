"""A service that is hostile or broken gets no signature on anything that was not asked for."""

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from builders.alchemy import ACCOUNT, BATCH, CHAIN, CONTRACT, DELEGATE, EXECUTE, Json, Service
from eth_abi import encode
from fakes.alchemy_service import CALL, EVIL, WIRE, bench, encode_function, put, rehashed
from hypothesis import given
from hypothesis import strategies as st

from codezero.chain.alchemy import Prepared, UnsponsoredError, UserOperation, calls_only, checked, delegate_of
from codezero.chain.bounded_http import UNDECODABLE
from codezero.chain.errors import ChainUnreachableError
from codezero.chain.sponsored import RAN


def test_the_hash_is_the_entry_point_s() -> None:
    operation = UserOperation(
        sender=ACCOUNT.address,
        nonce=hex((1 << 64) + 5),
        call_data="0x" + EXECUTE_CALL.hex(),
        call_gas_limit="0x2bb8",
        verification_gas_limit="0xc845",
        pre_verification_gas="0x14b74",
        max_fee_per_gas="0x1bf52290",
        max_priority_fee_per_gas="0x60e4b0",
        paymaster="0x3f222Df6aB18C1E10d0Ec136503c3B0dfd929048",
        paymaster_data="0x0102030405",
        paymaster_verification_gas_limit="0x74d3",
        paymaster_post_op_gas_limit="0x1",
    )
    # by viem's getUserOperationHash
    assert operation.hash(CHAIN).hex() == "b685b87d0119fa5acba9412af38e1f6104712d6453f45dea809fdb2f3fc1bbdf"
    assert RAN == "0x49628fd1471006c1482da88028e9ce4dbb080b815c9b0344d39e5a8e6ec1419f"


EXECUTE_CALL = bytes.fromhex(
    "b61d27f60000000000000000000000007745a8fe4b8d2d2c3bb103f8dcae822746f35da0"
    + f"{0:064x}{96:064x}{6:064x}"
    + "12345678aabb".ljust(64, "0")
)
BATCH_CALL = bytes.fromhex(
    f"34fcd5be{32:064x}{1:064x}{32:064x}0000000000000000000000007745a8fe4b8d2d2c3bb103f8dcae822746f35da0"
    + f"{0:064x}{96:064x}{6:064x}"
    + "12345678aabb".ljust(64, "0")
)


def test_only_the_one_call_is_the_one_call() -> None:
    data = bytes.fromhex("12345678aabb")
    for form in (EXECUTE_CALL, BATCH_CALL):
        assert calls_only(form, CONTRACT, data)
        assert not calls_only(form, EVIL, data) and not calls_only(form, CONTRACT, data[:-1])
        assert not calls_only(form + bytes(32), CONTRACT, data) and not calls_only(form[:-1], CONTRACT, data)
        for at in range(len(form)):
            assert not calls_only(form[:at] + bytes([form[at] ^ 1]) + form[at + 1 :], CONTRACT, data)


@pytest.mark.parametrize("code", [b"", b"\xef\x01\x00" + bytes(19), b"\xef\x01\x01" + bytes(20), bytes(23), bytes(40)])
def test_other_code_follows_nobody(code: bytes) -> None:
    assert delegate_of(code) is None


def other_call(to: str, data: bytes) -> str:
    return Service().operation({"to": to, "data": "0x" + data.hex()}).call_data


def two_calls(prepared: Json) -> Json:
    calls = [(CONTRACT, 0, CALL), (EVIL, 0, b"")]
    return rehashed(prepared, callData="0x" + (BATCH + encode(["(address,uint256,bytes)[]"], [calls])).hex())


def with_value(prepared: Json) -> Json:
    data = EXECUTE + encode(["address", "uint256", "bytes"], [CONTRACT, 1, CALL])
    return rehashed(prepared, callData="0x" + data.hex())


def another_chain(prepared: Json) -> Json:
    prepared["data"][1]["chainId"] = "0x1"
    return rehashed(prepared)


HOSTILE: dict[str, Callable[[Json], Json]] = {
    "another contract": lambda prepared: rehashed(prepared, callData=other_call(EVIL, CALL)),
    "another function": lambda prepared: rehashed(prepared, callData=other_call(CONTRACT, b"\x12\x34\x56\x78")),
    "two calls": two_calls,
    "a call with value": with_value,
    "another account": lambda prepared: rehashed(prepared, sender=EVIL),
    "another chain": another_chain,
    "a hash of something else": put("data.1.signatureRequest.data.raw", "0x" + "ab" * 32),
    "no sponsor, it says": put("data.1.feePayment.sponsored", False),
    "no sponsor at all": lambda prepared: rehashed(prepared, paymaster="0x" + "00" * 20),
    "a nonce of later": lambda prepared: rehashed(prepared, nonce=hex((1 << 64) + 7)),
    "a delegate of its own": put("data.0.data.address", EVIL),
    "no delegate: the account would be reset": put("data.0.data.address", "0x" + "00" * 20),
    "an authorization for all chains": put("data.0.chainId", "0x0"),
    "an authorization for another chain": put("data.0.chainId", "0x1"),
    "an authorization for later": put("data.0.data.nonce", "0x1"),
    "no authorization": lambda prepared: prepared["data"][1],
    "the same without one, in a list": lambda prepared: prepared | {"data": prepared["data"][1:]},
    "an authorization alone": lambda prepared: prepared | {"data": prepared["data"][:1]},
    "two authorizations": lambda prepared: prepared | {"data": 2 * prepared["data"][:1]},
    "the wrong order": lambda prepared: prepared | {"data": prepared["data"][::-1]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_else_is_signed(name: str) -> None:
    with bench(tamper=HOSTILE[name]) as here:
        with pytest.raises(UnsponsoredError, match=r"^the paymaster's service prepared something else .+\Z") as caught:
            here.transact()
        assert (here.wallet.signed, here.service.sent, here.recorded) == (0, [], [])
        assert "\n" not in str(caught.value)


def test_addresses_may_come_in_small_letters() -> None:
    with bench(tamper=put("data.0.data.address", DELEGATE.lower())) as here:
        assert here.transact() and here.service.code == "0xef0100" + DELEGATE[2:].lower()


@pytest.mark.parametrize("code", ["0xef0100" + EVIL[2:], "0x6001", "0xef0100"])
def test_an_account_that_follows_something_else_signs_nothing(code: str) -> None:
    with bench(code=code) as here, pytest.raises(UnsponsoredError, match=r"chain\.alchemy_delegates lacks"):
        here.transact()


@pytest.mark.parametrize(
    "tamper",
    [
        put("data.1.signatureRequest", {"type": "eth_signTypedData_v4", "data": {}, "rawPayload": "0x"}),
        put("data.1.data.factory", "0x7702"),
        put("data.1.data.eip7702Auth", {}),
        put("data.1.data.callGasLimit", "0x1" + 32 * "0"),
        put("data.1.data.nonce", 5),
        put("data.1.type", "user-operation-v060"),
        put("data.0.type", "permit"),
        put("data.0.data.nonce", "0x" + 17 * "f"),
        put("type", "paymaster-permit"),
        put("data", []),
        lambda prepared: prepared | {"data": 9 * prepared["data"]},
        lambda prepared: [prepared],
        lambda prepared: None,
    ],
)
def test_an_unknown_form_is_not_guessed_at(tamper: Callable[[Json], Json]) -> None:
    with bench(tamper=tamper) as here:
        with pytest.raises(ChainUnreachableError, match="in a form that is not known here"):
            here.transact(seconds=0.1)
        assert here.wallet.signed == 0


@pytest.mark.parametrize(
    "answer",
    [b"", b"no JSON", b"[]", b"[" * 5000, b"\xff", b'{"id": 999, "result": {}}', b'{"id": null, "result": 1}',
     b"x" * (600 << 10), (500, b"<html>"), (429, b"{}")],
)  # fmt: skip
def test_no_answer_is_no_answer(answer: bytes | tuple[int, bytes]) -> None:
    with bench(answer=lambda *_: answer) as here:
        with pytest.raises(ChainUnreachableError):
            here.transact(seconds=0.1)
        assert here.wallet.signed == 0


LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.from_regex(r"\A0x[0-9a-f]{0,80}\Z")


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    for name, inner in items:
        yield (*path, name)
        yield from leaves(inner, (*path, name))


@given(
    st.sampled_from([(WIRE[0]["result"], b""), (WIRE[3]["result"], b"\xef\x01\x00" + bytes.fromhex(DELEGATE[2:]))]),
    st.data(),
)
def test_whatever_is_changed_only_the_same_is_signed(wire: tuple[Json, bytes], data: st.DataObject) -> None:
    """Names in what is compared and kept may be written in other letters; what is not looked at may be anything."""
    prepared, code = wire
    peer = "QmX" if prepared is WIRE[0]["result"] else "QmY"
    call = encode_function("registerPeer", peer)
    asked: Any = {"account": ACCOUNT.address, "chain": CHAIN, "to": CONTRACT, "data": call, "code": code, "count": 0}
    asked["delegates"] = {DELEGATE.lower()}
    wanted = checked(msgspec.convert(prepared, Prepared), **asked)
    changed = copy.deepcopy(prepared)
    *parents, last = data.draw(st.sampled_from(list(leaves(prepared))))
    inner: Any = changed
    for part in parents:
        inner = inner[part]
    inner[last] = data.draw(LEAVES)
    try:
        ready = checked(msgspec.json.decode(json.dumps(changed), type=Prepared), **asked)
    except (UnsponsoredError, *UNDECODABLE):
        return
    assert ready[1].data.hash(CHAIN) == wanted[1].data.hash(CHAIN)
    assert (ready[0] is None) is (wanted[0] is None)


@given(st.recursive(LEAVES | st.floats(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_json_is_read_or_refused(value: object) -> None:
    with suppress(*UNDECODABLE):
        msgspec.json.decode(json.dumps(value), type=Prepared)
