"""What newcomers get through the one port of the founder's node: the invitation, and JSON-RPC with the chain beside it.

A stranger may do what a node of the swarm has to: ask about the swarm's own contracts, and send them transactions. No
code of his own runs on the founder's chain, so that no question takes long, and what the chain keeps grows slowly.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import rlp
from msgspec import Meta
from rlp.exceptions import RLPException

from codezero.chain.bounded_http import post
from codezero.chain.contract import FUND, METHOD_NOT_FOUND
from codezero.chain.errors import ChainUnreachableError
from codezero.chain.invitation import MAX_FILE
from codezero.chain.provider import RESULTS
from codezero.system.files import UNDECODABLE, read_bounded
from codezero.system.http_client import is_loopback

SECONDS = 8.0
MAX_ANSWER = 1 << 20
"""Bytes. Who asked for more events than fit asks for fewer blocks then."""
CALL_GAS = 5_000_000
"""Ten times what a node needs; the chain computes nothing else meanwhile."""
WRITES, WRITES_SECONDS = 240, 60.0
"""Transactions and requests to the faucet, of all newcomers, in so many seconds."""
INVALID_REQUEST, INVALID_PARAMS, INTERNAL, OVER_LIMIT = -32600, -32602, -32603, -32005
SEND = "eth_sendRawTransaction"
EIP_1559, GAS, RECEIVER = 2, 4, 5
"""The kind of transaction that nodes sign, and places in it."""
METHODS = {*RESULTS, FUND}
PLACES = {"eth_call": "to", "eth_estimateGas": "to", "eth_getLogs": "address"}
"""Where a question names the contract that it is about."""


class Forwarded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call, as it goes on to the chain, which checks the rest of its parameters."""

    id: Annotated[int, Meta(ge=0, le=2**53)]
    method: Annotated[str, Meta(max_length=64)]
    params: Annotated[list[Any], Meta(max_length=2)] = []
    """No third, with which some chains run a call on code of its sender's."""
    jsonrpc: Annotated[str, Meta(pattern=r"^2\.0\Z")] = "2.0"


class ChainGateway:
    """urls: of the chain, tried in turn; newcomers reach those on other machines themselves. contracts: the addresses
    that newcomers may speak with. Raises OSError and ValueError for an invitation that cannot be read."""

    def __init__(self, urls: Sequence[str], contracts: Sequence[str], invitation: Path) -> None:
        self._urls, self._contracts = list(filter(is_loopback, urls)), {contract.lower() for contract in contracts}
        self._invitation = read_bounded(invitation, MAX_FILE)
        self._writes: deque[float] = deque(maxlen=WRITES)
        self._lock = threading.Lock()

    def answer(self, body: bytes) -> bytes:
        """The invitation for nothing, and for a question the chain's answer. For any thread; raises nothing."""
        if not body:
            return self._invitation
        try:
            request = msgspec.json.decode(body, type=Forwarded)
        except UNDECODABLE:
            return _error(None, INVALID_REQUEST, "not one JSON-RPC 2.0 request")
        if request.method not in METHODS:
            return _error(request.id, METHOD_NOT_FOUND, "the method is not available to newcomers")
        try:
            foreign = request.method in {SEND, *PLACES} and not self._about(request) <= self._contracts
        except (ValueError, TypeError, LookupError, AttributeError, RLPException, RecursionError):
            return _error(request.id, INVALID_PARAMS, "the parameters are not those of the method")
        if foreign:
            return _error(request.id, INVALID_PARAMS, "newcomers speak with the swarm's contracts alone")
        if PLACES.get(request.method) == "to":
            request.params[0]["gas"] = hex(CALL_GAS)
        if request.method in (SEND, FUND) and not self._may_write():
            return _error(request.id, OVER_LIMIT, "newcomers send too many transactions; try again in a minute")
        reason = "it is on no machine of his"
        for url in self._urls:
            try:
                return post(url, msgspec.json.encode(request), SECONDS / len(self._urls), limit=MAX_ANSWER)[1]
            except ChainUnreachableError as error:
                reason = str(error)
        return _error(request.id, INTERNAL, f"the founder's chain: {reason}")

    def _about(self, request: Forwarded) -> set[str]:
        """The contracts, in small letters; at least one."""
        if request.method == SEND:
            kind, *rest = bytes.fromhex(request.params[0].removeprefix("0x"))
            fields = cast(Any, rlp).decode(bytes(rest))
            if kind != EIP_1559 or int.from_bytes(fields[GAS]) > CALL_GAS:
                raise ValueError("a transaction that nodes do not send")
            return {f"0x{fields[RECEIVER].hex()}"}
        named = request.params[0][PLACES[request.method]]
        return {address.lower() for address in ([named] if isinstance(named, str) else named)} or {""}

    def _may_write(self) -> bool:
        now = time.monotonic()
        with self._lock:
            if len(self._writes) == WRITES and self._writes[0] > now - WRITES_SECONDS:
                return False
            self._writes.append(now)
            return True


def _error(id: int | None, code: int, message: str) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
