"""Receipts: what one signature covers, and which readings agree."""

from pathlib import Path

import msgspec
import pytest

from codezero.errors import EvaluatorError
from codezero.market import judge_service
from codezero.market.judge_service import ProgramReading, Receipt, ReceiptItem, SignedReceipt, signed_bytes
from codezero.swarm.identity import Identity, verify
from codezero.types import Status

ITEMS = [ReceiptItem(f"question {number}", ("assert f(1) == 1",), "def f(x): return x") for number in range(5)]


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Identity.load_or_create(Path(tmp_path_factory.mktemp("judge")) / "judge.pem")


def signed(identity: Identity) -> SignedReceipt:
    readings = (ProgramReading(item.digest, (-10, -20 - number), Status.JUDGED) for number, item in enumerate(ITEMS))
    receipt = Receipt("ab" * 32, tuple(readings))
    return SignedReceipt(receipt, identity.public_key_bytes.hex(), identity.sign(signed_bytes(receipt)).hex())


def test_a_receipt_survives_the_wire_and_holds_and_its_signature_is_good_for_nothing_else(identity: Identity) -> None:
    given = msgspec.json.decode(msgspec.json.encode(signed(identity)), type=SignedReceipt)
    given.check(ITEMS, verify)
    assert signed_bytes(given.receipt).startswith(judge_service.CONTEXT)


def test_whatever_is_changed_no_longer_holds(identity: Identity) -> None:
    whole, replace = signed(identity), msgspec.structs.replace
    first, *rest = whole.receipt.readings
    broken = [
        *(
            replace(whole, receipt=replace(whole.receipt, readings=readings))
            for readings in ((replace(first, scores=(-10, -21)), *rest), (*rest, first), tuple(rest))
        ),
        replace(whole, receipt=replace(whole.receipt, judge="cd" * 32)),
        replace(whole, signature="00" * 256),
        replace(whole, public_key="00"),
    ]
    for each in broken:
        with pytest.raises(EvaluatorError):
            each.check(ITEMS, verify)
    with pytest.raises(EvaluatorError, match="other items"):
        whole.check([*ITEMS[:-1], ReceiptItem("another", ("assert f(1) == 2",), "")], verify)


def test_readings_agree_up_to_one_step() -> None:
    reading = ProgramReading("ab" * 32, (10, -5), Status.JUDGED)
    assert reading.agrees((11, -6))
    assert not any(map(reading.agrees, ((12, -5), None, (10,))))
    assert ProgramReading("ab" * 32, None, Status.UNAVAILABLE).agrees(None)
