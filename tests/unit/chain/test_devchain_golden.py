"""A chain that was written once and kept: every answer stays, and it goes on.

`golden/devchain.tar.gz` holds the chain's folder, and in it `answers.json`: requests with what it answered then."""

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from builders.devchain import Client, Sender
from eth_account import Account
from eth_utils import keccak

from codezero.chain.contract import ContractCoordinator, founded
from codezero.chain.devchain import DATABASE
from codezero.chain.devchain_process import DevChainHandle
from codezero.chain.provider import ChainClient

GOLDEN = Path(__file__).parents[2] / "golden" / "devchain.tar.gz"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "chain"


def assert_same_answers(folder: Path) -> None:
    with DevChainHandle(folder) as chain:
        client = Client(chain)
        for method, params, answer in json.loads((folder / "answers.json").read_text()):
            assert client.ask(method, *params) == answer, (method, params)


def test_yesterdays_chain_answers_as_it_did_and_twice(folder: Path) -> None:
    assert_same_answers(folder)
    assert_same_answers(folder)
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")}
    assert tables == {"meta", "block", "tx", "log", "node"}


@pytest.mark.slow
def test_yesterdays_chain_goes_on(folder: Path) -> None:
    contract = founded(folder).contract
    with DevChainHandle(folder) as chain:
        client = Client(chain)
        member = Sender(client, fund=False)
        member.account = Account.from_key(keccak(text="codezero test second"))
        member.address = member.account.address
        head = int(client.ask("eth_blockNumber"), 16)
        reward = encode(contract, "submitReward", 3, 0, 42, "QmSecond" + "2" * 38)
        receipt = member.send(contract, reward)
        assert (receipt["status"], int(receipt["blockNumber"], 16)) == ("0x1", head + 1)
        block = client.ask("eth_getBlockByNumber", hex(head + 1), False)
        assert block["parentHash"] == client.ask("eth_getBlockByNumber", hex(head), False)["hash"]
        assert Sender(client).send(contract, b"\0" * 4)["status"] == "0x0"  # from yesterday's faucet
    with DevChainHandle(folder) as chain:
        client = Client(chain)
        assert client.ask("eth_getTransactionReceipt", receipt["transactionHash"]) == receipt
        question = encode(contract, "getTotalRewards", ["QmSecond" + "2" * 38])
        total = client.ask("eth_call", {"to": contract, "data": f"0x{question.hex()}"}, "latest")
        assert int(total[-64:], 16) == 1 + 101 + 201 + 42


def encode(contract: str, name: str, *arguments: object) -> bytes:
    return ContractCoordinator(ChainClient(["http://127.0.0.1:9"], 1), contract).encode(name, *arguments)
