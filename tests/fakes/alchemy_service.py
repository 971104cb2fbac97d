"""A sponsored sender over a scripted service, and ways to spoil what the service prepares."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from builders.alchemy import CONTRACT, KEY, POLICY, Json, Service, Wallet, served

from codezero.chain.alchemy import UserOperation
from codezero.chain.contract import ContractCoordinator
from codezero.chain.outbox_db import SignedTransaction
from codezero.chain.provider import ChainClient
from codezero.chain.sponsored import AlchemySender
from codezero.config import ChainConfig

WIRE: list[Json] = json.loads(Path(__file__).with_name("alchemy_wire.json").read_text())
"""What Alchemy's own client sent to a scripted service for two registrations, and what it was answered."""
EVIL = "0x" + "66" * 20


def encode_function(name: str, *arguments: object) -> bytes:
    client = ChainClient(["http://127.0.0.1:9"], 1)
    return ContractCoordinator(client, CONTRACT).encode(name, *arguments)


CALL = encode_function("registerPeer", "QmX")


class Bench:
    """A sender over a service. `recorded`: what it made durable."""

    def __init__(self, service: Service, client: ChainClient) -> None:
        self.service, self.client, self.wallet = service, client, Wallet()
        self.recorded: list[SignedTransaction] = []
        self.sender = self.new_sender()

    def new_sender(self) -> AlchemySender:
        config = ChainConfig(
            alchemy_policy=POLICY, alchemy_url=self.service.url + "/v2", alchemy_key_variable="ALCHEMY"
        )
        with patch.dict("os.environ", ALCHEMY=KEY):
            return AlchemySender(self.client, self.wallet, config)

    def transact(self, seconds: float = 60.0, earlier: list[SignedTransaction] | None = None) -> str:
        receipt = self.sender.transact(
            CONTRACT, CALL, seconds=seconds, earlier=earlier or [], record=self.recorded.append
        )
        return receipt["transactionHash"].to_0x_hex()


@contextmanager
def bench(service: Service | None = None, **changes: Any) -> Generator[Bench]:
    with served(service or Service(**changes)) as service:
        client = ChainClient([service.url + "/rpc"], service.chain_id)
        yield Bench(service, client)


def rehashed(prepared: Json, **changes: object) -> Json:
    """Its operation changed, with the hash that then belongs to it."""
    one = prepared["data"][-1] if prepared["type"] == "array" else prepared
    one["data"] |= changes
    hash = msgspec.convert(one["data"], UserOperation).hash(int(one["chainId"], 16))
    one["signatureRequest"]["data"]["raw"] = "0x" + hash.hex()
    return prepared


def put(path: str, value: object) -> Callable[[Json], Json]:
    def tamper(prepared: Json) -> Json:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        inner: Any = prepared
        for part in parents:
            inner = inner[part]
        inner[last] = value
        return prepared

    return tamper
