"""Who owns this node and who is logged in: what the routes ask, without HTTP.

At a claim the key is on the disk as cipher text before what opened it in plain is forgotten. A crash in between leaves
both, and the next login forgets the plain one.
"""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar, get_args

import msgspec

from codezero.errors import CodeZeroError, HttpRefusal, LoginError
from codezero.login.sessions import ClaimCode, Sessions, Tickets
from codezero.login.store import Folder
from codezero.login.vault import Method, Owner, Passkey, Passphrase, Proof, Scrypt, Vault, address_of

logger = logging.getLogger("codezero.login")
P = TypeVar("P", Passkey, Passphrase)

TOKEN = "node.token"


class LoginState(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/session`, and the answer to whatever changes it."""

    claimed: bool
    methods: list[Method]
    """By which one can claim it, or log in."""
    method: Method | None
    """By which it was claimed."""
    logged_in: bool
    unlocked: bool
    """The node can sign."""
    address: str | None
    """Of the node's account; told to its owner, and while nobody claimed it."""
    expires: float | None
    """When this session ends, in seconds since 1970."""
    chain_id: int | None


class NewCode(msgspec.Struct, frozen=True):
    """What `POST /api/claim/code` answers; the terminal shows the same."""

    code: str


class Accounts(Protocol):
    """The account that the node has before anybody claims it. Each raises CodeZeroError."""

    def adopt(self) -> bytes | None:
        """Its key, [32] bytes, which stays where it is. None: there is none to adopt; a new one is made."""

    def adopted(self) -> None:
        """The key is safe here: forget what opens it in plain. May be called again."""


class Login:
    """The state of one folder. announce: shows the claim code, or with an empty one that none is good any more.

    days: how long a login lasts. clock: unix seconds.
    """

    def __init__(
        self,
        directory: Path,
        *,
        announce: Callable[[str], None],
        accounts: Accounts,
        chain_id: Callable[[], int | None] = lambda: None,
        days: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder = Folder(directory)
        self.clock, self.chain_id, self.code = clock, chain_id, ClaimCode(announce)
        self.vault, self.sessions = Vault(folder, days, clock), Sessions(folder, days, clock)
        self.passkey_claims: Tickets[tuple[bytes, bytes]] = Tickets(clock)
        """Challenge and salt."""
        self.passkey_logins: Tickets[bytes] = Tickets(clock)
        self._accounts, self._announce = accounts, announce
        self._stretching = asyncio.Lock()
        folder.create(TOKEN, secrets.token_urlsafe(32).encode())
        self._token = (folder.read(TOKEN) or b"").strip()
        if len(self._token) < 32:
            raise LoginError(f"{folder.path / TOKEN} holds no token; delete it, and another one is made")

    def start(self) -> None:
        """Show a code when nobody owns the node."""
        if self.vault.owner() is None:
            self.code.renew()

    def is_program(self, token: str) -> bool:
        """A program of this machine's user: it can read the token's file."""
        return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token)

    def check_code(self, code: str) -> None:
        """Raises HttpRefusal."""
        self.vault.refuse_owned()
        self.code.check(code)

    def owner(self, kind: type[P]) -> tuple[Owner, P]:
        """Raises HttpRefusal when there is none, or one who proves himself otherwise."""
        owner = self.vault.owner()
        if owner is None:
            raise HttpRefusal(409, "nobody owns this node yet; claim it with the code in the terminal")
        if not isinstance(owner.proof, kind):
            raise HttpRefusal(409, f"this node was claimed with a {owner.proof.method}; log in with it")
        return owner, owner.proof

    async def opener(self, passphrase: str, how: Scrypt) -> bytes:
        """[32] bytes. One at a time: each takes much memory."""
        async with self._stretching:
            return await asyncio.to_thread(how.key, passphrase)

    async def claim(self, proof: Proof, opener: bytes) -> str:
        """Claim the node with this proof; a session's token. Raises HttpRefusal, and CodeZeroError by the account."""
        key = await asyncio.to_thread(self._accounts.adopt) or secrets.token_bytes(32)
        owner = self.vault.claim(key, proof, opener)
        self.code.spend()
        self._announce("")
        self.sessions.end_all()
        return await self._admit(owner, key, "this node was claimed")

    async def enter(self, owner: Owner, opener: bytes, wrong: str, proof: Proof | None = None) -> str:
        """A session's token. proof: as it is from now on. Raises HttpRefusal with the text `wrong`."""
        key = owner.open(opener)
        if key is None:
            logger.warning("a login with a %s failed", owner.proof.method)
            raise HttpRefusal(403, wrong)
        if proof is not None:
            self.vault.update(owner, proof)
        return await self._admit(owner, key, "logged in")

    async def _admit(self, owner: Owner, key: bytes, done: str) -> str:
        self.vault.unlock(key)
        logger.info("%s with a %s; the account is %s", done, owner.proof.method, owner.account)
        await asyncio.to_thread(self._forget_plain, owner)
        return self.sessions.begin()

    def leave(self, token: str, *, lock: bool) -> None:
        """End a session; with `lock` all of them, and nothing is signed until the next login."""
        if lock:
            self.vault.lock()
            self.sessions.end_all()
        else:
            self.sessions.end(token)
        logger.info("logged out%s", "; the key is locked" if lock else "")

    def state(self, token: str) -> LoginState:
        """As who holds this session's token may know it; empty: no session."""
        owner, expires = self.vault.owner(), self.sessions.expires(token)
        address = owner.account if owner else self._plain()
        return LoginState(
            claimed=owner is not None,
            methods=[*get_args(Method)] if owner is None else [owner.proof.method],
            method=None if owner is None else owner.proof.method,
            logged_in=expires is not None,
            unlocked=self.vault.unlocked,
            address=None if owner and expires is None else address,
            expires=expires,
            chain_id=self.chain_id(),
        )

    def _plain(self) -> str | None:
        """Address of the account that nobody claimed yet; None: there is none to adopt."""
        key = self._accounts.adopt()
        return None if key is None else address_of(key)

    def _forget_plain(self, owner: Owner) -> None:
        """What fails here is tried again at the next login."""
        try:
            if self._plain() == owner.account:
                self._accounts.adopted()
        except CodeZeroError as error:
            logger.warning("the account %s can still be opened without you: %s", owner.account, error)


def log_out(directory: Path) -> bool:
    """Lock the key and end all sessions, whether or not a server runs. Was anything open? Raises LoginError."""
    if not directory.is_dir():
        return False
    folder = Folder(directory)
    vault, sessions = Vault(folder, 0, time.time), Sessions(folder, 0, time.time)
    was_open = vault.unlocked or sessions.any
    vault.lock()
    sessions.end_all()
    return was_open
