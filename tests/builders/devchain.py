"""A tiny contract in bytecode, an account that signs, and JSON-RPC by hand, for tests of the embedded chain."""

import contextlib
import http.client
import itertools
import json
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from eth_account import Account

from codezero.chain.devchain_process import DevChainHandle

GWEI = 10**9
TOPIC = 0x11
WRITE, READ, CUSTOM, WORDS, FOREVER, INVALID = (bytes([number]) for number in range(1, 7))
"""First byte of the calldata: what the tiny contract does."""
CUSTOM_DATA = "0xdeadbeef" + f"{7:064x}"
WORDS_DATA = "0x08c379a0" + f"{32:064x}" + f"{2:064x}" + b"no".ljust(32, b"\0").hex()


def push(value: int | str) -> bytes:
    raw = bytes.fromhex(value) if isinstance(value, str) else value.to_bytes(max(1, (value.bit_length() + 7) // 8))
    return bytes([0x5F + len(raw)]) + raw


def stored(data: str) -> bytes:
    """Code that puts `data` (hexadecimal) into memory from 0 on, a word at a time."""
    words = [data[at : at + 64].ljust(64, "0") for at in range(0, len(data), 64)]
    return b"".join(push(word) + push(32 * number) + b"\x52" for number, word in enumerate(words))


def reverting(data: str) -> bytes:
    return stored(data[2:]) + push(len(data) // 2 - 1) + push(0) + b"\xfd"


def tiny_runtime() -> bytes:
    """By the first byte: write and emit a word; return it; revert in two ways; loop; an invalid instruction."""
    argument = push(1) + b"\x35"  # CALLDATALOAD(1)
    write = argument + push(0) + b"\x55" + argument + push(0) + b"\x52"  # SSTORE(0, it); MSTORE(0, it)
    write += b"\x33" + push(TOPIC) + push(32) + push(0) + b"\xa2\x00"  # LOG2(0, 32, TOPIC, CALLER)
    read = push(0) + b"\x54" + push(0) + b"\x52" + push(32) + push(0) + b"\xf3"
    bodies = [write, read, reverting(CUSTOM_DATA), reverting(WORDS_DATA), b"", b"\xfe"]
    head, tail = push(0) + b"\x35" + push(0xF8) + b"\x1c", b""  # CALLDATALOAD(0) >> 248
    head_size = len(head) + len(bodies) * 8 + 1
    for number, body in enumerate(bodies, 1):
        at = head_size + len(tail)
        if not body:
            body = b"\x61" + at.to_bytes(2) + b"\x56"  # jump to its own beginning
        head += b"\x80" + push(number) + b"\x14" + b"\x61" + at.to_bytes(2) + b"\x57"
        tail += b"\x5b" + body
    assert len(head) + 1 == head_size
    return head + b"\x00" + tail


def deploying(runtime: bytes) -> bytes:
    """Code that creates a contract with this runtime code."""
    size = b"\x61" + len(runtime).to_bytes(2)
    start = size + push(0x0E) + push(0) + b"\x39" + size + push(0) + b"\xf3"
    assert len(start) == 0x0E
    return start + runtime


def argument(number: int) -> bytes:
    return number.to_bytes(32)


class RpcFailure(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")


class Client:
    def __init__(self, handle: DevChainHandle) -> None:
        self.chain_id = handle.chain_id
        self.port = int(handle.url.rsplit(":", 1)[1])
        self._ids = itertools.count()

    def post(self, body: bytes, headers: dict[str, str] | None = None, method: str = "POST") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, "/", body, {"Content-Type": "application/json"} | (headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def ask(self, method: str, *params: object) -> Any:
        """Raises RpcFailure."""
        request = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        status, body = self.post(json.dumps(request).encode())
        answer = json.loads(body)
        assert status == 200 and answer["id"] == request["id"] and answer["jsonrpc"] == "2.0"
        if "error" in answer:
            raise RpcFailure(answer["error"])
        return answer["result"]


class Sender:
    """An account that the faucet has filled."""

    def __init__(self, client: Client, fund: bool = True) -> None:
        self.client, self.account = client, Account.create()
        self.address: str = self.account.address
        if fund:
            client.ask("codezero_fund", self.address)

    def nonce(self) -> int:
        return int(self.client.ask("eth_getTransactionCount", self.address, "pending"), 16)

    def sign(self, to: str | None = None, data: bytes = b"", **fields: Any) -> str:
        nonce = fields["nonce"] if "nonce" in fields else self.nonce()
        tx = {"chainId": self.client.chain_id, "nonce": nonce, "gas": 1_000_000, "value": 0, "data": data}
        if "gasPrice" not in fields:
            tx |= {"maxFeePerGas": GWEI, "maxPriorityFeePerGas": 1}
        if to is not None:
            tx["to"] = bytes.fromhex(to[2:])
        return self.account.sign_transaction(tx | fields).raw_transaction.to_0x_hex()

    def send(self, to: str | None = None, data: bytes = b"", **fields: Any) -> dict[str, Any]:
        """Sign, send, and return the receipt."""
        tx_hash = self.client.ask("eth_sendRawTransaction", self.sign(to, data, **fields))
        return self.client.ask("eth_getTransactionReceipt", tx_hash)

    def deploy_tiny(self) -> str:
        """Its address."""
        receipt = self.send(None, deploying(tiny_runtime()))
        assert receipt["status"] == "0x1"
        return receipt["contractAddress"]

    def call(self, to: str, data: bytes, **fields: Any) -> dict[str, Any]:
        return {"from": self.address, "to": to, "data": "0x" + data.hex()} | fields


def write_in_parallel(client: Client, batches: list[list[str]]) -> list[Future[list[str]]]:
    """Send each batch of signed transactions in a thread; the result is the hashes whose receipts came."""

    def write(raws: list[str]) -> list[str]:
        hashes: list[str] = []
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):  # the chain is gone
            for raw in raws:
                tx_hash = client.ask("eth_sendRawTransaction", raw)
                assert client.ask("eth_getTransactionReceipt", tx_hash)["status"] == "0x1"
                hashes.append(tx_hash)
        return hashes

    pool = ThreadPoolExecutor(len(batches))
    return [pool.submit(write, raws) for raws in batches]
