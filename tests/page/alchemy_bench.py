"""A sponsored sender over a scripted service, and ways to spoil what the service prepares."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from builders_alchemy import CONTRACT, KEY, POLICY, Json, Service, Wallet, served

from codezero.chain.alchemy import Alchemy
from codezero.chain.codec import encode_call
from codezero.chain.rpc import Rpc
from codezero.chain.signed import Signed
from codezero.chain.sponsored import AlchemySender
from codezero.chain.user_operation import UserOperation

WIRE: list[Json] = json.loads(Path(__file__).with_name("alchemy_wire.json").read_text())
"""What Alchemy's own client sent to a scripted service for two registrations, and what it was answered."""
CALL = encode_call("registerPeer", "QmX")
EVIL = "0x" + "66" * 20


class Bench:
    """A sender over a service. `recorded`: what it made durable."""

    def __init__(self, service: Service, rpc: Rpc, alchemy: Alchemy) -> None:
        self.service, self.rpc, self.wallet = service, rpc, Wallet()
        self.recorded: list[Signed] = []
        self.sender = AlchemySender(rpc, self.wallet, alchemy)

    def transact(self, seconds: float = 60.0, earlier: list[Signed] | None = None) -> str:
        receipt = self.sender.transact(CONTRACT, CALL, seconds, earlier=earlier or [], record=self.recorded.append)
        return receipt.transaction_hash


@contextmanager
def bench(service: Service | None = None, **changes: Any) -> Generator[Bench]:
    with served(service or Service(**changes)) as service:
        rpc = Rpc([service.url + "/rpc"], service.chain_id)
        alchemy = Alchemy(KEY, POLICY, url=service.url + "/v2")
        try:
            yield Bench(service, rpc, alchemy)
        finally:
            alchemy.close()
            rpc.close()


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
