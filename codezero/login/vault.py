"""The node's key: sealed for its owner, and for as long as a login lasts, open to this machine's user.

    owner.json      how the owner proves who he is, the account, and the key as cipher text that only he can open
    unlocked.json   the key as cipher text under `device.key`, so that a login outlasts a restart
    device.key      32 random bytes, worth nothing without unlocked.json

The cipher is AES-256-GCM; its key comes from a passkey's PRF secret by HKDF-SHA256, or from a passphrase by scrypt.
The folder's files are readable by their owner alone, and written whole or not at all. `codezero logout` works on them
from another process, so whoever changes several holds the lock, and each use reads them anew. Python cannot wipe what
its memory held for a moment. Who can read this user's files while a login lasts can read the key."""

import contextlib
import hashlib
import secrets
import time
import unicodedata
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Meta

from codezero.errors import HttpRefusal, LoginError, translated
from codezero.system.files import UNDECODABLE, Address, Lock, flush, read_bounded, write_atomic, write_new

T = TypeVar("T")

OWNER, UNLOCKED, DEVICE = "owner.json", "unlocked.json", "device.key"
NONCE_BYTES = 12
Salt = Annotated[bytes, Meta(min_length=16, max_length=64)]
Method = Literal["passkey", "passphrase"]
MAX_FILE = 64 << 10  # bytes
LOCK = "login.lock"
LOCK_SECONDS = 5.0


class Folder:
    """A folder of mode 0700 with files of mode 0600. Raises LoginError, and DiskFullError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with translated(LoginError, f"login.directory={path} cannot be used", OSError):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)

    def read(self, name: str) -> bytes | None:
        """None: there is no such file."""
        path = self.path / name
        if path.is_symlink():
            raise LoginError(f"{path} is a link; move it away")
        with translated(LoginError, str(path), OSError, ValueError), contextlib.suppress(FileNotFoundError):
            return read_bounded(path, MAX_FILE, private=True)
        return None

    def write(self, name: str, content: bytes) -> None:
        """In place of what was there; on the disk when this returns."""
        with self._changing(name, "written"):
            write_atomic(self.path / name, content, private=True, durable=True)

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that is not there yet; False, and nothing is written, where it is."""
        with self._changing(name, "written"):
            return write_new(self.path / name, content, refusal=LoginError)

    def delete(self, name: str) -> None:
        """May be gone already. What a disk keeps of deleted files is beyond any program's reach."""
        with self._changing(name, "deleted"):
            (self.path / name).unlink(missing_ok=True)

    def load(self, name: str, of: type[T]) -> T | None:
        """The JSON in a file. None: there is no such file."""
        content = self.read(name)
        try:
            return None if content is None else msgspec.json.decode(content, type=of)
        except UNDECODABLE:  # its text could show a part of the file
            raise LoginError(f"{self.path / name} is damaged; restore a copy, or move it away") from None

    def save(self, name: str, value: msgspec.Struct) -> None:
        self.write(name, msgspec.json.encode(value))

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Alone among all processes, each of which only reads and writes small files. Not to be nested."""
        path, deadline = self.path / LOCK, time.monotonic() + LOCK_SECONDS
        with contextlib.closing(Lock(path, LoginError)) as lock:
            while not lock.take():
                if time.monotonic() >= deadline:
                    raise LoginError(f"another process holds {path}; end it, then try again")
                time.sleep(0.01)
            yield

    @contextlib.contextmanager
    def _changing(self, name: str, done: str) -> Generator[None]:
        """See that what happens in the block is on the disk afterwards."""
        with translated(LoginError, f"{self.path / name} cannot be {done}", OSError):
            yield
            flush(self.path)


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Cipher text with its tag."""

    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    text: Annotated[bytes, Meta(min_length=16, max_length=256)]

    @classmethod
    def of(cls, plain: bytes, key: bytes, bound: str) -> "Sealed":
        """key: [32] bytes. bound: what the cipher text belongs to; it opens with nothing else."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return cls(nonce, AESGCM(key).encrypt(nonce, plain, bound.encode()))

    def open(self, key: bytes, bound: str) -> bytes | None:
        """None: sealed under another key, for something else, or changed since."""
        try:
            return AESGCM(key).decrypt(self.nonce, self.text, bound.encode())
        except InvalidTag:
            return None


class Scrypt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Makes a key of a passphrase: a guess takes 128 MiB and some 0.4 s. A file can ask for 1 GiB at most."""

    salt: Salt
    n: Annotated[int, Meta(ge=1 << 12, le=1 << 20)] = 1 << 17
    r: Annotated[int, Meta(ge=8, le=8)] = 8
    p: Annotated[int, Meta(ge=1, le=4)] = 1

    def key(self, passphrase: str) -> bytes:
        """[32] bytes. Keyboards differ in how they write an accent; the text's normal form is what counts."""
        plain = unicodedata.normalize("NFKC", passphrase).encode()
        memory = 128 * self.n * self.r * self.p + (1 << 20)
        return hashlib.scrypt(plain, salt=self.salt, n=self.n, r=self.r, p=self.p, maxmem=memory, dklen=32)


