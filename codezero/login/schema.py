"""What the login's routes take and give, as JSON. Unknown fields are refused, but in what a browser's WebAuthn gives.

Bytes are base64url without padding, times are seconds since 1970.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from codezero.login.vault import Method

MIN_PASSPHRASE = 10
MAX_PASSPHRASE = 1024
Code = Annotated[str, Meta(max_length=32)]
Ticket = Annotated[str, Meta(max_length=64)]
Secret = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{43}=?\Z")]
"""[32] bytes."""
Base64url = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]+={0,2}\Z", max_length=48 << 10)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a request."""


class EmptyBody(Body, frozen=True):
    """{}"""


class CodeBody(Body, frozen=True):
    code: Code


class NewPassphrase(Body, frozen=True):
    code: Code
    passphrase: Annotated[str, Meta(min_length=MIN_PASSPHRASE, max_length=MAX_PASSPHRASE)]


class GivenPassphrase(Body, frozen=True):
    passphrase: Annotated[str, Meta(max_length=MAX_PASSPHRASE)]


class Attestation(msgspec.Struct, frozen=True, rename={"client_data": "clientDataJSON", "object": "attestationObject"}):
    """AuthenticatorAttestationResponseJSON, as far as it is looked at."""

    client_data: Base64url
    object: Base64url


class Credential(msgspec.Struct, frozen=True, rename={"raw_id": "rawId"}):
    """What both answers of an authenticator begin with."""

    id: Base64url
    raw_id: Base64url
    type: Literal["public-key"]


class Registration(Credential, frozen=True):
    """RegistrationResponseJSON."""

    response: Attestation


class Assertion(
    msgspec.Struct,
    frozen=True,
    rename={"client_data": "clientDataJSON", "authenticator_data": "authenticatorData"},
):
    """AuthenticatorAssertionResponseJSON, as far as it is looked at."""

    client_data: Base64url
    authenticator_data: Base64url
    signature: Base64url


class Authentication(Credential, frozen=True):
    """AuthenticationResponseJSON."""

    response: Assertion


class NewPasskey(Body, frozen=True):
    """prf: the secret; null when this authenticator gives none."""

    ticket: Ticket
    credential: Registration
    prf: Secret | None


class GivenPasskey(Body, frozen=True):
    ticket: Ticket
    credential: Authentication
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


class PasskeyOptions(msgspec.Struct, frozen=True):
    """options: PublicKeyCredentialCreationOptionsJSON or ...RequestOptionsJSON, with `extensions.prf`."""

    ticket: str
    options: dict[str, Any]
