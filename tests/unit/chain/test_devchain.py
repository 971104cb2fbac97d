"""The embedded chain as clients see it: web3, real HTTP, a real EVM. Contracts here are a few bytes written by hand."""

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from builders import devchain as tiny_chain
from builders.devchain import GWEI, READ, WRITE, Client, RpcFailure, Sender, argument, deploying
from eth_account import Account
from web3 import HTTPProvider, Web3
from web3.exceptions import BlockNotFound, ContractCustomError, ContractLogicError, TransactionNotFound, Web3RPCError

from codezero.chain import devchain
from codezero.chain.devchain import FAUCET_KEY
from codezero.chain.devchain_evm import RpcRefusal
from codezero.chain.devchain_process import DevChainHandle
from codezero.chain.devchain_server import serve
from codezero.errors import ConfigError

ETHER = 10**18


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevChainHandle]:
    with DevChainHandle(tmp_path_factory.mktemp("devchain")) as handle:
        yield handle


@pytest.fixture(scope="module")
def client(chain: DevChainHandle) -> Client:
    return Client(chain)


@pytest.fixture(scope="module")
def sender(client: Client) -> Sender:
    return Sender(client)


@pytest.fixture(scope="module")
def tiny(sender: Sender) -> str:
    return sender.deploy_tiny()


@pytest.fixture
def w3(chain: DevChainHandle) -> Iterator[Web3]:
    with requests.Session() as session:
        yield Web3(HTTPProvider(chain.url, session=session))


# -- web3


def test_web3_deploys_sends_and_reads(w3: Web3, sender: Sender) -> None:
    assert w3.is_connected() and w3.eth.chain_id == sender.client.chain_id
    address = Web3.to_checksum_address(sender.deploy_tiny())
    tx = {
        "from": sender.address, "to": address, "data": WRITE + argument(5), "chainId": w3.eth.chain_id, "value": 0,
        "nonce": w3.eth.get_transaction_count(sender.account.address, "pending"),
        "maxFeePerGas": w3.eth.gas_price * 2, "maxPriorityFeePerGas": w3.eth.max_priority_fee,
    }  # fmt: skip
    tx["gas"] = w3.eth.estimate_gas(tx)
    tx_hash = w3.eth.send_raw_transaction(sender.account.sign_transaction(tx).raw_transaction)
    receipt = w3.eth.wait_for_transaction_receipt(tx_hash, timeout=60)
    assert receipt["status"] == 1 and receipt["gasUsed"] <= tx["gas"] and receipt["from"] == sender.address
    assert w3.eth.get_storage_at(address, 0) == argument(5)
    assert w3.eth.call({"to": address, "data": READ}) == argument(5)
    mined = w3.eth.get_transaction(tx_hash)
    assert mined["blockNumber"] == receipt["blockNumber"] and mined["input"] == WRITE + argument(5)
    block = w3.eth.get_block(receipt["blockNumber"], full_transactions=True)
    assert block["transactions"][0]["hash"] == tx_hash and block["hash"] == receipt["blockHash"]
    assert w3.eth.get_block(block["hash"])["transactions"] == [tx_hash]


def test_web3_names_what_is_missing(w3: Web3) -> None:
    with pytest.raises(TransactionNotFound):
        w3.eth.get_transaction_receipt("0x" + "12" * 32)
    with pytest.raises(TransactionNotFound):
        w3.eth.get_transaction("0x" + "12" * 32)
    with pytest.raises(BlockNotFound):
        w3.eth.get_block(10**9)
    with pytest.raises(Web3RPCError):
        w3.eth.get_balance("0x" + "12" * 20, 10**9)


def test_a_refusal_arrives_with_its_bytes_or_words(w3: Web3, sender: Sender, tiny: str) -> None:
    address = Web3.to_checksum_address(tiny)
    for attempt in (w3.eth.call, w3.eth.estimate_gas):
        with pytest.raises(ContractCustomError) as refused:
            attempt({"from": sender.address, "to": address, "data": tiny_chain.CUSTOM})
        assert refused.value.data == tiny_chain.CUSTOM_DATA
    with pytest.raises(ContractLogicError, match="execution reverted: no") as refused:
        w3.eth.call({"to": address, "data": tiny_chain.WORDS})
    assert refused.value.data == tiny_chain.WORDS_DATA


