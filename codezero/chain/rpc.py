"""JSON-RPC to one chain through one or several endpoints, tried in turn. Every answer is checked against a schema.

An endpoint is taken for the chain only when `eth_chainId` says so; what it calls itself is never asked. It may be
hostile: it can refuse to answer and it can lie about the chain, but it cannot fill memory, hold a caller longer than
the deadline, or make one fail in an unnamed way. What a lie could cost is bounded in `sender.py`.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar, cast

import msgspec
from msgspec import Meta

from codezero.chain.errors import ChainUnreachableError, RpcError, WrongChainError, refusal
from codezero.chain.transport import Transport, check_url, shown
from codezero.errors import ChainError, ConfigError

T = TypeVar("T")
_dice = random.Random()  # the shared one is seeded for training, and is not to be drawn from in other threads

SECONDS = 10.0
PASSES = 4
"""How often a question goes round all endpoints before it counts as unanswered, while there is time."""
PAUSE = 0.1
"""Seconds after the first pass, doubled after each; each is shortened at random by up to half."""
TROUBLE = frozenset({-32603, -32005, -32016, -32097})
"""JSON-RPC: internal error, limits. The endpoint counts as unreachable."""
FINAL = frozenset({-32600, -32601, -32602, -32700})
"""JSON-RPC: no such method or parameters. Asking again would not help."""
PROVEN_SECONDS = 10.0
"""An endpoint that failed is asked for its chain id again, unless it told it this recently."""
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Quantity = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{1,64}$")]
Bytes = Annotated[str, Meta(pattern="^0x([0-9a-fA-F]{2})*$", max_length=2 * (64 << 10) + 2)]
"""Return and event data: at most 64 KiB, so that nested pointers in it cannot be decoded into gigabytes."""
Hash = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{64}$")]
Address = Annotated[str, Meta(pattern="^0x[0-9a-fA-F]{40}$")]


class Block(msgspec.Struct, frozen=True, rename="camel"):
    number: Quantity
    timestamp: Quantity
    base_fee_per_gas: Quantity | None = None


class Log(msgspec.Struct, frozen=True, rename="camel"):
    address: Address
    topics: Annotated[list[Hash], Meta(max_length=4)]
    data: Bytes
    block_number: Quantity
    log_index: Quantity
    transaction_hash: Hash


class Receipt(msgspec.Struct, frozen=True, rename="camel"):
    transaction_hash: Hash
    block_number: Quantity
    gas_used: Quantity
    status: Quantity
    contract_address: Address | None = None


def read_quantity(raw: msgspec.Raw) -> int:
    return int(msgspec.json.decode(raw, type=Quantity), 16)


def read_bytes(raw: msgspec.Raw) -> bytes:
    return bytes.fromhex(msgspec.json.decode(raw, type=Bytes)[2:])


def read_hash(raw: msgspec.Raw) -> str:
    return msgspec.json.decode(raw, type=Hash)


def read_block(raw: msgspec.Raw) -> Block:
    return msgspec.json.decode(raw, type=Block)


def read_receipt(raw: msgspec.Raw) -> Receipt | None:
    """None: the transaction is in no block."""
    return msgspec.json.decode(raw, type=Receipt | None)


def read_logs(raw: msgspec.Raw) -> list[Log]:
    return msgspec.json.decode(raw, type=list[Log])


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One call: `read` turns the JSON of the result into its value, or raises one of UNDECODABLE."""

    method: str
    parameters: Sequence[object]
    read: Callable[[msgspec.Raw], T]


@dataclass(slots=True)
class _Endpoint:
    url: str
    failed: bool = True
    """It has not answered yet, or not the last time."""
    proven_at: float = float("-inf")
    """When it last told the expected chain id. time.monotonic()."""
    singly: bool = False
    """It takes no batches."""

    @property
    def proven(self) -> bool:
        return not self.failed or time.monotonic() - self.proven_at < PROVEN_SECONDS


class _Failure(msgspec.Struct, frozen=True):
    code: int
    message: str
    data: object = None


class _Answer(msgspec.Struct, frozen=True):
    id: int | str | None = None
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: _Failure | None = None


