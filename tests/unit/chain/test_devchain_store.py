"""The embedded chain's file stays small: the nodes of old states go, and nothing else does."""

from pathlib import Path

import pytest
from builders.devchain import CUSTOM, READ, WRITE, argument, deploying, tiny_runtime
from eth.vm.interrupt import EVMMissingData
from eth_account import Account
from eth_typing import Address

from codezero.chain import devchain_store
from codezero.chain.devchain import Evm, SimulatedCall
from codezero.chain.devchain_server import DATABASE, FAUCET_KEY
from codezero.chain.devchain_store import Store


class Chain:
    """A chain in this process, and an account with money."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / DATABASE)
        self.evm = Evm(self.store, 7, folder / FAUCET_KEY)
        self.account, self.nonce = Account.create(), 0
        self.address = bytes.fromhex(self.account.address[2:])
        self.evm.fund(self.address)

    def send(self, to: bytes, data: bytes) -> bytes:
        tx = {"chainId": 7, "nonce": self.nonce, "gas": 3_000_000, "gasPrice": 10**9, "value": 0, "data": data}
        self.nonce += 1
        return self.evm.send(bytes(self.account.sign_transaction(tx | ({"to": to} if to else {})).raw_transaction))

    def deploy(self, runtime: bytes) -> bytes:
        receipt = bytes(self.store.json("receipt FROM tx WHERE hash", self.send(b"", deploying(runtime))) or b"")
        return bytes.fromhex(receipt.split(b'"contractAddress":"0x')[1][:40].decode())

    def read(self, tiny: bytes) -> int:
        return int.from_bytes(self.evm.call(SimulatedCall(self.address, tiny, 0, READ), self.evm.head))

    def nodes(self) -> int:
        return self.store.row("SELECT count(*) FROM node")[0]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_old_states_go_and_all_else_stays(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devchain_store, "STATES", 3)
    contracts = [chain.deploy(tiny_runtime()) for _ in range(2)]
    hashes = [chain.send(contracts[number % 2], WRITE + argument(number)) for number in range(1, 41)]
    chain.send(contracts[0], CUSTOM)
    root, before = chain.evm.head.state_root, chain.nodes()
    numbers = range(chain.evm.head.number + 1)
    history = [chain.store.json("json FROM block WHERE number", number) for number in numbers]
    kept = chain.store.block(chain.evm.head.number - 2)
    lost = chain.store.block(5)
    assert kept is not None and lost is not None
    chain.store.compact()
    assert chain.nodes() < before / 3
    assert chain.evm.head.state_root == root and [chain.read(tiny) for tiny in contracts] == [40, 39]
    assert chain.evm.accounts(kept).get_nonce(Address(chain.address)) == chain.nonce - 2
    with pytest.raises(EVMMissingData):
        chain.evm.accounts(lost).get_nonce(Address(chain.address))
    assert [chain.store.json("json FROM block WHERE number", number) for number in numbers] == history
    assert all(chain.store.json("json FROM tx WHERE hash", tx_hash) for tx_hash in hashes)
    chain.send(contracts[0], WRITE + argument(77))
    chain.store.close()
    chain.store = Store(tmp_path / DATABASE)
    chain.evm = Evm(chain.store, 7, tmp_path / FAUCET_KEY)
    assert [chain.read(tiny) for tiny in contracts] == [77, 39]


def test_compaction_comes_by_itself(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devchain_store, "STATES", 1)
    monkeypatch.setattr(devchain_store, "COMPACT_EVERY", 8)
    tiny = chain.deploy(tiny_runtime())
    sizes: list[int] = []
    for number in range(40):
        chain.send(tiny, WRITE + argument(number))
        sizes.append(chain.nodes())
    assert max(sizes) < 60 and chain.read(tiny) == 39


def test_code_with_the_bytes_of_a_node_hides_no_part_of_the_state(chain: Chain) -> None:
    tiny = chain.deploy(tiny_runtime())
    chain.send(tiny, WRITE + argument(5))
    root = chain.store.state_db[chain.evm.head.state_root]
    chain.deploy(root)
    for _ in range(3):
        chain.store.compact()
        assert chain.read(tiny) == 5


def test_a_compaction_that_fails_changes_nothing(chain: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = chain.deploy(tiny_runtime())
    chain.send(tiny, WRITE + argument(5))
    before = chain.nodes()

    def fails(self: Store, pending: list[bytes]) -> None:
        self.row("INSERT INTO live VALUES(?,?)", pending[0], b"")
        raise OSError

    monkeypatch.setattr(Store, "_keep", fails)
    with pytest.raises(OSError):
        chain.store.compact()
    assert chain.nodes() == before and chain.read(tiny) == 5
