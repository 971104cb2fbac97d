"""Calls of an account for which somebody else pays: signed here as user operations, brought to the chain by Alchemy.

The account is the same as without (EIP-7702): its address follows a contract, and that contract calls in its name.
`sender.py` keeps its promises: a new operation is signed only when the old one can never be run, or under its nonce.
"""

import itertools
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from eth_abi.abi import encode
from eth_utils.abi import function_signature_to_4byte_selector as selector
from eth_utils.address import is_address, to_checksum_address
from eth_utils.crypto import keccak
from web3.types import LogReceipt, TxReceipt

from codezero.chain.alchemy import ENTRY_POINT, UNREQUESTED, Prepared, UnsponsoredError, checked
from codezero.chain.bounded_http import UNDECODABLE, check_url, header_token, post, shown
from codezero.chain.contract import log_pages
from codezero.chain.errors import ChainUnreachableError, RpcError, printable, refusal
from codezero.chain.outbox_db import SignedTransaction
from codezero.chain.provider import FINAL, ChainClient, RpcFailure, read_answer
from codezero.chain.sender import Sender, TransactionState
from codezero.chain.wallet import KeystoreWallet
from codezero.config import ChainConfig
from codezero.errors import ChainError, ConfigError, translated
from codezero.system.files import read_private

POLICY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
MAX_KEY, MAX_ANSWER = 256, 512 << 10  # bytes
SECONDS = 15.0  # for one request to the service
MAX_PAGES = 200  # of the entry point's logs, searched for one operation
RAN = "0x" + keccak(text="UserOperationEvent(bytes32,address,address,uint256,bool,uint256,uint256)").hex()
"""Topic of the event that the entry point emits for each operation that it ran."""
OPERATION = -1
"""In the place of a transaction's nonce: what was signed is an operation."""


class _Recorded(msgspec.Struct, frozen=True):
    """A signed operation as it is recorded."""

    hash: str
    operation: dict[str, Any]
    """As it was prepared, with a signature; beside it the signed `authorization`, None for none."""
    since: int
    """The block after which it can have been run."""

    @property
    def nonce(self) -> int:
        """Nonces of one key, its upper bits, are used in order."""
        return int(self.operation["data"]["nonce"], 16)


