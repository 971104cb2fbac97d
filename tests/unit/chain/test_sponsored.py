"""Sponsored calls: the contract sees the same account, and what is lost on the way is done once."""

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.alchemy import ACCOUNT, CONTRACT, DELEGATE, KEY, POLICY, Json, Service, Wallet
from builders.node_api import contract
from fakes.alchemy_service import CALL, WIRE, Bench, bench, encode_function, rehashed

from codezero.chain.alchemy import Prepared, UnsponsoredError
from codezero.chain.contract import ContractCoordinator, deploy, fund
from codezero.chain.errors import (
    ChainUnreachableError,
    ContractError,
    RpcError,
    UnknownOutcomeError,
)
from codezero.chain.outbox_db import SignedTransaction
from codezero.chain.provider import ChainClient
from codezero.chain.sender import Sender
from codezero.chain.sponsored import AlchemySender, api_key
from codezero.chain.wallet import KeystoreWallet
from codezero.config import ChainConfig
from codezero.errors import ChainError, ConfigError, WalletError


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, ContractCoordinator]]:
    """A sponsored account in a real swarm."""
    with contract(tmp_path_factory.mktemp("swarm")) as (owner, _):
        chain = owner.coordinator.client
        fund(chain, ACCOUNT.address)
        with bench(Service(chain.chain_id, chain)) as sponsored:
            coordinator = ContractCoordinator(sponsored.client, owner.coordinator.contract, sponsored.sender)
            yield sponsored, coordinator
            coordinator.close()


def test_a_sponsored_account_registers_earns_and_votes(real: tuple[Bench, ContractCoordinator]) -> None:
    sponsored, coordinator = real
    sponsored.service.batch = False
    coordinator.register("QmS")
    assert coordinator.owners(["QmS"]) == {"QmS": ACCOUNT.address} and coordinator.account == ACCOUNT.address
    sponsored.service.batch = True
    coordinator.send("submitReward", 0, 0, 5, "QmS")
    coordinator.send("submitWinners", 0, ["QmY"], "QmS")
    assert coordinator.reward_of(0, "QmS") == 5 and coordinator.ballot_of(0, "QmS") == ["QmY"]
    assert [sent["type"] for sent in sponsored.service.sent] == ["array", *2 * ["user-operation-v070"]]
    assert sponsored.wallet.signed == 4  # the authorization once, and three operations


def test_refusals_of_the_contract_cost_no_question_to_the_service(real: tuple[Bench, ContractCoordinator]) -> None:
    sponsored, coordinator = real
    coordinator.register("QmT")
    coordinator.send("submitReward", 0, 0, 1, "QmT")
    coordinator.send("submitWinners", 0, ["QmY"], "QmT")
    asked = len(sponsored.service.asked)
    with pytest.raises(ContractError, match="already registered"):
        coordinator.send("registerPeer", "QmT")
    with pytest.raises(ContractError, match="already submitted"):
        coordinator.send("submitReward", 0, 0, 1, "QmT")
    with pytest.raises(ContractError, match="already voted"):
        coordinator.send("submitWinners", 0, ["QmY"], "QmT")
    assert len(sponsored.service.asked) == asked


def test_a_transaction_of_the_time_before_counts(real: tuple[Bench, ContractCoordinator]) -> None:
    sponsored, coordinator = real
    chain, recorded, signed = sponsored.service.devchain, [], sponsored.wallet.signed
    assert chain is not None
    data = coordinator.encode("registerPeer", "QmBefore")
    payer = Sender(chain, KeystoreWallet(ACCOUNT))
    paid = payer.transact(coordinator.contract, data, seconds=60, record=recorded.append)
    receipt = sponsored.sender.transact(coordinator.contract, data, seconds=60, earlier=recorded)
    assert receipt["transactionHash"] == paid["transactionHash"] and sponsored.wallet.signed == signed


