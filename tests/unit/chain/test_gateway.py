"""What a newcomer may do on the founder's chain: all that a node of the swarm has to, and no more. A real chain."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders.chain import Swarm, reward_of
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from codezero.chain import gateway as module
from codezero.chain.contract import ContractCoordinator, Sender, fund
from codezero.chain.errors import ChainUnreachableError, ContractError
from codezero.chain.gateway import METHODS, ChainGateway
from codezero.chain.provider import ChainClient
from codezero.chain.wallet import KeystoreWallet, transaction_fields
from codezero.errors import UnreachableError

ADDRESS = "/ip4/203.0.113.5/tcp/38331/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"


@pytest.fixture(scope="module")
def gateway(swarm: Swarm, tmp_path_factory: pytest.TempPathFactory) -> ChainGateway:
    file = tmp_path_factory.mktemp("founder") / "swarm.toml"
    file.write_text("the invitation")
    return ChainGateway([swarm.url], [swarm.contract], file)


def ask(gateway: ChainGateway, method: object, params: object, **more: object) -> dict[str, Any]:
    request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **more}
    return json.loads(gateway.answer(json.dumps(request).encode()))


def test_a_newcomer_gets_the_invitation_and_a_node_does_all_that_it_has_to(
    swarm: Swarm, gateway: ChainGateway, tmp_path: Path
) -> None:
    assert gateway.answer(b"") == b"the invitation"
    client = ChainClient([ADDRESS], swarm.chain_id, seconds=60.0, ask=lambda _, body, __: gateway.answer(body))
    wallet = KeystoreWallet.ephemeral(tmp_path / "wallet.json")
    fund(client, wallet.address)
    node = ContractCoordinator(client, swarm.contract, Sender(client, wallet))
    node.register("QmNewcomer")
    node.send("submitReward", 0, 0, 5, "QmNewcomer")
    assert (reward_of(node, 0, "QmNewcomer"), node.owners(["QmNewcomer"])) == (5, {"QmNewcomer": wallet.address})
    events = [event["event"] for page in node.history(0, ["PeerRegistered"]) for event in page.events]
    assert events == ["PeerRegistered"] and node.read_round() == swarm.owner.read_round()
    with pytest.raises(ContractError, match="already registered"):
        node.send("registerPeer", "QmNewcomer")


def test_no_code_of_a_newcomers_own_runs_here(swarm: Swarm, gateway: ChainGateway, tmp_path: Path) -> None:
    wallet = KeystoreWallet.ephemeral(tmp_path / "wallet.json")
    for to, gas in ((None, 10**6), ("0x" + 40 * "9", 10**6), (swarm.contract, 10**7)):
        raw = wallet.sign_transaction(transaction_fields(swarm.chain_id, 0, to, b"\x60" * 99, gas, 10**10, 1))
        assert ask(gateway, "eth_sendRawTransaction", [f"0x{raw.hex()}"])["error"]["code"] == -32602
    foreign = {"to": "0x" + 40 * "9", "data": "0x"}
    for method, params in (
        ("eth_call", [foreign, "latest"]),
        ("eth_call", [{"data": "0x60006000"}, "latest"]),
        ("eth_call", [{"to": swarm.contract}, "latest", {swarm.contract: {"code": "0x60006000"}}]),
        ("eth_estimateGas", [foreign]),
        ("eth_getLogs", [{"fromBlock": "0x0"}]),
        ("eth_getLogs", [{"address": []}]),
        ("eth_getLogs", [{"address": [swarm.contract, foreign["to"]]}]),
    ):
        assert ask(gateway, method, params)["error"]["code"] in (-32600, -32602), method


@pytest.mark.parametrize("method", ["eth_getStorageAt", "anvil_setBalance", "debug_traceCall", "eth_sign", "", 5, None])
def test_another_method_is_not_available(gateway: ChainGateway, method: object) -> None:
    assert ask(gateway, method, [])["error"]["code"] in (-32600, -32601)


@given(st.binary(min_size=1, max_size=300) | st.sampled_from(sorted(METHODS)).map(lambda name: name.encode()))
@example(b"[" * 100_000)
@example(b'[{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}]')
@example(b'{"id":' * 50_000)
@hypothesis_settings(max_examples=50)
def test_junk_is_a_json_rpc_error(gateway: ChainGateway, body: bytes) -> None:
    assert json.loads(gateway.answer(body))["error"]["code"] == -32600


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just("0x02c0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["to", "address", "x"]), inner),
)


@given(st.sampled_from(["eth_call", "eth_getLogs", "eth_sendRawTransaction"]), st.lists(junk, max_size=3))
@example("eth_sendRawTransaction", ["0x02" + 100_000 * "c1"])
@hypothesis_settings(max_examples=80)
def test_parameters_of_any_form_are_a_json_rpc_error(gateway: ChainGateway, method: str, params: list[object]) -> None:
    assert "error" in ask(gateway, method, params)


def test_a_flood_of_transactions_is_stopped_and_questions_go_on(
    swarm: Swarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swarm.toml").write_text("")
    monkeypatch.setattr(module, "WRITES", 3)
    gateway = ChainGateway([swarm.url], [swarm.contract], tmp_path / "swarm.toml")
    rich = swarm.owner.account
    answers = [ask(gateway, "codezero_fund", [rich]) for _ in range(5)]
    assert [answer.get("error", {}).get("code") for answer in answers] == [None, None, None, -32005, -32005]
    assert "result" in ask(gateway, "eth_blockNumber", [])


def test_a_chain_that_does_not_answer_is_a_json_rpc_error(tmp_path: Path) -> None:
    (tmp_path / "swarm.toml").write_text("")
    for urls in (["http://127.0.0.1:9"], ["https://rpc.example.org"]):
        gateway = ChainGateway(urls, [], tmp_path / "swarm.toml")
        assert ask(gateway, "eth_blockNumber", [])["error"]["code"] == -32603


def test_a_node_that_refuses_is_a_chain_that_cannot_be_reached(swarm: Swarm) -> None:
    def refuse(*_: object) -> bytes:
        raise UnreachableError("it refuses for now")

    with pytest.raises(ChainUnreachableError, match=r"the founder's node: it refuses for now"):
        _ = ChainClient([ADDRESS], swarm.chain_id, seconds=2.0, ask=refuse).eth.block_number
