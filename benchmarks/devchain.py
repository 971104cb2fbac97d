"""What the embedded chain costs: its start, a transaction, a call, and the size of its database after many rounds.

Each round every peer submits a reward and a vote, as nodes do, over HTTP to a chain in a process of its own; every
peer has an account and is funded by the faucet. Signing is not counted into the time of a transaction. Nothing else is
simulated. The size is that of all files of the database after the chain was closed.

    codezero bench devchain --rounds 1000 --json
"""

import argparse
import http.client
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from eth_account import Account
from web3 import Web3

from codezero.chain.contract import read_artifact
from codezero.chain.devchain_process import DevChainHandle
from codezero.chain.devchain_server import DATABASE


def say(text: str) -> None:
    print(f"devchain: {text}", file=sys.stderr, flush=True)


class Rpc:
    """JSON-RPC on one kept connection, so that it is the chain that is measured."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=120)
        self.chain_id = int(self.ask("eth_chainId"), 16)

    def ask(self, method: str, *params: Any) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        self._connection.request("POST", "/", body, {"Content-Type": "application/json"})
        answer = json.loads(self._connection.getresponse().read())
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        return answer["result"]


class Peer:
    """An account that signs its own transactions."""

    def __init__(self, rpc: Rpc, number: int) -> None:
        self.rpc, self.account, self.nonce = rpc, Account.create(), 0
        self.name = f"Qm{number:044d}"
        self.seconds: list[float] = []
        rpc.ask("codezero_fund", self.account.address)

    def send(self, to: str | None, data: str, gas: int = 1_000_000) -> dict[str, Any]:
        tx = {"chainId": self.rpc.chain_id, "nonce": self.nonce, "data": data, "value": 0, "gas": gas}
        tx |= {"maxFeePerGas": 3_000_000, "maxPriorityFeePerGas": 1_000_000} | ({} if to is None else {"to": to})
        raw = self.account.sign_transaction(tx).raw_transaction
        began = time.perf_counter()
        receipt = self.rpc.ask("eth_getTransactionReceipt", self.rpc.ask("eth_sendRawTransaction", "0x" + raw.hex()))
        self.seconds.append(time.perf_counter() - began)
        self.nonce += 1
        if receipt["status"] != "0x1":
            raise SystemExit("a transaction was refused")
        return receipt


def play(url: str, rounds: int, peers: int) -> dict[str, Any]:
    rpc = Rpc(url)
    artifact = read_artifact()
    people = [Peer(rpc, number) for number in range(peers)]
    founder = people[0]
    factory = Web3().eth.contract(abi=artifact.abi, bytecode=artifact.bytecode)
    code = factory.constructor(founder.account.address).data_in_transaction
    address = Web3.to_checksum_address(founder.send(None, code, gas=10_000_000)["contractAddress"])
    contract = Web3().eth.contract(address, abi=artifact.abi)

    def act(peer: Peer, name: str, *values: Any) -> None:
        peer.send(address, contract.encode_abi(name, list(values)))

    def look(name: str) -> int:
        return int(rpc.ask("eth_call", {"to": address, "data": contract.encode_abi(name, [])}, "latest"), 16)

    for peer in people:
        act(peer, "registerPeer", peer.name)
    stages = look("stageCount")
    for number in range(rounds):
        for place, peer in enumerate(people):
            act(peer, "submitReward", number, 0, number + place, peer.name)
            act(peer, "submitWinners", number, [people[(place + 1) % peers].name], peer.name)
        for _ in range(stages):
            act(founder, "updateStageAndRound")
        if number % 100 == 99:
            say(f"round {number + 1} of {rounds}")
    seconds = [one for peer in people for one in peer.seconds]
    calls: list[float] = []
    for _ in range(200):
        began = time.perf_counter()
        assert look("currentRound") == rounds
        calls.append(time.perf_counter() - began)
    return {
        "transactions": len(seconds),
        "transaction_ms_p50": round(1000 * statistics.median(seconds), 1),
        "transaction_ms_p99": round(1000 * statistics.quantiles(seconds, n=100)[98], 1),
        "call_ms_p50": round(1000 * statistics.median(calls), 1),
    }


def measure(rounds: int, peers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        starts: dict[str, float] = {}
        for name in ("new", "again"):
            began = time.perf_counter()
            with DevChainHandle(path) as chain:
                rpc = Rpc(chain.url)
                starts[f"start_{name}_to_first_answer_s"] = round(time.perf_counter() - began, 2)
                rpc.ask("eth_call", {"to": "0x" + "11" * 20}, "latest")
                starts[f"start_{name}_to_first_call_s"] = round(time.perf_counter() - began, 2)
        with DevChainHandle(path) as chain:
            played = play(chain.url, rounds, peers)
        size = sum(file.stat().st_size for file in path.glob(f"{DATABASE}*"))
    return {"rounds": rounds, "peers": peers, "database_mb": round(size / 1e6, 1)} | played | starts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    measured = measure(options.rounds, options.peers)
    if options.json:
        print(json.dumps(measured))
    else:
        for name, value in measured.items():
            print(f"{name:34} {value}")


if __name__ == "__main__":
    main()