@pytest.mark.parametrize(("peer", "first", "code"), [("QmX", 0, "0x"), ("QmY", 3, "0xef0100" + DELEGATE[2:].lower())])
def test_what_goes_out_is_what_alchemy_s_own_client_sends(peer: str, first: int, code: str) -> None:
    prepare, send = WIRE[first : first + 2]
    with bench(code=code, nonces={1: first // 3}) as here:
        given = {"wallet_prepareCalls": {"result": prepare["result"]}}
        here.service.answer = lambda method, _: given.get(method)
        here.sender.transact(CONTRACT, encode_function("registerPeer", peer), seconds=60)
        asked = {method: parameter for method, parameter, _ in here.service.asked}
    assert [asked["wallet_prepareCalls"]] == prepare["params"]
    assert [asked["wallet_sendPreparedCalls"]] == send["params"]


def test_each_answer_on_record_is_understood() -> None:
    for exchange in WIRE:
        if exchange["method"] == "wallet_prepareCalls":
            msgspec.json.decode(json.dumps(exchange["result"]), type=Prepared)


# ---- what is lost on the way


def test_what_was_recorded_is_sent_again_and_not_signed_again() -> None:
    with bench(run=False) as here:
        with pytest.raises(UnknownOutcomeError):
            here.transact(seconds=0.5)
        [killed], first = here.recorded, here.wallet.signed
    with bench(nonces={1: 0}) as here:
        transaction = here.transact(earlier=[killed])
        assert here.service.ran[killed.hash].transaction == transaction
        assert (here.wallet.signed, here.recorded, first) == (0, [], 2)


def test_what_ran_is_found_whatever_the_endpoint_allows() -> None:
    with bench(span=3) as here:
        transaction = here.transact()
        here.service.block = 40
        again = here.new_sender()
        receipt = again.transact(CONTRACT, CALL, seconds=60, earlier=here.recorded)
        assert receipt["transactionHash"].to_0x_hex() == transaction and len(here.service.sent) == 1


def test_an_operation_that_was_undone_is_no_success() -> None:
    with bench() as here:
        take = here.service.take

        def undone(sent: Json) -> Json:
            told = take(sent)
            if len(here.service.sent) == 1:
                here.service.ran["0x" + told["id"][-64:]].success = False
            return told

        here.service.take = undone  # type: ignore[method-assign]
        transaction = here.transact()
        assert len(here.recorded) == 2
        assert here.service.ran[here.recorded[1].hash].transaction == transaction


def test_what_is_stuck_is_replaced_under_its_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codezero.chain.sender.STUCK_SECONDS", 0.0)
    with bench(run=False) as here:
        take = here.service.take

        def once_more(sent: Json) -> Json:
            here.service.run = len(here.service.sent) == 2
            return take(sent)

        here.service.take = once_more  # type: ignore[method-assign]
        transaction = here.transact()
        nonces = {sent["data"][-1]["data"]["nonce"] for sent in here.service.sent if sent["type"] == "array"}
        assert len(here.recorded) == 2 and len(nonces) == 1
        assert here.service.ran[here.recorded[1].hash].transaction == transaction


def test_no_second_operation_is_signed_beside_one_that_may_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codezero.chain.sender.STUCK_SECONDS", 0.0)
    with bench(run=False) as here:
        here.service.tamper = lambda prepared: rehashed(prepared, nonce=hex(2 << 64)) if here.service.sent else prepared
        with pytest.raises(UnknownOutcomeError, match="a second operation beside one that may still be run"):
            here.transact(seconds=1.0)
        assert len(here.recorded) == 1


def test_an_outbox_s_record_fits_its_file() -> None:
    with bench() as here:
        here.transact()
        [kept] = here.recorded
        assert kept.nonce == -1 and kept.raw.startswith(b"{") and len(kept.hash) == 66
        damaged = SignedTransaction(kept.hash, kept.nonce, kept.raw[:-9])
        with pytest.raises(ChainError, match="is damaged; restore a copy"):
            here.transact(earlier=[damaged])


# ---- refusals


def test_the_contract_s_refusal_is_the_chain_s_word_and_never_the_service_s() -> None:
    refusal = "0x723dc675"
    with bench(refuses=refusal) as here, pytest.raises(ContractError, match="already registered"):
        here.transact()
    reverted = {"error": {"code": 3, "message": "reverted", "data": {"revertData": refusal}}}
    with bench(answer=lambda *_: reverted) as here, pytest.raises(RpcError, match="says: this peer id is already"):
        here.transact(seconds=0.1)


def test_what_would_be_refused_again_is_not_asked_again() -> None:
    refused = {"error": {"code": -32602, "message": "no such\npolicy"}}
    for answer, line in [((401, b"{}"), "does not accept the API key"), (refused, r"refuses: no such policy \(code")]:
        with bench(answer=lambda *_, answer=answer: answer) as here:
            with pytest.raises(UnsponsoredError, match=line):
                here.transact()
            assert len(here.service.asked) == 1


def test_a_chain_without_entry_point_is_named() -> None:
    with bench() as here:
        chain = here.service.chain
        here.service.chain = lambda method, params: (  # type: ignore[method-assign]
            {"result": "0x"} if method == "eth_call" else chain(method, params)
        )
        with pytest.raises(ChainUnreachableError, match="no entry point"):
            here.transact(seconds=0.1)


def test_a_sponsored_account_deploys_nothing() -> None:
    with bench() as here, pytest.raises(ChainError, match="deploys nothing"):
        deploy(here.sender)


# ---- the key


def test_the_key_goes_into_one_header_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with bench() as here:
        here.transact()
        assert {authorization for _, _, authorization in here.service.asked} == {f"Bearer {KEY}"}
        assert KEY not in repr(here.sender) and KEY not in repr(here.service.asked[0][1])
        here.service.answer = lambda *_: (401, b"{}")
        with pytest.raises(UnsponsoredError) as caught:
            here.sender.transact(CONTRACT, CALL + bytes(32), seconds=5)
    assert KEY not in caplog.text and KEY not in str(caught.value) and KEY not in repr(here.recorded)


def test_the_key_comes_from_a_private_file_or_once_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o644)
    with pytest.raises(WalletError, match="open to other users"):
        api_key(str(path))
    path.chmod(0o600)
    assert api_key(str(path)) == KEY
    monkeypatch.setenv("ALCHEMY", KEY)
    assert api_key("", "ALCHEMY") == KEY and "ALCHEMY" not in os.environ
    with pytest.raises(ConfigError, match="ALCHEMY holds no API key"):
        api_key("", "ALCHEMY")


@pytest.mark.parametrize("text", ["", " ", "two words", "line\nline", "ünïcode", "x" * 300])
def test_what_is_no_key_is_not_put_into_a_header(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("ALCHEMY", text)
    with pytest.raises(ConfigError) as caught:
        api_key("", "ALCHEMY")
    assert not text.strip() or text.strip() not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"alchemy_policy": "mine"}, "chain.alchemy_policy is no policy id"),
        ({"alchemy_delegates": ["0x12"]}, "chain.alchemy_delegates"),
        ({"alchemy_url": "http://example.org/v2"}, "use https"),
        ({}, "holds no API key"),
    ],
)
def test_a_wrong_setting_is_named(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        config = ChainConfig(**{"alchemy_policy": POLICY} | changes)
        AlchemySender(ChainClient(["http://127.0.0.1:9"], 1), Wallet(), config)
