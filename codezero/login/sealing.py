"""The node's key as cipher text: AES-256-GCM under a key that comes from what only the owner has.

From 32 random bytes (a passkey's PRF secret) and from a signature by HKDF-SHA256, from a passphrase by scrypt.
"""

import hashlib
import secrets
import unicodedata
from typing import Annotated

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta

SALT_BYTES = 32
NONCE_BYTES = 12
Salt = Annotated[bytes, Meta(min_length=16, max_length=64)]


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cipher text with its tag."""

    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    text: Annotated[bytes, Meta(min_length=16, max_length=256)]


class Scrypt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a passphrase becomes a key. As made here, a guess takes 128 MiB and some 0.4 s.

    The bounds are on what a file can make this process compute: at most 1 GiB.
    """

    salt: Salt
    n: Annotated[int, Meta(ge=1 << 12, le=1 << 20)] = 1 << 17
    r: Annotated[int, Meta(ge=8, le=8)] = 8
    p: Annotated[int, Meta(ge=1, le=4)] = 1


def new_salt() -> bytes:
    """[SALT_BYTES] random bytes."""
    return secrets.token_bytes(SALT_BYTES)


def seal(key: bytes, plain: bytes, bound: str) -> Sealed:
    """`bound`: what the cipher text belongs to; it opens with nothing else. key: [32] bytes."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    return Sealed(nonce, AESGCM(key).encrypt(nonce, plain, bound.encode()))


def unseal(key: bytes, sealed: Sealed, bound: str) -> bytes | None:
    """None: sealed under another key, for something else, or changed since."""
    try:
        return AESGCM(key).decrypt(sealed.nonce, sealed.text, bound.encode())
    except InvalidTag:
        return None


def key_of_secret(secret: bytes, salt: bytes, use: str) -> bytes:
    """[32] bytes from a secret that nobody can guess."""
    return HKDF(SHA256(), 32, salt, f"codezero {use}".encode()).derive(secret)


def key_of_passphrase(passphrase: str, how: Scrypt) -> bytes:
    """[32] bytes. Takes long, and does not hold the interpreter meanwhile. Keyboards differ in how they write an
    accent; the normal form of the text is what counts."""
    plain = unicodedata.normalize("NFKC", passphrase).encode()
    memory = 128 * how.n * how.r * how.p + (1 << 20)
    return hashlib.scrypt(plain, salt=how.salt, n=how.n, r=how.r, p=how.p, maxmem=memory, dklen=32)