def test_a_broken_contract_is_not_a_revert(sender: Sender, tiny: str) -> None:
    with pytest.raises(RpcFailure, match="InvalidInstruction") as failure:
        sender.client.ask("eth_call", sender.call(tiny, tiny_chain.INVALID), "latest")
    assert failure.value.code == -32000
    with pytest.raises(RpcFailure, match="out of gas"):
        sender.client.ask("eth_call", sender.call(tiny, tiny_chain.FOREVER, gas=hex(50_000)), "latest")


def test_a_reverted_transaction_is_mined_and_counts(sender: Sender, tiny: str) -> None:
    before = sender.nonce()
    receipt = sender.send(tiny, tiny_chain.CUSTOM)
    assert receipt["status"] == "0x0" and receipt["logs"] == [] and sender.nonce() == before + 1


def test_events_are_found_by_address_topic_and_block(w3: Web3, sender: Sender) -> None:
    first, second = sender.deploy_tiny(), sender.deploy_tiny()
    receipts = [sender.send(to, WRITE + argument(number)) for number, to in enumerate([first, second, first])]
    caller = "0x" + sender.address[2:].lower().rjust(64, "0")
    topic = f"0x{tiny_chain.TOPIC:064x}"

    def matching(**search: Any) -> list[int]:
        begin = {} if "blockHash" in search else {"fromBlock": receipts[0]["blockNumber"]}
        logs = sender.client.ask("eth_getLogs", begin | search)
        return [int(log["data"], 16) for log in logs]

    assert matching() == [0, 1, 2]
    assert matching(address=first) == [0, 2]
    assert matching(address=[first, second], topics=[topic]) == [0, 1, 2]
    assert matching(address=second, topics=[None, caller]) == [1]
    assert matching(topics=[["0x" + "00" * 32, topic], [caller]]) == [0, 1, 2]
    assert matching(topics=[caller]) == [] == matching(topics=[topic, caller, None])
    assert matching(blockHash=receipts[1]["blockHash"]) == [1]
    assert matching(toBlock=receipts[0]["blockNumber"]) == [0]
    assert matching(fromBlock=hex(10**6), toBlock=hex(10**6)) == []
    (log,) = w3.eth.get_logs({"blockHash": receipts[2]["blockHash"]})
    assert log["transactionHash"].to_0x_hex() == receipts[2]["transactionHash"] and log["logIndex"] == 0
    assert receipts[2]["logs"][0]["topics"] == [topic, caller]


# -- transactions


def test_the_same_transaction_twice_is_one_transaction(sender: Sender, tiny: str) -> None:
    raw = sender.sign(tiny, WRITE + argument(9))
    first = sender.client.ask("eth_sendRawTransaction", raw)
    block = sender.client.ask("eth_blockNumber")
    assert sender.client.ask("eth_sendRawTransaction", raw) == first
    assert sender.client.ask("eth_blockNumber") == block


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nonce": 0}, "nonce too low"), ({"nonce": 10**6}, "nonce too high"), ({"chainId": 1}, "invalid chain id"),
        ({"value": 10**30}, "insufficient funds for gas \\* price \\+ value"),
        ({"maxFeePerGas": 10, "maxPriorityFeePerGas": 1}, "max fee per gas less than block base fee"),
        ({"maxFeePerGas": GWEI, "maxPriorityFeePerGas": 2 * GWEI}, "priority fee per gas higher"),
        ({"gas": 20_000}, "intrinsic gas too low"), ({"data": b"\1" * 100, "gas": 22_000}, "intrinsic gas too low"),
        ({"gas": 10**9}, "exceeds block gas limit"),
    ],
)  # fmt: skip
def test_a_transaction_that_cannot_be_is_refused_in_known_words(
    sender: Sender, change: dict[str, Any], message: str
) -> None:
    before = sender.nonce()
    with pytest.raises(RpcFailure, match=message) as failure:
        sender.send(sender.address, **change)
    assert failure.value.code == -32000 and sender.nonce() == before


def test_an_old_signature_without_chain_id_is_refused(sender: Sender) -> None:
    tx = {"nonce": sender.nonce(), "gas": 21_000, "gasPrice": GWEI, "to": sender.address, "value": 0, "data": b""}
    raw = sender.account.sign_transaction(tx).raw_transaction.hex()
    with pytest.raises(RpcFailure, match="replay-protected"):
        sender.client.ask("eth_sendRawTransaction", "0x" + raw.removeprefix("0x"))


