"""web3's connection to one chain through one or several endpoints, which are tried in turn and not trusted.

An endpoint is taken for the chain only when `eth_chainId` says so; what it calls itself is never asked. It can refuse
to answer and it can lie about the chain, but it cannot fill memory, hold a caller longer than the deadline, send a
request elsewhere, or make one fail in an unnamed way. What a lie could cost is bounded in `sender.py`.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import msgspec
from eth_abi.codec import ABICodec
from eth_abi.decoding import StringDecoder
from eth_abi.encoding import TextStringEncoder
from eth_abi.registry import BaseEquals
from eth_abi.registry import registry as default_registry
from msgspec import Meta
from web3 import Web3
from web3.providers.base import JSONBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from codezero.chain.bounded_http import UNDECODABLE, BoundedHttp, check_url, shown
from codezero.chain.errors import ChainUnreachableError, RpcError, WrongChainError, refusal
from codezero.errors import ChainError, ConfigError
from codezero.system.signals import backoff

SECONDS = 10.0
PASSES = 4
"""How often a request goes round all endpoints before it counts as unanswered, while there is time."""
PAUSE = 0.1
"""Seconds after the first pass; see `backoff`."""
TROUBLE = frozenset({-32603, -32005, -32016, -32097})
"""JSON-RPC: internal error, limits. The endpoint counts as unreachable."""
FINAL = frozenset({-32600, -32601, -32602, -32700})
"""JSON-RPC: no such method or parameters. Another try would not help."""
PROVEN_SECONDS = 10.0
"""The chain id of an endpoint that failed is checked again, unless it was checked this recently."""

Quantity = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{1,64}$")]
Bytes = Annotated[str, Meta(pattern="^0x([0-9a-fA-F]{2})*$", max_length=2 * (64 << 10) + 2)]
"""Return and event data: at most 64 KiB, so that nested pointers in it cannot be decoded into gigabytes."""
Hash = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{64}$")]
Address = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$")]


class _Block(msgspec.Struct, frozen=True, rename="camel"):
    number: Quantity
    timestamp: Quantity
    base_fee_per_gas: Quantity | None = None


class _Log(msgspec.Struct, frozen=True, rename="camel"):
    address: Address
    topics: Annotated[list[Hash], Meta(max_length=4)]
    data: Bytes
    block_number: Quantity
    log_index: Quantity
    transaction_hash: Hash
    transaction_index: Quantity | None = None
    block_hash: Hash | None = None


class _Receipt(msgspec.Struct, frozen=True, rename="camel"):
    transaction_hash: Hash
    block_number: Quantity
    gas_used: Quantity
    status: Quantity
    contract_address: Address | None = None
    logs: Annotated[list[_Log], Meta(max_length=4096)] = []


RESULTS: Mapping[str, Any] = {
    "eth_blockNumber": Quantity,
    "eth_call": Bytes,
    "eth_chainId": Quantity,
    "eth_estimateGas": Quantity,
    "eth_getBalance": Quantity,
    "eth_getBlockByNumber": _Block,
    "eth_getCode": Bytes,
    "eth_getLogs": list[_Log],
    "eth_getTransactionCount": Quantity,
    "eth_getTransactionReceipt": _Receipt | None,
    "eth_maxPriorityFeePerGas": Quantity,
    "eth_sendRawTransaction": Hash,
}
"""By method: the form of its result. Fields that are not named here are dropped before web3 sees them."""


class RpcFailure(msgspec.Struct, frozen=True):
    """The error object of JSON-RPC."""

    code: int
    message: str
    data: object = None


class RpcAnswer(msgspec.Struct, frozen=True):
    """One answer of JSON-RPC."""

    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: RpcFailure | None = None


@dataclass(slots=True)
class _Endpoint:
    url: str
    failed: bool = True
    """It has not answered yet, or not the last time."""
    proven_at: float = float("-inf")
    """When it last answered with the expected chain id. time.monotonic()."""
    singly: bool = False
    """It takes no batches."""


class BoundedProvider(JSONBaseProvider):
    """See the module. `seconds` bounds every request as a whole, over all endpoints; safe to use from several threads.

    A request raises ContractError, RpcError, ChainUnreachableError, WrongChainError, which pass through web3 unchanged.
    """

    global_ccip_read_enabled = False  # no answer makes this process send a request to an address of its choice

    def __init__(self, urls: Sequence[str], chain_id: int, seconds: float, plain_http: bool) -> None:
        if not urls:
            raise ConfigError("chain.rpc_urls is empty; give an address like http://127.0.0.1:8545")
        super().__init__()
        self.chain_id, self.seconds = chain_id, seconds
        self._endpoints = [_Endpoint(check_url(url, "chain.rpc_urls", plain_http=plain_http)) for url in urls]
        self._first = 0
        """The endpoint that answered last."""
        self._http = BoundedHttp()
        self.request_counter = itertools.count(1)

    @property
    def urls(self) -> list[str]:
        """In the order in which they were given."""
        return [endpoint.url for endpoint in self._endpoints]

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        return self.make_batch_request([(method, params)])[0]

    def make_batch_request(self, requests: list[tuple[RPCEndpoint, Any]]) -> list[RPCResponse]:
        """All in one exchange, so that they are answered about the same moment. Raises the first failure."""
        results = self._request(requests)
        for result in results:
            if isinstance(result, ChainError):
                raise result
        return [cast(RPCResponse, {"jsonrpc": "2.0", "id": 0, "result": result}) for result in results]

    def close(self) -> None:
        self._http.close()

    def _request(self, requests: Sequence[tuple[str, Any]]) -> list[Any]:
        """Results, or a ContractError or RpcError in the place of one. Raises the other errors."""
        until = time.monotonic() + self.seconds
        reasons: dict[str, ChainError] = {}
        # A signed transaction is offered once: whether it was taken is for `sender.py` to see on the chain.
        for attempt in range(1 if requests[0][0] == "eth_sendRawTransaction" else PASSES):
            if attempt:
                pause = backoff(attempt, PAUSE, self.seconds)
                if time.monotonic() + pause >= until:
                    break
                time.sleep(pause)
            for turn in range(len(self._endpoints)):
                index = (self._first + turn) % len(self._endpoints)
                endpoint = self._endpoints[index]
                share = (until - time.monotonic()) / (len(self._endpoints) - turn)
                if share <= 0:
                    break
                try:
                    results = self._request_from(endpoint, requests, time.monotonic() + share)
                except (ChainUnreachableError, WrongChainError, RpcError) as error:
                    endpoint.failed = True
                    reasons[endpoint.url] = error
                    continue
                endpoint.failed = False
                self._first = index
                return results
        raise _summary(list(reasons.values()))

    def _request_from(self, endpoint: _Endpoint, requests: Sequence[tuple[str, Any]], until: float) -> list[Any]:
        """Raises ChainUnreachableError, WrongChainError, RpcError: try another endpoint."""
        if endpoint.failed and time.monotonic() - endpoint.proven_at >= PROVEN_SECONDS:
            self._prove(endpoint, until)
        answers = self._exchange(endpoint, requests, until)
        results = [_read(answer, method, endpoint) for answer, (method, _) in zip(answers, requests, strict=True)]
        for result in results:
            if isinstance(result, RpcError) and result.code in TROUBLE:
                raise ChainUnreachableError(f"{shown(endpoint.url)} is in trouble: {result}")
            if isinstance(result, RpcError) and result.code not in FINAL:
                raise result
        return results

    def _prove(self, endpoint: _Endpoint, until: float) -> None:
        result = _read(self._exchange(endpoint, [("eth_chainId", [])], until)[0], "eth_chainId", endpoint)
        if isinstance(result, ChainError):
            raise ChainUnreachableError(f"{shown(endpoint.url)} does not say its chain id ({result})")
        if int(result, 16) != self.chain_id:
            raise WrongChainError(
                f"{shown(endpoint.url)} serves chain {int(result, 16)}, not {self.chain_id}; correct chain.rpc_urls"
            )
        endpoint.proven_at = time.monotonic()

    def _exchange(self, endpoint: _Endpoint, requests: Sequence[tuple[str, Any]], until: float) -> list[RpcAnswer]:
        """In the order of `requests`. Raises ChainUnreachableError."""
        if endpoint.singly and len(requests) > 1:
            return [self._exchange(endpoint, [request], until)[0] for request in requests]
        bodies: list[Any] = [
            {"jsonrpc": "2.0", "id": next(self.request_counter), "method": method, "params": params}
            for method, params in requests
        ]
        body = Web3.to_json(cast(Any, bodies if len(bodies) > 1 else bodies[0])).encode()
        status, raw = self._http.post(endpoint.url, body, until - time.monotonic())
        try:
            answers = msgspec.json.decode(raw, type=list[RpcAnswer] | RpcAnswer)
        except UNDECODABLE as error:
            what = f"with HTTP {status}" if status != 200 else "with what is no JSON-RPC"
            raise ChainUnreachableError(f"{shown(endpoint.url)} answers {what}") from error
        if isinstance(answers, RpcAnswer):
            answers = [answers]
        if len(bodies) > 1 and len(answers) == 1 and answers[0].error is not None:
            if answers[0].error.code not in FINAL:
                return answers * len(bodies)
            endpoint.singly = True
            return self._exchange(endpoint, requests, until)
        by_id = {answer.id: answer for answer in answers}
        if set(by_id) != {request["id"] for request in bodies} or len(answers) != len(bodies):
            raise ChainUnreachableError(f"{shown(endpoint.url)} answers other questions than were asked")
        return [by_id[request["id"]] for request in bodies]


class _AnyText(StringDecoder):
    """The contract holds strangers' text, which need not be UTF-8: one bad name must not hide a whole leaderboard."""

    def __init__(self) -> None:
        super().__init__(handle_string_errors="replace")