class AlchemySender(Sender):
    """As Sender, sponsored as `config` says. Deploys nothing; the key goes into one header only. Raises ConfigError."""

    PAUSES = 0.25, 4.0  # the service counts its requests
    HOPELESS = (UnsponsoredError,)

    def __init__(self, client: ChainClient, wallet: KeystoreWallet, config: ChainConfig) -> None:
        super().__init__(client, wallet)
        if not POLICY.match(config.alchemy_policy):
            raise ConfigError("chain.alchemy_policy is no policy id; copy it from the gas manager's page")
        for delegate in config.alchemy_delegates:
            if not is_address(delegate):
                raise ConfigError(f"chain.alchemy_delegates: {delegate[:50]!r} is no address")
        self._signer, self._url = wallet, check_url(config.alchemy_url, "chain.alchemy_url")
        self._delegates = set(map(str.lower, config.alchemy_delegates))
        paymaster = {"paymasterService": {"policyId": config.alchemy_policy}}
        self._capabilities: dict[str, Any] = {"capabilities": paymaster}
        self._headers = {"Authorization": f"Bearer {api_key(config.alchemy_key_file, config.alchemy_key_variable)}"}
        self._ids = itertools.count(1)

    def _read_state(self, signed: Sequence[SignedTransaction]) -> TransactionState:
        """Transactions count too: they are of earlier, when the account paid for itself."""
        state = super()._read_state([transaction for transaction in signed if transaction.nonce != OPERATION])
        if state.receipt is not None or state.waiting is not None:
            return state
        for transaction in signed:
            if transaction.nonce != OPERATION:
                continue
            operation = _parsed(transaction)
            if self._next_nonce(operation.nonce >> 64) <= operation.nonce:
                state = TransactionState(waiting=transaction)
            elif (receipt := self._receipt_of_operation(operation)) is not None:
                return TransactionState(receipt=receipt)
        return state

    def _receipt_of_operation(self, operation: _Recorded) -> TxReceipt | None:
        """Of the transaction in which the operation ran with success, found in the entry point's logs."""
        pages = log_pages(self.client, ENTRY_POINT, [RAN, operation.hash], operation.since)
        for _, logs, _ in itertools.islice(pages, MAX_PAGES):
            for log in logs[:4]:
                receipt = self._receipt_of(log["transactionHash"].to_0x_hex())
                if receipt and any(_shows_success(event, operation.hash) for event in receipt["logs"]):
                    return receipt
        return None

    def _next_nonce(self, key: int) -> int:
        """Of the account's next operation with this key, the key included."""
        data = selector("getNonce(address,uint192)") + encode(["address", "uint192"], [self.address, key])
        raw = self.client.eth.call({"to": ENTRY_POINT, "data": data})
        if len(raw) != 32:
            raise ChainUnreachableError(f"this chain has no entry point for operations at {ENTRY_POINT}")
        return int.from_bytes(raw)

    def _sign(self, to: str | None, data: bytes, state: TransactionState, raises: int) -> SignedTransaction:
        """Simulates the call first; replaces what waits, under its nonce. Raises ContractError, UnsponsoredError."""
        if to is None:
            raise ChainError("a sponsored account deploys nothing; deploy with an account that pays for itself")
        eth, chain_id, account = self.client.eth, self.client.chain_id, self.address
        eth.call(self._call(to, data))
        code, count, since = bytes(eth.get_code(account)), eth.get_transaction_count(account), eth.block_number
        calls = [{"to": to, "data": "0x" + data.hex()}]
        request = {"calls": calls, "from": account, "chainId": hex(chain_id), **self._capabilities}
        prepared: Prepared = self._request("wallet_prepareCalls", request, Prepared)
        authorization, operation = checked(prepared, account, chain_id, to, data, self._delegates, code, count)
        nonce = int(operation.data.nonce, 16)
        if state.waiting is not None and nonce != _parsed(state.waiting).nonce:
            raise UnsponsoredError(f"{UNREQUESTED}a second operation beside one that may still be run")
        if nonce != self._next_nonce(nonce >> 64):
            raise UnsponsoredError(f"{UNREQUESTED}its nonce is not the account's next")
        permit = None
        if authorization is not None:
            delegate = to_checksum_address(authorization.data.address)
            signature = self._signer.sign_authorization(chain_id, delegate, count)
            permit = _signed("authorization", authorization.data, chain_id, signature)
        hash = operation.data.hash(chain_id)
        signed = _signed("user-operation-v070", operation.data, chain_id, self._signer.sign_message(hash))
        recorded = _Recorded("0x" + hash.hex(), signed | {"authorization": permit}, since)
        return SignedTransaction(recorded.hash, OPERATION, msgspec.json.encode(recorded))

    def _publish(self, signed: SignedTransaction) -> None:
        if signed.nonce != OPERATION:
            return super()._publish(signed)
        body = _parsed(signed).operation
        if (permit := body.pop("authorization", None)) is not None:
            body = {"type": "array", "data": [permit, body]}
        self._request("wallet_sendPreparedCalls", body | self._capabilities, Any)

    def _stuck(self, signed: SignedTransaction) -> bool:
        """A transaction of earlier is never replaced: an operation beside it could do the same again."""
        return signed.nonce == OPERATION and super()._stuck(signed)

    def _request(self, method: str, parameter: object, form: Any) -> Any:
        """A `form`. What is sent may be taken even so. Raises ChainUnreachableError, UnsponsoredError, RpcError."""
        id, where, seconds = next(self._ids), shown(self._url), min(SECONDS, max(1.0, self._until - time.monotonic()))
        body = msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": [parameter]})
        status, raw = post(self._url, body, seconds, self._headers, MAX_ANSWER)
        if status in (401, 403):
            raise UnsponsoredError(f"{where} does not accept the API key; write a valid one into its file")
        if status == 429:
            raise ChainUnreachableError(f"{where} has had enough requests for now")
        result = read_answer(where, status, raw, id, form)
        if not isinstance(result, RpcFailure):
            return result
        if result.code in FINAL:
            raise UnsponsoredError(f"{where} refuses: {printable(result.message)} (code {result.code})")
        # never a ContractError: the chain itself was asked before, and only the chain is believed
        text = f" says: {revert}" if (revert := refusal("", result.data)) else f": {printable(result.message)}"
        raise RpcError(result.code, where + text)


def api_key(file: str, variable: str = "") -> str:
    """From a file that only its owner reads, or out of the environment. Raises ConfigError, WalletError."""
    raw = read_private(Path(file), MAX_KEY) if file else os.environ.pop(variable, "").encode(errors="surrogateescape")
    key = header_token(raw)
    if key is None or len(key) > MAX_KEY:
        source = file or f"the environment variable {variable}"
        raise ConfigError(f"{source} holds no API key; write the key of the app on one line")
    return key


def _shows_success(log: LogReceipt, hash: str) -> bool:
    """The event's data is four words: nonce, success, cost, gas."""
    topics = [topic.to_0x_hex() for topic in log["topics"][:2]]
    right = log["address"].lower() == ENTRY_POINT.lower() and topics == [RAN, hash] and len(log["data"]) == 128
    return right and int.from_bytes(log["data"][32:64]) == 1


def _signed(kind: str, data: msgspec.Struct, chain_id: int, signature: bytes) -> dict[str, Any]:
    """As it was prepared, with r, s and v as 65 bytes."""
    form = {"type": "secp256k1", "data": "0x" + signature.hex()}
    return {"type": kind, "data": msgspec.to_builtins(data), "chainId": hex(chain_id), "signature": form}


def _parsed(signed: SignedTransaction) -> _Recorded:
    damaged = f"the record of operation {signed.hash} is damaged; restore a copy of the outbox"
    with translated(ChainError, damaged, *UNDECODABLE, reason=False):
        return msgspec.json.decode(signed.raw, type=_Recorded)