def test_an_estimate_is_enough_and_little_less_is_not(sender: Sender, tiny: str) -> None:
    data = deploying(b"\x5b" * 20_000)
    for to, payload in [(tiny, WRITE + argument(2**200)), (None, data), ("0x" + "66" * 20, b"")]:
        call = {"from": sender.address, "data": "0x" + payload.hex()} | ({} if to is None else {"to": to})
        gas = int(sender.client.ask("eth_estimateGas", call), 16)
        with pytest.raises((RpcFailure, AssertionError)):
            assert sender.send(to, payload, gas=gas * 98 // 100)["status"] == "0x1"
        assert sender.send(to, payload, gas=gas)["status"] == "0x1"
    assert gas == 21_000


def test_the_past_can_be_asked(sender: Sender) -> None:
    address = sender.deploy_tiny()
    blocks = [sender.send(address, WRITE + argument(number))["blockNumber"] for number in (7, 8)]
    ask = sender.client.ask
    assert [int(ask("eth_getStorageAt", address, "0x0", block), 16) for block in blocks] == [7, 8]
    assert [int(ask("eth_call", sender.call(address, READ), block), 16) for block in blocks] == [7, 8]
    old = ask("eth_getBlockByNumber", blocks[0], False)["hash"]
    assert int(ask("eth_call", sender.call(address, READ), old), 16) == 7
    assert ask("eth_getCode", address, "earliest") == "0x"
    nonces = [int(ask("eth_getTransactionCount", sender.address, block), 16) for block in blocks]
    assert nonces[1] == nonces[0] + 1


# -- faucet, identity, parallel writers


def test_the_faucet_fills_up_to_ten_and_no_more(chain: DevChainHandle, client: Client) -> None:
    assert stat.S_IMODE((chain.path / FAUCET_KEY).stat().st_mode) == 0o600
    address = Account.create().address
    assert client.ask("codezero_fund", address).startswith("0x")
    assert int(client.ask("eth_getBalance", address, "latest"), 16) == 10 * ETHER
    assert client.ask("codezero_fund", address) is None


@pytest.mark.parametrize(
    "method",
    ["eth_sendTransaction", "eth_sign", "personal_unlockAccount", "anvil_setBalance", "evm_mine", "debug_traceCall"],
)
def test_nobody_can_cheat(client: Client, method: str) -> None:
    with pytest.raises(RpcFailure, match="does not exist") as failure:
        client.ask(method, {})
    assert failure.value.code == -32601


def test_every_new_chain_has_an_id_of_its_own(tmp_path: Path, chain: DevChainHandle) -> None:
    with DevChainHandle(tmp_path / "other") as other:
        assert other.chain_id != chain.chain_id
        foreign = Sender(Client(chain)).sign("0x" + "55" * 20, nonce=0)
        with pytest.raises(RpcFailure, match="invalid chain id"):
            Client(other).ask("eth_sendRawTransaction", foreign)


@pytest.mark.slow
def test_an_id_can_be_chosen_once(tmp_path: Path) -> None:
    with DevChainHandle(tmp_path, chain_id=4242) as chain:
        assert chain.chain_id == 4242
        with pytest.raises(ConfigError, match="has the id 4242, not 7"):
            DevChainHandle(tmp_path, chain_id=7)
    with pytest.raises(ConfigError, match="has the id 4242, not 7"):
        DevChainHandle(tmp_path, chain_id=7)
    with DevChainHandle(tmp_path) as chain:
        assert chain.chain_id == 4242


def test_a_bad_port_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="port=70000 is out of bounds"):
        serve(tmp_path, lambda _: None, port=70000, chain_id=None)


def test_a_search_for_events_has_a_widest_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devchain, "LOG_BLOCKS", 1)
    with closing(devchain.Chain(tmp_path, "test")) as chain:
        assert chain.eth_getLogs(devchain.LogFilter("0x0", "0x0")) == []
        with pytest.raises(RpcRefusal, match="maximum block range: 1"):
            chain.eth_getLogs(devchain.LogFilter("0x0", "0x1"))