class Passkey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="method", tag="passkey"):
    """A WebAuthn credential. public_key: COSE. salt: what its PRF is asked with, and HKDF's."""

    method: ClassVar[Method] = "passkey"
    credential: Annotated[bytes, Meta(min_length=1, max_length=1023)]
    public_key: Annotated[bytes, Meta(min_length=1, max_length=4096)]
    sign_count: Annotated[int, Meta(ge=0, lt=1 << 32)]
    salt: Salt
    relying_party: Annotated[str, Meta(min_length=1, max_length=253)] = "localhost"

    def key(self, secret: bytes) -> bytes:
        """[32] bytes from the PRF's secret."""
        return HKDF(SHA256(), 32, self.salt, b"codezero passkey").derive(secret)


class Passphrase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="method", tag="passphrase"):
    """Nothing to compare with: the right one opens the key."""

    method: ClassVar[Method] = "passphrase"
    scrypt: Scrypt


Proof = Passkey | Passphrase


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Who claimed this node. account: the address of the sealed key, checksummed."""

    version: Literal[1] = 1
    account: Address
    proof: Proof
    sealed: Sealed

    def open(self, opener: bytes) -> bytes | None:
        """The node's key. None: `opener` is not what it was sealed with."""
        return self.sealed.open(opener, _bound(self.account, self.proof))


class Unlocked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """expires: seconds since 1970."""

    account: Address
    expires: Annotated[float, Meta(ge=0)]
    sealed: Sealed


class Vault:
    """days: how long a login lasts. clock: seconds since 1970. Raises LoginError over files it cannot use."""

    def __init__(self, folder: Folder, days: float, clock: Callable[[], float]) -> None:
        self._folder, self._seconds, self._clock = folder, days * 86_400, clock

    def owner(self) -> Owner | None:
        """None: nobody claimed the node."""
        return self._folder.load(OWNER, Owner)

    def refuse_owned(self) -> None:
        """Raises HttpRefusal when the node has an owner."""
        if self.owner() is not None:
            raise HttpRefusal(409, "this node has an owner already; log in instead")

    def claim(self, key: bytes, proof: Proof, opener: bytes) -> Owner:
        """Seal `key` for who proves himself by `proof`; it is on the disk, and opens again, when this returns.

        opener: [32] bytes that come from the proof. Raises HttpRefusal when the node is claimed already."""
        account = address_of(key)
        owner = Owner(account=account, proof=proof, sealed=Sealed.of(key, opener, _bound(account, proof)))
        with self._folder.locked():
            if not self._folder.create(OWNER, msgspec.json.encode(owner)):
                self.refuse_owned()
        written = self.owner()
        if written is None or written.open(opener) != key:
            self._folder.delete(OWNER)
            raise LoginError(f"{self._folder.path / OWNER} did not keep what was written; check the disk")
        return owner

    def update(self, owner: Owner, proof: Proof) -> None:
        """Keep what a proof counts. The node stays whose it was."""
        with self._folder.locked():
            self._folder.save(OWNER, msgspec.structs.replace(owner, proof=proof))

    def unlock(self, key: bytes) -> None:
        """Leave the key open until the login expires."""
        account, expires = address_of(key), self._clock() + self._seconds
        with self._folder.locked():
            device = self._device() or secrets.token_bytes(32)
            self._folder.write(DEVICE, device)
            sealed = Sealed.of(key, device, _unlocked_bound(account, expires))
            self._folder.save(UNLOCKED, Unlocked(account, expires, sealed))

    def key(self) -> bytes:
        """[32] bytes. Raises HttpRefusal when it is sealed, and only its owner can open it."""
        key = self._key()
        if key is None:
            raise HttpRefusal(409, "the node's key is locked; log in at this page to unlock it")
        return key

    def signer(self) -> str | None:
        """Address of the account that can sign now. None: nobody is logged in."""
        owner = self.owner()
        return owner.account if owner is not None and self._key() is not None else None

    def lock(self) -> None:
        """Only the owner can open the key from here on."""
        with self._folder.locked():
            self._folder.delete(UNLOCKED)
            self._folder.delete(DEVICE)

    def _key(self) -> bytes | None:
        unlocked, device, owner = self._folder.load(UNLOCKED, Unlocked), self._device(), self.owner()
        if not (unlocked and device and owner and unlocked.account == owner.account):
            return None
        if unlocked.expires <= self._clock():
            self.lock()
            return None
        return unlocked.sealed.open(device, _unlocked_bound(unlocked.account, unlocked.expires))

    def _device(self) -> bytes | None:
        device = self._folder.read(DEVICE)
        return device if device is not None and len(device) == 32 else None


def address_of(key: bytes) -> str:
    """Checksummed. Raises LoginError for bytes that are no key."""
    from eth_account import Account  # takes half a second, which who only looks does not wait for

    try:
        return Account.from_key(key).address
    except ValueError:  # its text may show the key
        raise LoginError("these bytes are no private key") from None


def _bound(account: str, proof: Proof) -> str:
    return f"codezero node key 1 {account} {proof.method}"


def _unlocked_bound(account: str, expires: float) -> str:
    return f"codezero unlocked key 1 {account} {expires!r}"
