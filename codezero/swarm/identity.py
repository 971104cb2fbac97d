"""A node's identity: a private key file, and the peer id, which is the hash of its public half.

The file is libp2p's protobuf `PrivateKey {key_type = 1; data = 2}`, encoded here so that showing an identity does not
load the peer-to-peer library. Keys never leave this module.

Members of a swarm are everybody, or the peers that a file names. Keys cost nothing: an attacker with a thousand of them
is held back by a list, and not by limits per peer."""

import errno
import functools
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import base58
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa

from codezero.errors import ConfigError, IdentityError, WireError, translated
from codezero.system.files import read_bounded, read_private, write_new

logger = logging.getLogger(__name__)

RSA, ED25519 = 0, 1  # libp2p's `KeyType`
MAX_PUBLIC_KEY, MAX_SIGNATURE = 1024, 512
INLINE_KEY = 42  # A public key of at most this many bytes is its own multihash; a longer one is hashed

PrivateKey = rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
PublicKey = rsa.RSAPublicKey | ed25519.Ed25519PublicKey

CHECK_SECONDS = 2.0  # Least time between two checks of the file
MAX_LIST = 1 << 20  # Bytes of an allow-list: room for 20,000 peer ids
LISTED = re.compile(r"(?:Qm|12D3KooW)[1-9A-HJ-NP-Za-km-z]{44}")  # The peer id of an RSA or an Ed25519 key, in full
PEER_ID = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,64}")  # The form of a peer id. `schema.PeerId` is the same for records

Members = Callable[[str], bool]  # True for a peer id that belongs; called for every record, so it returns at once


class Identity:
    """A private key and the peer id it proves."""

    def __init__(self, key: PrivateKey) -> None:
        self._key, public = key, key.public_key()
        if isinstance(public, ed25519.Ed25519PublicKey):
            message = _encode_message(ED25519, public.public_bytes_raw())
        else:
            form = serialization.PublicFormat.SubjectPublicKeyInfo
            message = _encode_message(RSA, public.public_bytes(serialization.Encoding.DER, form))
        self.public_key_bytes = message  # libp2p's `PublicKey`
        self.peer_id = peer_id_of(self.public_key_bytes)

    def __repr__(self) -> str:
        return f"Identity({self.peer_id})"

    @classmethod
    def load_or_create(cls, path: Path) -> "Identity":
        """The identity in `path`, made there first when there is none. Raises IdentityError."""
        if not os.path.lexists(path):
            key, form = rsa.generate_private_key(65537, 2048), serialization.PrivateFormat.TraditionalOpenSSL
            der = key.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())
            _write_new(path, _encode_message(RSA, der))
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> "Identity":
        """Raises IdentityError for a file that is missing, malformed, or open to other users."""
        fault = f"{path} is not an identity file; restore a copy or move it away"
        with translated(IdentityError, fault, ValueError, UnsupportedAlgorithm, reason=False):
            kind, data = _decode_message(read_private(path, 1 << 20, IdentityError), 8192)
            if kind == ED25519 and len(data) in (32, 64):  # the seed, alone or followed by the public key
                return cls(ed25519.Ed25519PrivateKey.from_private_bytes(data[:32]))
            key = serialization.load_der_private_key(data, password=None)
            if kind != RSA or not isinstance(key, rsa.RSAPrivateKey) or not 2048 <= key.key_size <= 4096:
                raise ValueError("neither RSA of 2048 to 4096 bits nor Ed25519")
            return cls(key)

    @classmethod
    def copy(cls, source: Path, target: Path) -> "Identity":
        """Put the identity of `source` into `target`, which must not exist. Raises IdentityError."""
        identity = cls.load(source)
        if not _write_new(target, read_private(source, 1 << 20, IdentityError)):
            raise IdentityError(f"{target} exists and an identity is never overwritten; move it away first")
        return identity

    def sign(self, message: bytes) -> bytes:
        """RSA PKCS#1 v1.5 over SHA-256, or Ed25519."""
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            return self._key.sign(message)
        return self._key.sign(message, padding.PKCS1v15(), hashes.SHA256())


def verify(public_key_bytes: bytes, signature: bytes, message: bytes) -> bool:
    """Check that the owner of the key signed the message; False for a malformed key or signature too."""
    try:
        key = _decode_public(public_key_bytes)
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(signature, message)
        else:
            key.verify(signature, message, padding.PKCS1v15(), hashes.SHA256())
    except (InvalidSignature, WireError):
        return False
    return True


