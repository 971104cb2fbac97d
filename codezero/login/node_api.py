"""The routes that rl-swarm's own client uses, with its bodies and answers, for programs of this machine.

    POST /api/register-peer          {"peerId"}                                          -> {"hash": "0x.."}
    POST /api/submit-reward          {"roundNumber", "stageNumber", "reward", "peerId"}  -> {"hash": "0x.."}
    POST /api/submit-winner          {"roundNumber", "winners", "peerId"}                -> {"hash": "0x.."}
    GET  /api/get-api-key-status                            -> activated or pending, as plain text
    GET, POST /api/get-api-key       {"whoamiStamp"}        -> {"publicKey": the node's address}
    POST /api/set-api-key-activated  {"apiKey", ..}         -> {"activated": true}

Every body, and every query of a GET, may hold an "orgId". Callers send `Authorization: Bearer TOKEN`. With
`login.legacy_clients` a program on this machine may send the orgId of `userData.json` instead; that id is no secret.
A browser is never admitted: the guard refuses it first.

What the contract refuses is HTTP 400 {"error": its error's name}, on which the client acts: it goes on after
PeerIdAlreadyRegistered. Other failures are one line: 401 not admitted, 409 the node cannot sign, 503 nothing was done,
504 it may have been done. No key is handed out. The last two routes only tell a client whether somebody is logged in.
"""

import asyncio
import functools
import hmac
import ipaddress
import logging
import re
import uuid
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta

from codezero.errors import ChainError, HttpRefusal, LoginError, WalletError
from codezero.login.guard import NO_TOKEN, PROGRAM, Access, Routes
from codezero.login.store import Folder
from codezero.system.web import answer, read_body

logger = logging.getLogger("codezero.login")
C = TypeVar("C", bound="ClientCall")

REFUSALS = frozenset({
    "PeerIdAlreadyRegistered", "RewardAlreadySubmitted", "WinnerAlreadyVoted", "InvalidVoterPeerId",
    "InvalidRoundNumber", "InvalidStageNumber", "InvalidVote", "InvalidPeerId", "InvalidReward", "TooManyPeers",
})  # fmt: skip
"""The contract's errors that these calls can meet; each is a ChainError named so with "Error" after it."""
REFUSED_IN_WORDS = frozenset({"ForeignOwner", "Contract", "Reverted", "Panic"})
"""Refusals without a name in the contract's ABI: the client shows the line to its user."""
ORG_FILE = "userData.json"
"""In the form that the original's scripts look for: awk and grep find the id in it, line by line."""
ORG_ID = re.compile(r'"orgId": "([0-9a-f-]{36})"')
MAX_WAITING = 32
"""Calls that wait for the chain at one time, of which each takes a minute at most; more are turned away."""

Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Reward = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
PeerId = Annotated[str, Meta(max_length=1024)]
"""The contract bounds it more tightly, and says so by name."""
OrgId = Annotated[str, Meta(max_length=128)]


Transact = Callable[..., str]
"""The node's way to the contract: a function's name and arguments -> the hash of the transaction.

Blocks until a receipt, for a bounded time; called in a thread, one at a time. Raises ChainError: WalletError when the
node cannot sign, a refusal of the contract (REFUSALS), and anything else when it is not known to have been done.
"""


class ClientCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    org_id: OrgId | None = None


class PeerCall(ClientCall, frozen=True):
    peer_id: PeerId

    def call(self) -> tuple[object, ...]:
        """Name and arguments."""
        return "registerPeer", self.peer_id


class RewardCall(PeerCall, frozen=True):
    round_number: Count
    stage_number: Count
    reward: Reward

    def call(self) -> tuple[object, ...]:
        return "submitReward", self.round_number, self.stage_number, self.reward, self.peer_id


class WinnersCall(PeerCall, frozen=True):
    round_number: Count
    winners: Annotated[list[PeerId], Meta(max_length=1024)]

    def call(self) -> tuple[object, ...]:
        return "submitWinners", self.round_number, self.winners, self.peer_id


class StampedCall(ClientCall, frozen=True):
    whoami_stamp: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Of a hosted account service; not looked at."""


class ActivationCall(ClientCall, frozen=True):
    """What the original stored of a session key; all but the key's address is ignored."""

    api_key: Annotated[str, Meta(max_length=128)]
    deferred_action_digest: str = ""
    account_address: str = ""
    init_code: str = ""


