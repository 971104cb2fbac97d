"""web3's connection to one chain through one or several endpoints, which are tried in turn and not trusted.

An endpoint can refuse or lie, but it cannot fill memory, hold a caller longer than the deadline, send a request
elsewhere, or make one fail in an unnamed way. What a lie could cost is bounded in `contract.py`."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from eth_abi.codec import ABICodec
from eth_abi.decoding import StringDecoder
from eth_abi.registry import registry as default_registry
from msgspec import Meta
from web3 import Web3
from web3.providers.base import JSONBaseProvider
from web3.types import RPCEndpoint, RPCResponse

from codezero.chain.bounded_http import post, shown
from codezero.chain.errors import HOPELESS, ChainUnreachableError, ContractError, RpcError, WrongChainError, refusal
from codezero.errors import ChainError, ConfigError, UnreachableError, translated
from codezero.system.files import UNDECODABLE, Address, Hash, Quantity
from codezero.system.http_client import check_url
from codezero.system.signals import backoff

SECONDS = 10.0
PASSES = 4  # how often a request goes round all endpoints before it counts as unanswered, while there is time
PAUSE = 0.1  # seconds after the first pass; see `backoff`
# Return and event data: at most 64 KiB, so that nested pointers in it cannot be decoded into gigabytes.
Bytes = Annotated[str, Meta(pattern=r"^0x([0-9a-fA-F]{2})*\Z", max_length=2 * (64 << 10) + 2)]
# (multiaddress of a node, JSON-RPC request, seconds) -> what its chain answers. Raises UnreachableError.
Ask = Callable[[str, bytes, float], bytes]


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


# By method: the form of its result. Fields that are not named here are dropped before web3 sees them.
RESULTS: Mapping[str, Any] = {
    **dict.fromkeys(("eth_blockNumber", "eth_chainId", "eth_estimateGas", "eth_getBalance"), Quantity),
    "eth_call": Bytes,
    "eth_getBlockByNumber": _Block,
    "eth_getCode": Bytes,
    "eth_getLogs": list[_Log],
    "eth_getTransactionCount": Annotated[str, Meta(pattern=r"^0x[0-9a-fA-F]{1,16}\Z")],
    "eth_getTransactionReceipt": _Receipt | None,
    "eth_maxPriorityFeePerGas": Quantity,
    "eth_sendRawTransaction": Hash,
}


class _Failure(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: object = None


class _Answer(msgspec.Struct, frozen=True):
    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _Failure | None = None


class BoundedProvider(JSONBaseProvider):
    """`seconds` bounds every request as a whole, over all endpoints; safe to use from several threads. A request raises
    ContractError, RpcError, ChainUnreachableError, WrongChainError, which pass through web3 unchanged."""

    global_ccip_read_enabled = False  # no answer makes this process send a request to an address of its choice

    def __init__(
        self, urls: list[str], chain_id: int, seconds: float = SECONDS, plain_http: bool = False, ask: Ask | None = None
    ) -> None:
        """plain_http: allow http to other machines than this one. ask: for those of `urls` that are multiaddresses."""
        if not urls:
            raise ConfigError("chain.rpc_urls is empty; give an address like http://127.0.0.1:8545")
        super().__init__()
        self._chain_id, self._seconds, self._ask = chain_id, seconds, ask
        for url in [url for url in urls if not (ask and is_node(url))]:
            check_url(url, "chain.rpc_urls", plain_http=plain_http)
        self._urls = list(urls)  # The one that answered last comes first.
        self._proven: set[str] = set()  # endpoints that named the expected chain id since they last failed
        self.request_counter = itertools.count(1)

    def make_request(self, method: RPCEndpoint, params: Any) -> RPCResponse:
        until = time.monotonic() + self._seconds
        errors: list[ChainError] = []
        # A signed transaction is offered once: whether it was taken is for `Sender` to see on the chain.
        for attempt in range(1 if method == "eth_sendRawTransaction" else PASSES):
            if attempt:
                pause = backoff(attempt, PAUSE, self._seconds)
                if time.monotonic() + pause >= until:
                    break
                time.sleep(pause)
            errors = []
            for turn, url in enumerate(self._urls):
                share = (until - time.monotonic()) / (len(self._urls) - turn)
                try:
                    result = self._request(url, method, params, time.monotonic() + share)
                except (ChainUnreachableError, WrongChainError, RpcError) as error:
                    if isinstance(error, RpcError) and error.code in HOPELESS:
                        raise
                    self._proven.discard(url)
                    errors.append(error)
                else:
                    self._urls = sorted(self._urls, key=lambda other: other != url)
                    return {"jsonrpc": "2.0", "id": 0, "result": result}
        if errors and all(isinstance(error, RpcError) for error in errors):
            raise errors[-1]
        # the same words each time, so that a log can tell a change from a repetition
        text = "; ".join(dict.fromkeys(map(str, errors))) or "no endpoint was reached in time"
        if errors and all(isinstance(error, WrongChainError) for error in errors):
            raise WrongChainError(text)
        raise ChainUnreachableError(f"the chain cannot be reached: {text}")

    def _request(self, url: str, method: str, params: Any, until: float) -> Any:
        if url not in self._proven:
            unknown = f"{shown(url)} does not say its chain id"
            with translated(ChainUnreachableError, unknown, ContractError, RpcError):
                chain_id = int(self._exchange(url, "eth_chainId", [], until), 16)
            if chain_id != self._chain_id:
                where = f"{shown(url)} serves chain {chain_id}, not {self._chain_id}"
                raise WrongChainError(f"{where}; correct chain.rpc_urls")
            self._proven.add(url)
        return self._exchange(url, method, params, until)

    def _exchange(self, url: str, method: str, params: Any, until: float) -> Any:
        id = next(self.request_counter)
        body = Web3.to_json({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()
        if self._ask and is_node(url):
            with translated(ChainUnreachableError, "the founder's node", UnreachableError):
                status, raw = 200, self._ask(url, body, until - time.monotonic())
        else:
            status, raw = post(url, body, until - time.monotonic())
        with_status = "" if status == 200 else f" with HTTP {status}"
        unknown = f"{shown(url)} answers{with_status} in a form that is not known here"
        with translated(ChainUnreachableError, unknown, *UNDECODABLE, reason=False):
            answer = msgspec.json.decode(raw, type=_Answer)
            if (failure := answer.error) is not None:
                raise refusal(failure.message, failure.data) or RpcError(failure.code, failure.message)
            if answer.id != id:
                raise ChainUnreachableError(f"{shown(url)} answers another request")
            return msgspec.to_builtins(msgspec.json.decode(answer.result, type=RESULTS.get(method, Any)))


class ChainClient(Web3):
    """options: those of BoundedProvider. since: the first block whose events are requested."""

    def __init__(self, urls: Sequence[str], chain_id: int, *, since: int = 0, **options: Any) -> None:
        super().__init__(BoundedProvider(list(urls), chain_id, **options), middleware=[])
        self.urls, self.chain_id, self.since = list(urls), chain_id, since
        # The contract holds strangers' text, which need not be UTF-8: one bad name must not hide a whole leaderboard.
        registry = default_registry.copy()
        registry.unregister_decoder("string")
        registry.register_decoder("string", StringDecoder(handle_string_errors="replace"))
        self.codec = ABICodec(registry)


def is_node(url: str) -> bool:
    """Is it the multiaddress of a node, through which its chain is reached?"""
    return url.startswith("/")
