"""No call of the embedded chain runs longer than its seconds of CPU, whatever it spends them on."""

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.devchain import FOREVER, deploying, tiny_runtime
from eth_account import Account

from codezero.chain.devchain import MOST_AUTHORIZATIONS, Evm, SimulatedCall
from codezero.chain.devchain_metering import OutOfTime, RpcRefusal
from codezero.chain.devchain_store import Store

SECONDS = 0.2
NOBODY = bytes(20)
G1, G2 = bytes(128), bytes(256)


@pytest.fixture
def evm(tmp_path: Path) -> Iterator[Evm]:
    store = Store(tmp_path / "chain.db")
    yield Evm(store, 1, tmp_path / "faucet.key", SECONDS)
    store.close()


@pytest.mark.parametrize(
    ("precompile", "data"),
    [
        (8, bytes(192) * 600),  # pairings of bn128
        (9, (29_000_000).to_bytes(4) + bytes(208) + b"\1"),  # rounds of blake2
        (0x0C, (G1 + bytes(31) + b"\1") * 600),  # sums of multiples on BLS12-381
        (0x0E, (G2 + bytes(31) + b"\1") * 400),
        (0x0F, (G1 + G2) * 300),
    ],
)
def test_a_precompile_ends_in_time(evm: Evm, precompile: int, data: bytes) -> None:
    began = time.thread_time()
    with pytest.raises(OutOfTime):
        evm.call(SimulatedCall(NOBODY, precompile.to_bytes(20), 0, data), evm.head)
    assert time.thread_time() - began < 20 * SECONDS  # of CPU, which a busy machine does not change


def test_the_clock_goes_on_where_the_collector_runs_code_of_others(evm: Evm) -> None:
    """An error that is raised within its callbacks is lost, and the profile that looks at the clock with it."""
    before = gc.get_threshold()
    gc.callbacks.append(lambda *_: [str(number).strip() for number in range(2000)])
    gc.set_threshold(20)
    try:
        test_a_precompile_ends_in_time(evm, 8, bytes(192) * 600)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.pop()


def test_numbers_of_a_modular_power_are_bounded(evm: Evm) -> None:
    sizes = b"".join(size.to_bytes(32) for size in (8, 3_000_000, 8))
    with pytest.raises(RpcRefusal, match="modular power"):
        evm.call(SimulatedCall(NOBODY, (5).to_bytes(20), 0, sizes + b"\3" * 100_000), evm.head)
    sizes = b"".join(size.to_bytes(32) for size in (1, 1, 1))
    assert evm.call(SimulatedCall(NOBODY, (5).to_bytes(20), 0, sizes + b"\3\4\7"), evm.head) == bytes([3**4 % 7])


def test_what_is_mined_ends_in_time_and_leaves_nothing(evm: Evm) -> None:
    account = Account.create()
    evm.fund(bytes.fromhex(account.address[2:]))
    fields = {"chainId": 1, "maxFeePerGas": 10**7, "maxPriorityFeePerGas": 1, "value": 0, "gas": 5_000_000}
    sign = account.sign_transaction
    evm.send(bytes(sign(fields | {"nonce": 0, "data": deploying(tiny_runtime())}).raw_transaction))
    block = evm.head
    contract = "0x" + evm.accounts(block).get_nonce(bytes.fromhex(account.address[2:])).to_bytes(20).hex()
    loop = b"\x5b\x5f\x56"  # JUMPDEST PUSH0 JUMP, as the code that creates a contract
    with pytest.raises(OutOfTime):
        evm.send(bytes(sign(fields | {"nonce": 1, "gas": 29_000_000, "data": loop}).raw_transaction))
    assert evm.head == block
    other = Account.create()
    signed = other.sign_authorization({"chainId": 1, "address": contract, "nonce": 0})
    many = {"nonce": 1, "gas": 29_000_000, "type": 4, "to": NOBODY, "data": FOREVER}
    many["authorizationList"] = [signed] * (MOST_AUTHORIZATIONS + 1)
    with pytest.raises(RpcRefusal, match="authorizations"):
        evm.send(bytes(sign(fields | many).raw_transaction))