class Rpc:
    """Safe to use from several threads. `seconds` bounds every call as a whole, over all endpoints.

    plain_http: allow http to other machines (loopback may always use it); meant for a network of one's own.
    """

    def __init__(
        self, urls: Sequence[str], chain_id: int, *, seconds: float = SECONDS, plain_http: bool = False
    ) -> None:
        if not urls:
            raise ConfigError("chain.rpc_urls is empty; give an address like http://127.0.0.1:8545")
        self.chain_id, self.seconds = chain_id, seconds
        self._endpoints = [_Endpoint(check_url(url, "chain.rpc_urls", plain_http=plain_http)) for url in urls]
        self._first = 0
        """The endpoint that answered last."""
        self._transport = Transport()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def urls(self) -> list[str]:
        """In the order in which they were given."""
        return [endpoint.url for endpoint in self._endpoints]

    def ask(self, question: Question[T]) -> T:
        """Raises ContractError, RpcError, ChainUnreachableError, WrongChainError."""
        return self.batch([question])[0]

    def batch(self, questions: Sequence[Question[T]]) -> list[T]:
        """All in one exchange, so that they are answered about the same moment. Raises the first failure, as `ask`."""
        answers = self.try_batch(questions)
        for answer in answers:
            if isinstance(answer, ChainError):
                raise answer
        return cast("list[T]", answers)

    def try_batch(self, questions: Sequence[Question[T]]) -> list[T | ChainError]:
        """As `batch`, with a ContractError or RpcError in the place of an answer. Raises the others."""
        return self._ask(questions, PASSES)

    def send(self, raw: bytes) -> None:
        """Give a signed transaction to the first endpoint that answers. Raises as `ask`, and may be taken even so."""
        self._ask([Question("eth_sendRawTransaction", ["0x" + raw.hex()], read_hash)], 1)

    def close(self) -> None:
        self._transport.close()

    def _ask(self, questions: Sequence[Question[T]], passes: int) -> list[T | ChainError]:
        """An answer or the error for each call."""
        until = time.monotonic() + self.seconds
        reasons: dict[str, ChainError] = {}
        for attempt in range(passes):
            if attempt:
                pause = _dice.uniform(0.5, 1) * PAUSE * 2 ** (attempt - 1)
                if time.monotonic() + pause >= until:
                    break
                time.sleep(pause)
            for turn in range(len(self._endpoints)):
                at = (self._first + turn) % len(self._endpoints)
                endpoint = self._endpoints[at]
                share = (until - time.monotonic()) / (len(self._endpoints) - turn)
                if share <= 0:
                    break
                try:
                    answers = self._ask_one(endpoint, questions, time.monotonic() + share)
                except (ChainUnreachableError, WrongChainError, RpcError) as error:
                    endpoint.failed = True
                    reasons[endpoint.url] = error
                    continue
                endpoint.failed = False
                self._first = at
                return answers
        raise _summary(list(reasons.values()))

    def _ask_one(self, endpoint: _Endpoint, questions: Sequence[Question[T]], until: float) -> list[T | ChainError]:
        """Raises ChainUnreachableError, WrongChainError, RpcError: try another endpoint."""
        if not endpoint.proven:
            self._prove(endpoint, until)
        answers = self._exchange(endpoint, questions, until)
        read = [_read(answer, question, endpoint) for answer, question in zip(answers, questions, strict=True)]
        for answer in read:
            if isinstance(answer, RpcError) and answer.code in TROUBLE:
                raise ChainUnreachableError(f"{shown(endpoint.url)} is in trouble: {answer}")
            if isinstance(answer, RpcError) and answer.code not in FINAL:
                raise answer
        return read

    def _prove(self, endpoint: _Endpoint, until: float) -> None:
        question: Question[int] = Question("eth_chainId", [], read_quantity)
        answer = _read(self._exchange(endpoint, [question], until)[0], question, endpoint)
        if isinstance(answer, ChainError):
            raise ChainUnreachableError(f"{shown(endpoint.url)} does not say its chain id ({answer})")
        if answer != self.chain_id:
            raise WrongChainError(
                f"{shown(endpoint.url)} serves chain {answer}, not {self.chain_id}; correct chain.rpc_urls"
            )
        endpoint.proven_at = time.monotonic()

    def _exchange(self, endpoint: _Endpoint, questions: Sequence[Question[T]], until: float) -> list[_Answer]:
        """In the order of `questions`. Raises ChainUnreachableError."""
        if endpoint.singly and len(questions) > 1:
            return [self._exchange(endpoint, [question], until)[0] for question in questions]
        with self._lock:
            ids = [next(self._ids) for _ in questions]
        asked = [
            {"jsonrpc": "2.0", "id": id, "method": question.method, "params": question.parameters}
            for id, question in zip(ids, questions, strict=True)
        ]
        body = msgspec.json.encode(asked if len(asked) > 1 else asked[0])
        status, raw = self._transport.post(endpoint.url, body, until - time.monotonic())
        try:
            answers = msgspec.json.decode(raw, type=list[_Answer] | _Answer)
        except UNDECODABLE as error:
            what = f"with HTTP {status}" if status != 200 else "with what is no JSON-RPC"
            raise ChainUnreachableError(f"{shown(endpoint.url)} answers {what}") from error
        if isinstance(answers, _Answer):
            answers = [answers]
        by_id = {answer.id: answer for answer in answers}
        if len(asked) > 1 and len(answers) == 1 and answers[0].error is not None:
            if answers[0].error.code not in FINAL:
                return answers * len(asked)
            endpoint.singly = True
            return self._exchange(endpoint, questions, until)
        if set(by_id) != set(ids) or len(answers) != len(ids):
            raise ChainUnreachableError(f"{shown(endpoint.url)} answers other questions than were asked")
        return [by_id[id] for id in ids]


def _read(answer: _Answer, question: Question[T], endpoint: _Endpoint) -> T | ChainError:
    """Raises ChainUnreachableError for an answer of another shape."""
    if answer.error is not None:
        error = answer.error
        return refusal(error.message, error.data) or RpcError(error.code, error.message, error.data)
    try:
        return question.read(answer.result)
    except UNDECODABLE as error:
        raise ChainUnreachableError(f"{shown(endpoint.url)} answers in a form that no chain has") from error


def _summary(errors: Sequence[ChainError]) -> ChainError:
    """One error for all endpoints; the same words each time, so that a log can tell a change from a repetition."""
    if errors and all(isinstance(error, RpcError) for error in errors):
        return errors[-1]
    text = "; ".join(dict.fromkeys(map(str, errors))) or "no endpoint was asked in time"
    wrong = bool(errors) and all(isinstance(error, WrongChainError) for error in errors)
    return WrongChainError(text) if wrong else ChainUnreachableError(f"the chain cannot be reached: {text}")
