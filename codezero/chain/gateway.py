"""The invitation, and JSON-RPC with the chain of this machine, for newcomers through the port of the founder's node.

A newcomer may do what a node of the swarm has to: read the swarm's own contract, and send it transactions. None of its
own code runs on the founder's chain, so that no call takes long, and the chain's file grows slowly."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import rlp
from msgspec import Meta
from rlp.exceptions import RLPException

from codezero.chain.bounded_http import post
from codezero.chain.contract import FUND
from codezero.chain.errors import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, ChainUnreachableError
from codezero.chain.invitation import MAX_FILE
from codezero.chain.provider import RESULTS
from codezero.errors import HttpRefusal
from codezero.system.files import UNDECODABLE, read_bounded
from codezero.system.http_client import is_loopback
from codezero.system.web import RateLimit

SECONDS = 8.0
MAX_ANSWER = 1 << 20  # bytes; a client that gets no more events asks for fewer blocks
CALL_GAS = 5_000_000  # ten times what a node needs; the chain computes nothing else meanwhile
WRITES = 240  # transactions and requests to the faucet, of all newcomers, in a minute
SEND = "eth_sendRawTransaction"
METHODS = {*RESULTS, FUND}
PLACES = {"eth_call": "to", "eth_estimateGas": "to", "eth_getLogs": "address"}  # of the contract in a request


class Forwarded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call, as it goes on to the chain, which checks the rest of its parameters."""

    id: Annotated[int, Meta(ge=0, le=2**53)]
    method: Annotated[str, Meta(max_length=64)]
    params: Annotated[list[Any], Meta(max_length=2)] = []  # no third, with which some chains run the sender's code
    jsonrpc: Annotated[str, Meta(pattern=r"^2\.0\Z")] = "2.0"


class ChainGateway:
    """urls: of the chain, tried in turn; newcomers reach those on other machines themselves. contracts: the addresses
    that newcomers may speak with. Raises OSError and ValueError for an invitation that cannot be read."""

    def __init__(self, urls: Sequence[str], contracts: Sequence[str], invitation: Path) -> None:
        self._urls, self._contracts = list(filter(is_loopback, urls)), {contract.lower() for contract in contracts}
        self._invitation = read_bounded(invitation, MAX_FILE)
        self._writes, self._lock = RateLimit(WRITES, 60 / WRITES, time.monotonic), threading.Lock()

    def answer(self, body: bytes) -> bytes:
        """The invitation for nothing, and for a question the chain's answer. For any thread; raises nothing."""
        if not body:
            return self._invitation
        try:
            request = msgspec.json.decode(body, type=Forwarded)
        except UNDECODABLE:
            return _error(None, INVALID_REQUEST, "not one JSON-RPC 2.0 request")
        if refusal := self._refusal(request):
            return _error(request.id, *refusal)
        if PLACES.get(request.method) == "to":
            request.params[0]["gas"] = hex(CALL_GAS)
        reason = "it is on another machine"
        for url in self._urls:
            try:
                return post(url, msgspec.json.encode(request), SECONDS / len(self._urls), limit=MAX_ANSWER)[1]
            except ChainUnreachableError as error:
                reason = str(error)
        return _error(request.id, -32603, f"the founder's chain: {reason}")

    def _refusal(self, request: Forwarded) -> tuple[int, str] | None:
        if request.method not in METHODS:
            return METHOD_NOT_FOUND, "the method is not available to newcomers"
        try:
            if request.method in {SEND, *PLACES} and not self._about(request) <= self._contracts:
                return INVALID_PARAMS, "newcomers speak with the swarm's contracts alone"
            if request.method in (SEND, FUND):
                with self._lock:
                    self._writes.take()
        except HttpRefusal:
            return -32005, "newcomers send too many transactions; try again in a minute"
        except (ValueError, TypeError, LookupError, AttributeError, RLPException, RecursionError):
            return INVALID_PARAMS, "the parameters are not those of the method"
        return None

    def _about(self, request: Forwarded) -> set[str]:
        """The contracts, in small letters; at least one."""
        if request.method == SEND:
            kind, *rest = bytes.fromhex(request.params[0].removeprefix("0x"))
            gas, to = cast(Any, rlp).decode(bytes(rest))[4:6]
            if kind != 2 or int.from_bytes(gas) > CALL_GAS:
                raise ValueError("a transaction that nodes do not send, which is one of EIP-1559")
            return {f"0x{to.hex()}"}
        named = request.params[0][PLACES[request.method]]
        return {address.lower() for address in ([named] if isinstance(named, str) else named)} or {""}


def _error(id: int | None, code: int, message: str) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