class ChainClient(Web3):
    """web3 for one chain, bounded as the module says.

    plain_http: allow http to other machines (loopback may always use it); meant for a network of one's own.
    """

    def __init__(
        self, urls: Sequence[str], chain_id: int, *, seconds: float = SECONDS, plain_http: bool = False
    ) -> None:
        self.bounded = BoundedProvider(urls, chain_id, seconds, plain_http)
        super().__init__(self.bounded, middleware=[])
        registry: Any = default_registry.copy()
        registry.unregister("string")
        registry.register(BaseEquals("string"), TextStringEncoder, _AnyText, label="string")
        self.codec = ABICodec(registry)

    @property
    def chain_id(self) -> int:
        return self.bounded.chain_id

    @property
    def urls(self) -> list[str]:
        return self.bounded.urls

    def close(self) -> None:
        self.bounded.close()


def _read(answer: RpcAnswer, method: str, endpoint: _Endpoint) -> Any:
    """The result, or the error in it. Raises ChainUnreachableError for an answer of another shape."""
    if answer.error is not None:
        error = answer.error
        return refusal(error.message, error.data) or RpcError(error.code, error.message, error.data)
    try:
        return msgspec.to_builtins(msgspec.json.decode(answer.result, type=RESULTS.get(method, Any)))
    except UNDECODABLE as error:
        raise ChainUnreachableError(f"{shown(endpoint.url)} answers in a form that no chain has") from error


def _summary(errors: Sequence[ChainError]) -> ChainError:
    """One error for all endpoints; the same words each time, so that a log can tell a change from a repetition."""
    if errors and all(isinstance(error, RpcError) for error in errors):
        return errors[-1]
    text = "; ".join(dict.fromkeys(map(str, errors))) or "no endpoint was asked in time"
    wrong = bool(errors) and all(isinstance(error, WrongChainError) for error in errors)
    return WrongChainError(text) if wrong else ChainUnreachableError(f"the chain cannot be reached: {text}")
