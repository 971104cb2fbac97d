"""What the login's routes take and give, as JSON. Bytes are base64url without padding, times seconds since 1970."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from codezero.login.vault import Method

MIN_PASSPHRASE = 10
MAX_PASSPHRASE = 1024
Code = Annotated[str, Meta(max_length=32)]
Ticket = Annotated[str, Meta(max_length=64)]
Secret = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{43}=?\Z")]
"""[32] bytes."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a request; {} where it has no fields."""


class CodeBody(Body, frozen=True):
    code: Code


class NewPassphrase(Body, frozen=True):
    code: Code
    passphrase: Annotated[str, Meta(min_length=MIN_PASSPHRASE, max_length=MAX_PASSPHRASE)]


class GivenPassphrase(Body, frozen=True):
    passphrase: Annotated[str, Meta(max_length=MAX_PASSPHRASE)]


class PasskeyBody(Body, frozen=True):
    """credential: RegistrationResponseJSON or AuthenticationResponseJSON, which `passkey` checks. prf: the secret; null
    when this authenticator gives none."""

    ticket: Ticket
    credential: dict[str, Any]
    prf: Secret | None


class Logout(Body, frozen=True):
    """lock: end all sessions, and leave the node unable to sign until the next login."""

    lock: bool


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
    """When this session ends."""
    chain_id: int | None


class NewCode(msgspec.Struct, frozen=True):
    """code: as the terminal shows it too."""

    code: str


class PasskeyOptions(msgspec.Struct, frozen=True):
    """options: PublicKeyCredentialCreationOptionsJSON or ...RequestOptionsJSON, with `extensions.prf`."""

    ticket: str
    options: dict[str, Any]
