"""The embedded chain's file stays small: the nodes of old states go, and nothing else does."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.devchain import CUSTOM, READ, WRITE, argument, deploying, tiny_runtime
from eth.vm.interrupt import EVMMissingData
from eth_account import Account

from codezero.chain import devchain
from codezero.chain.devchain import CallFields, Chain


class Ledger(Chain):
    """A chain in this process, and an account with money."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "test")
        self.account, self.nonce = Account.create(), 0
        self.codezero_fund(self.account.address)

    def send(self, to: str | None, data: bytes) -> str:
        tx = {"chainId": self.chain_id, "nonce": self.nonce, "gas": 3_000_000, "gasPrice": 10**9, "value": 0}
        self.nonce += 1
        signed = self.account.sign_transaction(tx | {"data": data} | ({"to": bytes.fromhex(to[2:])} if to else {}))
        return self.eth_sendRawTransaction(signed.raw_transaction.to_0x_hex())

    def deploy(self, runtime: bytes) -> str:
        receipt = bytes(self.eth_getTransactionReceipt(self.send(None, deploying(runtime))))  # pyright: ignore[reportArgumentType]
        return receipt.split(b'"contractAddress":"')[1][:42].decode()

    def read(self, tiny: str) -> int:
        return int(self.eth_call(CallFields(to=tiny, data=f"0x{READ.hex()}")), 16)

    def nodes(self) -> int:
        return self._row("SELECT count(*) FROM node")[0]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Ledger]:
    chain = Ledger(tmp_path)
    yield chain
    chain.close()


def test_old_states_go_and_all_else_stays(chain: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devchain, "STATES", 3)
    contracts = [chain.deploy(tiny_runtime()) for _ in range(2)]
    hashes = [chain.send(contracts[number % 2], WRITE + argument(number)) for number in range(1, 41)]
    chain.send(contracts[0], CUSTOM)
    head, before = int(chain.eth_blockNumber(), 16), chain.nodes()
    history = [chain.eth_getBlockByNumber(hex(number)) for number in range(head + 1)]
    chain._compact()
    assert chain.nodes() < before / 3
    assert [chain.read(tiny) for tiny in contracts] == [40, 39]
    assert int(chain.eth_getTransactionCount(chain.account.address, hex(head - 2)), 16) == chain.nonce - 2
    with pytest.raises(EVMMissingData):
        chain.eth_getTransactionCount(chain.account.address, "0x5")
    assert [chain.eth_getBlockByNumber(hex(number)) for number in range(head + 1)] == history
    assert all(chain.eth_getTransactionByHash(tx_hash) for tx_hash in hashes)
    chain.send(contracts[0], WRITE + argument(77))
    again = Ledger(tmp_path)
    assert [again.read(tiny) for tiny in contracts] == [77, 39]
    again.close()


def test_compaction_comes_by_itself(chain: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devchain, "STATES", 1)
    monkeypatch.setattr(devchain, "COMPACT_EVERY", 8)
    tiny = chain.deploy(tiny_runtime())
    sizes: list[int] = []
    for number in range(40):
        chain.send(tiny, WRITE + argument(number))
        sizes.append(chain.nodes())
    assert max(sizes) < 60 and chain.read(tiny) == 39


def test_code_with_the_bytes_of_a_node_hides_no_part_of_the_state(chain: Ledger) -> None:
    tiny = chain.deploy(tiny_runtime())
    chain.send(tiny, WRITE + argument(5))
    chain.deploy(chain._nodes[chain._head["state_root"]])
    for _ in range(3):
        chain._compact()
        assert chain.read(tiny) == 5
