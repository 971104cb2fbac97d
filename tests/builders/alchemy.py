"""Alchemy's service and a chain with an entry point, both scripted, which check every signature as the real ones do.

With `devchain`, calls are simulated and executed by a real contract: the service runs an operation by sending a plain
transaction of the same account, because the embedded chain has no EIP-7702.
"""

import http.client
import json
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import msgspec
import rlp
from eth_abi import decode, encode
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_keys.datatypes import Signature
from eth_utils import keccak, to_checksum_address
from eth_utils.abi import function_signature_to_4byte_selector as selector

from codezero.chain.alchemy import ENTRY_POINT, UserOperation
from codezero.chain.provider import ChainClient
from codezero.chain.sponsored import RAN
from codezero.chain.wallet import KeystoreWallet, transaction_fields
from codezero.config import ChainConfig

KEY, POLICY, CHAIN = "an-api-key", "00000000-0000-4000-8000-000000000000", 685685
ACCOUNT = Account.from_key(b"\x11" * 32)
DELEGATE = ChainConfig().alchemy_delegates[0]
CONTRACT = "0x7745a8FE4b8D2D2c3BB103F8dCae822746F35Da0"
EXECUTE, BATCH = selector("execute(address,uint256,bytes)"), selector("executeBatch((address,uint256,bytes)[])")
Json = dict[str, Any]


class Wallet(KeystoreWallet):
    """Counts what it signs."""

    __slots__ = ("signed",)

    def __init__(self) -> None:
        super().__init__(ACCOUNT)
        self.signed = 0

    def sign_message(self, message: str | bytes) -> bytes:
        self.signed += 1
        return super().sign_message(message)

    def sign_authorization(self, chain_id: int, delegate: str, nonce: int) -> bytes:
        self.signed += 1
        signed = self._account.sign_authorization({"chainId": chain_id, "address": delegate, "nonce": nonce})
        return signed.r.to_bytes(32) + signed.s.to_bytes(32) + bytes([27 + signed.y_parity])


@dataclass
class Ran:
    transaction: str
    success: bool
    block: int


