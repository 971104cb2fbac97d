"""What a login keeps between requests: sessions, the claim code, rate limits and challenges.

`sessions.json` holds digests of the cookies' tokens, so the file opens no session. A cookie is sent to every port of
`localhost`, where another server can see it: it opens only what the page shows, and logs out. Rate limits hold for all
requesters together. A challenge ties the second request of a ceremony to its first.
"""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from typing import Annotated, Generic, TypeVar

import msgspec
from msgspec import Meta

from codezero.errors import HttpRefusal
from codezero.login.store import Folder
from codezero.system.state import Newest

logger = logging.getLogger("codezero.login")
T = TypeVar("T")

SESSIONS = "sessions.json"
MAX_SESSIONS = 32
TRIES = 5
"""Wrong codes, after which there is another one: one in 20 million hits."""
TICKET_SECONDS = 300.0
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
            self._folder.save(SESSIONS, File((*self._living()[1 - MAX_SESSIONS :], session)))
        return token

    def expires(self, token: str) -> float | None:
        """When the session ends, in seconds since 1970. None: there is none."""
        digest = _digest(token)
        return next((session.expires for session in self._living() if session.token == digest), None)

    @property
    def any(self) -> bool:
        return bool(self._living())

    def end(self, token: str) -> None:
        """May have ended already."""
        digest = _digest(token)
        with self._folder.locked():
            others = tuple(session for session in self._living() if session.token != digest)
            self._folder.save(SESSIONS, File(others))

    def end_all(self) -> None:
        with self._folder.locked():
            self._folder.delete(SESSIONS)

    def _living(self) -> tuple[Session, ...]:
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
        """Nobody knows the code after this one."""
        self._digits, self._wrong = f"{secrets.randbelow(10**8):08d}", 0

    def renew(self) -> str:
        """As announced. The code before it is worth nothing."""
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
        self._clock = clock
        self._open = Newest[str, tuple[float, T]](MAX_TICKETS)

    def give(self, remembered: T) -> str:
        """Of too many, the oldest is worth nothing any more."""
        ticket = secrets.token_urlsafe(24)
        self._open[ticket] = (self._clock() + TICKET_SECONDS, remembered)
        return ticket

    def take(self, ticket: str) -> T:
        """Raises HttpRefusal for one that is unknown, used or too old."""
        until, remembered = self._open.pop(ticket, (0.0, None))
        if remembered is None or until <= self._clock():
            raise HttpRefusal(403, "this took longer than five minutes, or was used already; start again")
        return remembered