def peer_id_of(public_key_bytes: bytes) -> str:
    """base58 of the key's multihash: identity for short keys (Ed25519), sha256 for long ones (RSA)."""
    if len(public_key_bytes) <= INLINE_KEY:
        multihash = b"\x00" + bytes([len(public_key_bytes)]) + public_key_bytes
    else:
        multihash = b"\x12\x20" + hashlib.sha256(public_key_bytes).digest()
    return base58.b58encode(multihash).decode("ascii")


def open_to_all(peer: str) -> bool:
    """Whoever has a peer id belongs."""
    return PEER_ID.fullmatch(peer) is not None


class AllowList:
    """The peers that a text file names: one peer id a line; `#` begins a comment. A change counts within CHECK_SECONDS.
    Used from one thread. `clock` gives seconds, from any start."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError for a file that is missing, larger than MAX_LIST, or has a line that is no peer id."""
        self._path, self._clock = path, clock
        self._checked, self._stamp, self._peers = clock(), _stamp(path), _read_list(path)

    def __call__(self, peer: str, /) -> bool:
        """Look `peer` up. A list that an edit broke is not used: the one before stays, and a warning says so."""
        now = self._clock()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            before, self._stamp = self._stamp, _stamp(self._path)  # before reading: a broken list is warned of once
            if self._stamp != before:
                try:
                    self._peers = _read_list(self._path)
                except ConfigError as error:
                    logger.warning("%s; the %d peers named before remain", error, len(self._peers))
        return peer in self._peers


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Time of change in nanoseconds, bytes and inode; None for a file that cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read_list(path: Path) -> frozenset[str]:
    unreadable = translated(ConfigError, f"cannot read the allow-list {path}", OSError)
    with unreadable, translated(ConfigError, str(path), ValueError, mend="give a text file with one peer id a line"):
        raw = read_bounded(path, MAX_LIST)
    lines = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    named = (line.partition(b"#")[0].strip().decode("utf-8", "replace") for line in lines)
    peers = {number: peer for number, peer in enumerate(named, start=1) if peer}
    for number, peer in peers.items():
        if not LISTED.fullmatch(peer):
            raise ConfigError(f"{path}, line {number}: {peer[:64]!a} is no peer id; write one a line, without /p2p/")
    return frozenset(peers.values())


def _write_new(path: Path, content: bytes) -> bool:
    """All or nothing, and never over an identity that is or comes there meanwhile: then False."""
    if not path.parent.is_dir():
        raise IdentityError(f"cannot write the identity {path}: {os.strerror(errno.ENOENT)}")
    return write_new(path, content, 0o400, IdentityError)


@functools.lru_cache(maxsize=1024)
def _decode_public(raw: bytes) -> PublicKey:
    with translated(WireError, "malformed public key", ValueError, UnsupportedAlgorithm, reason=False):
        kind, data = _decode_message(raw, MAX_PUBLIC_KEY)
        if kind == ED25519:
            return ed25519.Ed25519PublicKey.from_public_bytes(data)
        key = serialization.load_der_public_key(data)
    if kind != RSA or not isinstance(key, rsa.RSAPublicKey) or not 2048 <= key.key_size <= 4096:
        raise WireError("neither RSA of 2048 to 4096 bits nor Ed25519")
    return key


def _encode_message(kind: int, data: bytes) -> bytes:
    """`08 <key type> 12 <length, varint> <data>`, of less than 16 KiB: the varint has two bytes at most."""
    size = len(data)
    return bytes([0x08, kind, 0x12, *([size] if size < 0x80 else [size & 0x7F | 0x80, size >> 7])]) + data


def _decode_message(raw: bytes, limit: int) -> tuple[int, bytes]:
    """Key type and data of the one encoding that `_encode_message` writes. Raises ValueError for any other."""
    if len(raw) > limit or len(raw) < 4 or raw[0] != 0x08 or raw[2] != 0x12:
        raise ValueError("not a key message")
    data = raw[4 if raw[3] < 0x80 else 5 :]
    if _encode_message(raw[1], data) != raw:
        raise ValueError("not a key message")
    return raw[1], data
