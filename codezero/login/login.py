"""Who owns this node and who is logged in, without HTTP; with what is kept between requests.

At a claim the key is on the disk as cipher text before what opened it in plain is forgotten. A crash in between leaves
both, and the next login forgets the plain one. `sessions.json` holds digests of the cookies' tokens, so the file opens
no session. A cookie is sent to every port of `localhost`, where another server can see it: it opens only what the page
shows, and logs out. A challenge ties the second request of a ceremony to its first."""

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Generic, TypeVar, get_args

import msgspec
from msgspec import Meta

from codezero.config import LOGIN_TOKEN
from codezero.errors import CodeZeroError, HttpRefusal, LoginError
from codezero.login.vault import Folder, Method, Owner, Passkey, Passphrase, Proof, Scrypt, Vault, address_of
from codezero.system.state import Newest

logger = logging.getLogger("codezero.login")
P = TypeVar("P", Passkey, Passphrase)
T = TypeVar("T")

SESSIONS = "sessions.json"
MAX_SESSIONS = 32
TRIES = 5  # wrong codes, after which there is another one: one in 20 million hits
MAX_TICKETS = 64


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """token: SHA-256 of it, hexadecimal. expires: seconds since 1970."""

    token: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    expires: float


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Oldest first."""

    sessions: Annotated[tuple[Session, ...], Meta(max_length=MAX_SESSIONS)] = ()


class Sessions:
    """Read anew each time: a logout by another process counts at once. Raises LoginError over a file it cannot use."""

    def __init__(self, folder: Folder, days: float, clock: Callable[[], float]) -> None:
        self._folder, self._clock = folder, clock
        self.seconds = int(days * 86_400)

    def begin(self) -> str:
        """A new session's token. Of too many, the oldest ends."""
        token = secrets.token_urlsafe(32)
        with self._folder.locked():
            session = Session(_digest(token), self._clock() + self.seconds)
            self._folder.save(SESSIONS, File((*self.living()[1 - MAX_SESSIONS :], session)))
        return token

    def expires(self, token: str) -> float | None:
        """When the session ends, in seconds since 1970. None: there is none."""
        return next((session.expires for session in self.living() if session.token == _digest(token)), None)

    def end(self, token: str) -> None:
        with self._folder.locked():
            others = tuple(session for session in self.living() if session.token != _digest(token))
            self._folder.save(SESSIONS, File(others))

    def end_all(self) -> None:
        with self._folder.locked():
            self._folder.delete(SESSIONS)

    def living(self) -> tuple[Session, ...]:
        file = self._folder.load(SESSIONS, File) or File()
        return tuple(session for session in file.sessions if session.expires > self._clock())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class ClaimCode:
    """8 digits. `announce` shows it, grouped 4-4, where only the owner of this machine looks; it goes into no log."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self._announce = announce
        self.spend()

    def spend(self) -> None:
        self._digits, self._wrong = f"{secrets.randbelow(10**8):08d}", 0

    def renew(self) -> str:
        """Announce a new code and return it; the one before is worth nothing."""
        self.spend()
        code = f"{self._digits[:4]}-{self._digits[4:]}"
        self._announce(code)
        return code

    def check(self, typed: str) -> None:
        """Raises HttpRefusal when it is another one."""
        digits = "".join(character for character in typed if character not in " -")
        if hmac.compare_digest(digits.encode(), self._digits.encode()):
            return
        self._wrong += 1
        logger.warning("a wrong code was entered (%d of %d)", self._wrong, TRIES)
        if self._wrong < TRIES:
            raise HttpRefusal(403, "this is not the code in the terminal; type its 8 digits")
        self.renew()
        raise HttpRefusal(403, f"{TRIES} wrong codes; the terminal shows a new one")


class Tickets(Generic[T]):
    """One kind of ceremony; `T` is what the server has to remember of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._open = clock, Newest[str, tuple[float, T]](MAX_TICKETS)

    def give(self, remembered: T) -> str:
        """Give a ticket; of too many, the oldest is worth nothing any more."""
        ticket = secrets.token_urlsafe(24)
        self._open[ticket] = (self._clock() + 300.0, remembered)
        return ticket

    def take(self, ticket: str) -> T:
        """Raises HttpRefusal for one that is unknown, used or too old."""
        until, remembered = self._open.pop(ticket, (0.0, None))
        if remembered is None or until <= self._clock():
            raise HttpRefusal(403, "this took longer than five minutes, or was used already; start again")
        return remembered