@dataclass
class Service:
    """What it does is changed by assigning to it."""

    chain_id: int = CHAIN
    devchain: ChainClient | None = None
    code: str = "0x"
    """Of the account."""
    count: int = 0
    block: int = 16
    batch: bool = False
    """Prepare executeBatch, as the service does at times."""
    tamper: Callable[[Json], object] = lambda prepared: prepared
    run: bool = True
    """Bring what is sent into a block."""
    span: int = 10**9
    """Most blocks in one question about logs."""
    answer: Callable[[str, Any], Json | bytes | tuple[int, bytes] | None] = lambda method, parameter: None
    """Instead of its own answer, where it is not None."""
    refuses: str = ""
    """Revert data of every simulated call."""
    asked: list[tuple[str, Any, str]] = field(default_factory=list[tuple[str, Any, str]])
    """Method, parameter and Authorization header, as the service was asked."""
    nonces: dict[int, int] = field(default_factory=dict[int, int])
    ran: dict[str, Ran] = field(default_factory=dict[str, Ran])
    url: str = ""

    @property
    def sent(self) -> list[Json]:
        return [parameter for method, parameter, _ in self.asked if method == "wallet_sendPreparedCalls"]

    def operation(self, call: Json) -> UserOperation:
        to, data = call["to"], bytes.fromhex(call["data"][2:])
        one = EXECUTE + encode(["address", "uint256", "bytes"], [to, 0, data])
        many = BATCH + encode(["(address,uint256,bytes)[]"], [[(to, 0, data)]])
        key = 1
        return UserOperation(
            sender=ACCOUNT.address,
            nonce=hex((key << 64) + self.nonces.get(key, 0)),
            call_data="0x" + (many if self.batch else one).hex(),
            call_gas_limit="0x2bb80",
            verification_gas_limit="0xc845",
            pre_verification_gas="0x14b74",
            max_fee_per_gas="0x1bf52290",
            max_priority_fee_per_gas=hex(secrets.randbelow(10**6)),  # so that no two are the same
            paymaster="0x2cc0c7981D846b9F2a16276556f6e8cb52BfB633",
            paymaster_data="0x" + "0b" * 77,
            paymaster_verification_gas_limit="0x74d3",
            paymaster_post_op_gas_limit="0x1",
        )

    def prepare(self, asked: Json) -> Json:
        operation = self.operation(asked["calls"][0])
        hash = operation.hash(self.chain_id)
        one = {
            "type": "user-operation-v070",
            "data": msgspec.to_builtins(operation),
            "chainId": hex(self.chain_id),
            "signatureRequest": {
                "type": "personal_sign",
                "data": {"raw": "0x" + hash.hex()},
                "rawPayload": "0x" + keccak(b"\x19Ethereum SignedTransaction Message:\n32" + hash).hex(),
            },
            "feePayment": {"sponsored": True, "tokenAddress": "0x" + "00" * 20, "maxAmount": "0x0"},
        }
        if self.code != "0x":
            return one
        first = {
            "type": "authorization",
            "data": {"address": DELEGATE, "nonce": hex(self._count())},
            "chainId": hex(self.chain_id),
            "signatureRequest": {"type": "eip7702Auth", "rawPayload": "0x" + "00" * 32},
        }
        return {"type": "array", "data": [first, one]}

    def take(self, sent: Json) -> Json:
        """A bundler: checks the signatures, runs the call, and uses up the nonce."""
        assert sent["capabilities"] == {"paymasterService": {"policyId": POLICY}}
        parts = sent["data"] if sent["type"] == "array" else [sent]
        operation = msgspec.convert(parts[-1]["data"], UserOperation)
        hash = operation.hash(self.chain_id)
        signer = Account.recover_message(encode_defunct(hash), signature=parts[-1]["signature"]["data"])
        assert signer == operation.sender == ACCOUNT.address
        if len(parts) == 2:
            assert self._authorizes(parts[0]) == ACCOUNT.address
        key, sequence = divmod(int(operation.nonce, 16), 1 << 64)
        if self.run and sequence == self.nonces.get(key, 0):
            if len(parts) == 2:
                self.code = "0xef0100" + parts[0]["data"]["address"][2:].lower()
            self.nonces[key] = sequence + 1
            self.ran["0x" + hash.hex()] = self._execute(bytes.fromhex(operation.call_data[2:]))
        id = f"0x{self.chain_id:064x}{hash.hex()}"
        return {"id": id, "preparedCallIds": [id], "details": {"type": "user-operation", "data": {}}}

    def chain(self, method: str, params: list[Any]) -> Json:
        """One question of JSON-RPC: its `result` or `error`."""
        match method:
            case "eth_chainId":
                return {"result": hex(self.chain_id)}
            case "eth_getCode" if params[0] == ACCOUNT.address:
                return {"result": self.code}
            case "eth_call" if params[0]["to"] == ENTRY_POINT:
                _, key = decode(["address", "uint192"], bytes.fromhex(params[0]["data"][10:]))
                return {"result": f"0x{(key << 64) + self.nonces.get(key, 0):064x}"}
            case "eth_getLogs" if params[0]["address"] == [ENTRY_POINT]:
                return self._logs(params[0])
            case "eth_call" if self.refuses:
                return {"error": {"code": 3, "message": "execution reverted", "data": self.refuses}}
            case _ if self.devchain is not None:
                return self._with_log(method, params, _forward(self.devchain.urls[0], method, params))
            case "eth_getTransactionReceipt":
                return self._with_log(method, params, {"result": self._receipt(params[0])})
            case "eth_getTransactionCount":
                return {"result": hex(self.count)}
            case _:
                return {"result": hex(self.block) if method == "eth_blockNumber" else "0x"}

    def _receipt(self, transaction: str) -> Json | None:
        for run in self.ran.values():
            if run.transaction == transaction:
                return {"transactionHash": transaction, "blockNumber": hex(run.block), "gasUsed": "0x1",
                        "status": "0x1", "logs": []}  # fmt: skip
        return None

    def _logs(self, wanted: Json) -> Json:
        since, last = int(wanted["fromBlock"], 16), int(wanted["toBlock"], 16)
        if last - since >= self.span:
            return {"error": {"code": -32000, "message": "block range is too large"}}
        run = self.ran.get(wanted["topics"][1])
        return {"result": [self._log(wanted["topics"][1], run)] if run and since <= run.block <= last else []}

    def _with_log(self, method: str, params: list[Any], told: Json) -> Json:
        for hash, run in self.ran.items():
            if method == "eth_getTransactionReceipt" and params == [run.transaction]:
                told["result"]["logs"] = [*told["result"]["logs"], self._log(hash, run)]
        return told

    def _log(self, hash: str, run: Ran) -> Json:
        account = "0x" + ACCOUNT.address[2:].lower().rjust(64, "0")
        data = encode(["uint256", "bool", "uint256", "uint256"], [1, run.success, 1, 1])
        return {"address": ENTRY_POINT.lower(), "topics": [RAN, hash, account], "data": "0x" + data.hex(),
                "blockNumber": hex(run.block), "logIndex": "0x0", "transactionHash": run.transaction}  # fmt: skip

    def _execute(self, call_data: bytes) -> Ran:
        if call_data[:4] == BATCH:
            [[(to, value, data)]] = decode(["(address,uint256,bytes)[]"], call_data[4:])
        else:
            to, value, data = decode(["address", "uint256", "bytes"], call_data[4:])
        assert value == 0
        if self.devchain is None:
            self.block += 1
            return Ran("0x" + secrets.token_hex(32), True, self.block)
        return self._pay(to, data)

    def _pay(self, to: str, data: bytes) -> Ran:
        """Without a Sender: that would wait for the one whose operation this is."""
        assert self.devchain is not None
        paid = transaction_fields(self.chain_id, self._count(), to_checksum_address(to), data, 2_000_000, 10**10, 1)
        raw = "0x" + KeystoreWallet(ACCOUNT).sign_transaction(paid).hex()
        hash = self.devchain.eth.send_raw_transaction(raw)
        receipt = self.devchain.eth.get_transaction_receipt(hash)
        return Ran(hash.to_0x_hex(), receipt["status"] == 1, receipt["blockNumber"])

    def _authorizes(self, part: Json) -> str:
        fields = [int(part["chainId"], 16), bytes.fromhex(part["data"]["address"][2:]), int(part["data"]["nonce"], 16)]
        assert fields[2] == self._count()
        raw = bytes.fromhex(part["signature"]["data"][2:])
        signature = Signature(raw[:64] + bytes([raw[64] - 27]))
        hash = keccak(b"\x05" + rlp.encode(fields))
        return signature.recover_public_key_from_msg_hash(hash).to_checksum_address()

    def _count(self) -> int:
        return int(self.chain("eth_getTransactionCount", [ACCOUNT.address, "latest"])["result"], 16)

    def answered(self, path: str, body: bytes, authorization: str) -> tuple[int, bytes]:
        asked = json.loads(body)
        if path == "/rpc":
            told = [{"jsonrpc": "2.0", "id": one["id"]} | self.chain(one["method"], one["params"])
                    for one in (asked if isinstance(asked, list) else [asked])]  # fmt: skip
            return 200, json.dumps(told if isinstance(asked, list) else told[0]).encode()
        method, [parameter] = asked["method"], asked["params"]
        self.asked.append((method, parameter, authorization))
        given = self.answer(method, parameter)
        if isinstance(given, tuple):
            return given
        if isinstance(given, bytes):
            return 200, given
        if given is None and method == "wallet_prepareCalls":
            given = {"result": self.tamper(self.prepare(parameter))}
        elif given is None:
            assert method == "wallet_sendPreparedCalls"
            given = {"result": self.take(parameter)}
        return 200, json.dumps({"jsonrpc": "2.0", "id": asked["id"]} | given).encode()


@contextmanager
def served(service: Service) -> Generator[Service]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = service.answered(self.path, body, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _forward(url: str, method: str, params: list[Any]) -> Json:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    try:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection.request("POST", "/", body, {"Content-Type": "application/json"})
        told = json.loads(connection.getresponse().read())
        return {name: told[name] for name in ("result", "error") if name in told}
    finally:
        connection.close()
