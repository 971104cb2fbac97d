"""Who is logged in: `sessions.json` holds digests of the cookies' tokens, so that the file opens no session.

A cookie is sent to every port of `localhost`, so another server there can see it. It opens only what the page shows,
and logs out; signing needs the bearer token or the owner.
"""

import hashlib
import secrets
from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.login.store import Folder

SESSIONS = "sessions.json"
MAX_SESSIONS = 32


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
            others = self._living()[-(MAX_SESSIONS - 1) :]
            self._keep((*others, Session(_digest(token), self._clock() + self.seconds)))
        return token

    def expires(self, token: str) -> float | None:
        """When the session ends, in seconds since 1970. None: there is none."""
        if not token:
            return None
        digest = _digest(token)
        return next((one.expires for one in self._living() if one.token == digest), None)

    @property
    def any(self) -> bool:
        return bool(self._living())

    def end(self, token: str) -> None:
        """May have ended already."""
        digest = _digest(token)
        with self._folder.locked():
            self._keep(tuple(one for one in self._living() if one.token != digest))

    def end_all(self) -> None:
        with self._folder.locked():
            self._folder.delete(SESSIONS)

    def _living(self) -> tuple[Session, ...]:
        file = self._folder.load(SESSIONS, File) or File()
        return tuple(one for one in file.sessions if one.expires > self._clock())

    def _keep(self, sessions: tuple[Session, ...]) -> None:
        self._folder.save(SESSIONS, File(sessions))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