class LoginState(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/session`, and the answer to whatever changes it."""

    claimed: bool
    methods: list[Method]  # by which one can claim it, or log in
    method: Method | None  # by which it was claimed
    logged_in: bool
    unlocked: bool  # the node can sign
    address: str | None  # of the node's account; told to its owner, and while nobody claimed it
    expires: float | None  # when this session ends, in seconds since 1970
    chain_id: int | None


class Login:
    """The state of one folder. announce: shows the claim code, or with an empty one that none is good any more.

    adopt: the key, [32] bytes, of the account that the node has before anybody claims it, and which stays where it is;
    None: a new one is made. adopted: the key is safe here, what opens it in plain can be forgotten; at each login.
    Both raise CodeZeroError. days: how long a login lasts. clock: unix seconds."""

    def __init__(
        self,
        directory: Path,
        *,
        announce: Callable[[str], None],
        adopt: Callable[[], bytes | None] = lambda: None,
        adopted: Callable[[], None] = lambda: None,
        chain_id: Callable[[], int | None] = lambda: None,
        days: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder = Folder(directory)
        self.clock, self.chain_id, self.code = clock, chain_id, ClaimCode(announce)
        self.vault, self.sessions = Vault(folder, days, clock), Sessions(folder, days, clock)
        self.passkey_claims: Tickets[tuple[bytes, bytes]] = Tickets(clock)  # challenge and salt
        self.passkey_logins: Tickets[bytes] = Tickets(clock)
        self._adopt, self._adopted, self._announce = adopt, adopted, announce
        self._stretching = asyncio.Lock()
        folder.create(LOGIN_TOKEN, secrets.token_urlsafe(32).encode())
        self._token = (folder.read(LOGIN_TOKEN) or b"").strip()
        if len(self._token) < 32:
            raise LoginError(f"{folder.path / LOGIN_TOKEN} holds no token; delete it, and another one is made")

    def start(self) -> None:
        """Announce a code, or that none is good where somebody owns the node."""
        if self.vault.owner() is None:
            self.code.renew()
        else:
            self._announce("")

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
        key = await asyncio.to_thread(self._adopt) or secrets.token_bytes(32)
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
        try:
            if await asyncio.to_thread(self._plain) == owner.account:
                await asyncio.to_thread(self._adopted)
        except CodeZeroError as error:  # tried again at the next login
            logger.warning("the account %s can still be opened without you: %s", owner.account, error)
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
        """The state as the holder of this session's token may know it; empty: no session."""
        owner, expires = self.vault.owner(), self.sessions.expires(token)
        address = owner.account if owner else self._plain()
        return LoginState(
            claimed=owner is not None,
            methods=[*get_args(Method)] if owner is None else [owner.proof.method],
            method=None if owner is None else owner.proof.method,
            logged_in=expires is not None,
            unlocked=self.vault.signer() is not None,
            address=None if owner and expires is None else address,
            expires=expires,
            chain_id=self.chain_id(),
        )

    def _plain(self) -> str | None:
        key = self._adopt()
        return None if key is None else address_of(key)


def log_out(directory: Path) -> bool:
    """Lock the key and end all sessions, whether or not a server runs. Was anything open? Raises LoginError."""
    if not directory.is_dir():
        return False
    folder = Folder(directory)
    vault, sessions = Vault(folder, 0, time.time), Sessions(folder, 0, time.time)
    was_open = vault.signer() is not None or bool(sessions.living())
    vault.lock()
    sessions.end_all()
    return was_open