def legacy_id(folder: Folder) -> str:
    """The orgId of the original's clients, which know no token; made once. Raises LoginError."""
    new = str(uuid.uuid4())
    folder.create(ORG_FILE, f'{{\n  "{new}": {{\n    "orgId": "{new}"\n  }}\n}}\n'.encode())
    stored = ORG_ID.search((folder.read(ORG_FILE) or b"").decode(errors="replace"))
    if stored is None:
        raise LoginError(f"{folder.path / ORG_FILE} holds no orgId; remove it, and a new one is made")
    return stored[1]


def is_local(address: str | None) -> bool:
    """Is it an address of this machine's loopback, with or without a zone?"""
    try:
        return ipaddress.ip_address((address or "").partition("%")[0]).is_loopback
    except ValueError:
        return False


class NodeApi:
    """address: of the account that can sign now; None: nobody is logged in. legacy: the orgId of clients of the
    original; empty admits none."""

    def __init__(self, transact: Transact, address: Callable[[], str | None], legacy: str = "") -> None:
        self._transact, self._address, self._legacy = transact, address, legacy
        self._turn = asyncio.Lock()
        self._waiting = 0

    def routes(self) -> Routes:
        return {
            Access.LEGACY: [
                web.post("/api/register-peer", functools.partial(self._send, form=PeerCall)),
                web.post("/api/submit-reward", functools.partial(self._send, form=RewardCall)),
                web.post("/api/submit-winner", functools.partial(self._send, form=WinnersCall)),
                web.get("/api/get-api-key-status", self._status, allow_head=False),
                web.get("/api/get-api-key", self._key, allow_head=False),
                web.post("/api/get-api-key", self._key),
                web.post("/api/set-api-key-activated", self._activated),
            ]
        }

    async def _status(self, request: web.Request) -> web.Response:
        await self._admitted(request, ClientCall)
        return web.Response(text="pending" if self._address() is None else "activated")

    async def _key(self, request: web.Request) -> web.Response:
        await self._admitted(request, ClientCall if request.method == "GET" else StampedCall)
        return answer({"publicKey": self._logged_in()})

    async def _activated(self, request: web.Request) -> web.Response:
        body = await self._admitted(request, ActivationCall)
        if body.api_key.lower() != self._logged_in().lower():
            raise HttpRefusal(400, "apiKey is not the address of this node's account; ask /api/get-api-key for it")
        return answer({"activated": True})

    def _logged_in(self) -> str:
        address = self._address()
        if address is None:
            raise HttpRefusal(409, "nobody is logged in, so this node cannot sign; open the page and log in")
        return address

    async def _admitted(self, request: web.Request, form: type[C]) -> C:
        """What the caller sent, once it is known that it may. The guard has turned pages away. Raises HttpRefusal."""
        program, legacy = request[PROGRAM], self._legacy
        if not program and (not legacy or "Authorization" in request.headers):
            raise HttpRefusal(401, NO_TOKEN)
        if request.method == "GET":
            try:
                body = msgspec.convert(dict(request.query), form)
            except msgspec.ValidationError as error:
                raise HttpRefusal(400, f"the request is refused: {error}") from None
        else:
            body = await read_body(request, form)
        knows = hmac.compare_digest((body.org_id or "").encode(), legacy.encode())
        if not program and not (knows and is_local(request.remote)):
            text = "orgId is not this node's, or the caller is another machine; look into userData.json"
            raise HttpRefusal(401, text)
        return body

    async def _send(self, request: web.Request, form: type[PeerCall]) -> web.Response:
        """One at a time: they would wait for each other's nonces anyway, and the process's threads stay free."""
        body = await self._admitted(request, form)
        if self._waiting >= MAX_WAITING:
            text = "too many calls wait for the chain; nothing was sent, try again later"
            raise HttpRefusal(503, text, retry_after=10)
        self._waiting += 1
        try:
            async with self._turn:
                return answer({"hash": await asyncio.to_thread(self._transact, *body.call())})
        except ChainError as error:
            return _refused(error)
        finally:
            self._waiting -= 1


def _refused(error: ChainError) -> web.Response:
    """The answer to a refusal of the contract by name; raises HttpRefusal for other errors."""
    name = getattr(error, "name", "") or type(error).__name__.removesuffix("Error")
    logger.info("a call to the contract failed: %s", name)
    if name in REFUSALS:
        return answer({"error": name, "message": str(error)}, 400)
    if name in REFUSED_IN_WORDS:
        raise HttpRefusal(400, str(error)) from error
    if isinstance(error, WalletError):
        raise HttpRefusal(409, str(error)) from error
    raise HttpRefusal(504 if name == "UnknownOutcome" else 503, str(error)) from error
