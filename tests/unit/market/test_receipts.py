"""Receipts: what one signature covers, and how few hashes and readings find a false leaf."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codezero.errors import EvaluatorError
from codezero.market import receipts
from codezero.market.receipts import (
    Leaf,
    Receipt,
    ReceiptItem,
    SignedReceipt,
    agree,
    differences,
    digest,
    signed_bytes,
    tree,
)
from codezero.swarm.identity import Identity, verify
from codezero.types import Status

ITEMS = [ReceiptItem(f"question {number}", ("assert f(1) == 1",), "def f(x): return x") for number in range(5)]
LEAVES = st.lists(
    st.builds(
        Leaf, st.text("0123456789abcdef", min_size=64, max_size=64),
        st.none() | st.tuples(st.integers(-(10**6), 10**6), st.integers(-(10**6), 0)), st.sampled_from(Status),
    ),
    min_size=1,
    max_size=64,
)  # fmt: skip


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity.load_or_create(Path(tmp_path_factory.mktemp("judge")) / "judge.pem")


def signed(identity: Identity, items: list[ReceiptItem] = ITEMS) -> SignedReceipt:
    leaves = tuple(Leaf(digest(item), (-10, -20 - number), Status.JUDGED) for number, item in enumerate(items))
    receipt = Receipt("ab" * 32, len(leaves), tree(leaves)[-1][0].hex())
    signature = identity.sign(signed_bytes(receipt))
    return SignedReceipt(receipt, leaves, identity.public_key_bytes.hex(), signature.hex())


def test_a_receipt_survives_the_wire_and_holds(identity: Identity) -> None:
    given = msgspec.json.decode(msgspec.json.encode(signed(identity)), type=SignedReceipt)
    given.check(ITEMS, verify)


def test_whatever_is_changed_no_longer_holds(identity: Identity) -> None:
    whole = signed(identity)
    first, *rest = whole.leaves
    replace = msgspec.structs.replace
    broken = [
        replace(whole, leaves=(replace(first, read=(-10, -21)), *rest)),
        replace(whole, leaves=(*rest, first)),
        replace(whole, leaves=whole.leaves[:-1]),
        replace(whole, receipt=replace(whole.receipt, judge="cd" * 32)),
        replace(whole, receipt=replace(whole.receipt, root="00" * 32)),
        replace(whole, signature="00" * 256),
        replace(whole, public_key="00"),
    ]
    for each in broken:
        with pytest.raises(EvaluatorError):
            each.check(ITEMS, verify)
    with pytest.raises(EvaluatorError, match="other items"):
        whole.check([*ITEMS[:-1], ReceiptItem("another", ("assert f(1) == 2",), "")], verify)


@given(LEAVES, st.data())
def test_a_false_leaf_is_found_below_few_hashes(leaves: list[Leaf], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(leaves) - 1))
    forged = list(leaves)
    forged[at] = msgspec.structs.replace(leaves[at], read=(7, 7, 7))
    assert list(differences(leaves, forged)) == [at]
    assert list(differences(leaves, leaves)) == []
    assert len(tree(leaves)) <= 7  # so many pairs of hashes are compared on the way


@given(LEAVES, st.sets(st.integers(0, 63)))
def test_every_difference_is_found_in_order(leaves: list[Leaf], places: set[int]) -> None:
    forged = [msgspec.structs.replace(leaf, read=(7, 7, 7)) if at in places else leaf for at, leaf in enumerate(leaves)]
    assert list(differences(leaves, forged)) == sorted(at for at in places if at < len(leaves))


def test_readings_agree_up_to_one_step() -> None:
    leaf = Leaf("ab" * 32, (10, -5), Status.JUDGED)
    assert agree(leaf, (11, -6)) and not agree(leaf, (12, -5)) and not agree(leaf, None) and not agree(leaf, (10,))
    assert agree(Leaf("ab" * 32, None, Status.UNAVAILABLE), None)


@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_a_strangers_receipt_raises_nothing_else(data: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        msgspec.json.decode(data, type=SignedReceipt)


def test_a_signature_is_good_for_nothing_else(identity: Identity) -> None:
    assert signed_bytes(signed(identity).receipt).startswith(receipts.CONTEXT)
