"""The account that pays and signs: a key that leaves its file only into this process's memory, and never goes on.

A key or passphrase never comes from a command line, which every user of the machine can see.
"""

import contextlib
import getpass
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount
from msgspec import Meta

from codezero.errors import WalletError, translated
from codezero.system.files import read_private, write_new

MAX_KEYSTORE = 16 << 10
MAX_PASSPHRASE = 1024
MIN_PASSPHRASE = 8
"""Characters of a passphrase that is chosen; one that opens an existing file may be anything."""
WORK = 1 << 18
"""scrypt's n for a passphrase that a person chose: some 0.6 s and 256 MiB for each guess."""
LIGHT_WORK = 1 << 12
"""scrypt's n for 256 random bits, which no work factor could make harder to guess."""


def transaction_fields(
    chain_id: int, nonce: int, to: str | None, data: bytes, gas: int, max_fee: int, max_tip: int
) -> dict[str, Any]:
    """EIP-1559, no value, named as in JSON-RPC. Fees in wei for each unit of gas. to: None is a deployment."""
    return {
        "type": 2,
        "chainId": chain_id,
        "nonce": nonce,
        "value": 0,
        "data": "0x" + data.hex(),
        "gas": gas,
        "maxFeePerGas": max_fee,
        "maxPriorityFeePerGas": max_tip,
        **({} if to is None else {"to": to}),
    }


class Wallet(Protocol):
    @property
    def address(self) -> str:
        """Checksummed."""
        ...

    def sign_transaction(self, fields: Mapping[str, Any]) -> bytes:
        """The raw transaction of `transaction_fields`, ready to be sent. Raises WalletError."""
        ...


class KeystoreWallet:
    """A key from a Web3 keystore (V3, scrypt). Neither repr, str, pickle nor copy shows it."""

    __slots__ = ("_account",)

    def __init__(self, account: LocalAccount) -> None:
        self._account = account

    def __repr__(self) -> str:
        return f"KeystoreWallet({self.address})"

    def __reduce__(self) -> str:
        raise TypeError("a wallet cannot be pickled or copied: its key stays in this process")

    @property
    def address(self) -> str:
        return self._account.address

    def sign_transaction(self, fields: Mapping[str, Any]) -> bytes:
        # the cause's words may hold a field, and none is secret
        with translated(WalletError, "the transaction cannot be signed", TypeError, ValueError):
            return bytes(self._account.sign_transaction(dict(fields)).raw_transaction)

    def key(self) -> bytes:
        """[32] bytes, for who keeps it from now on."""
        return bytes(self._account.key)

    def sign_message(self, message: str) -> bytes:
        """[65] bytes: an EIP-191 signature, which can never be one of a transaction."""
        return bytes(self._account.sign_message(encode_defunct(text=message)).signature)

    @classmethod
    def of_key(cls, key: bytes) -> "KeystoreWallet":
        """[32] bytes that somebody else keeps. Raises WalletError."""
        try:
            return cls(Account.from_key(key))
        except ValueError:  # its text may show the key
            raise WalletError("these 32 bytes are no private key; use a key that a wallet exported") from None

    @classmethod
    def create(cls, path: Path, passphrase: str, *, key: bytes | None = None, work: int = WORK) -> "KeystoreWallet":
        """A new account in a new file; `key` imports one. Raises WalletError, also when the file exists."""
        if len(passphrase) < MIN_PASSPHRASE:
            raise WalletError(f"the passphrase needs at least {MIN_PASSPHRASE} characters")
        wallet = cls.of_key(secrets.token_bytes(32) if key is None else key)
        keystore = Account.encrypt(wallet.key(), passphrase, kdf="scrypt", iterations=work)
        if not write_new(path, msgspec.json.encode(keystore)):
            raise WalletError(f"{path} exists and is never overwritten; choose another name or move it away")
        return wallet

    @classmethod
    def open(cls, path: Path, passphrase: str) -> "KeystoreWallet":
        """Raises WalletError for a file that is missing, open to others, malformed, or of another passphrase."""
        raw = read_private(path, MAX_KEYSTORE)
        malformed = f"{path} is no keystore of version 3 with scrypt; restore a copy"
        with translated(WalletError, malformed, msgspec.DecodeError, UnicodeDecodeError, reason=False):
            keystore = msgspec.to_builtins(msgspec.json.decode(raw, type=_Keystore))
        with translated(WalletError, f"{path} does not open with this passphrase", ValueError, reason=False):
            return cls.of_key(bytes(Account.decrypt(keystore, passphrase)))

    @classmethod
    def ephemeral(cls, path: Path) -> "KeystoreWallet":
        """The account in `path`, made there first when there is none, its random passphrase in a file beside it.

        For a chain of one's own: who reads the folder has the account. Several processes may ask at once.
        """
        secret = passphrase_beside(path)
        write_new(secret, secrets.token_hex(32).encode())
        passphrase = read_passphrase(secret)
        if not os.path.lexists(path):
            with contextlib.suppress(WalletError):  # another process was faster; if not, opening says what is wrong
                cls.create(path, passphrase, work=LIGHT_WORK)
        return cls.open(path, passphrase)


class EphemeralAccount:
    """The account that a node makes for itself before anybody owns it, as the login takes it over.

    path: of the keystore; its passphrase is beside it. Raises WalletError over files that are none.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def adopt(self) -> bytes | None:
        """[32] bytes; nothing changes yet. None: there is none, or one with a passphrase of somebody's own."""
        secret = passphrase_beside(self._path)
        exists = self._path.exists() and secret.exists()
        return KeystoreWallet.open(self._path, read_passphrase(secret)).key() if exists else None

    def adopted(self) -> None:
        """Its key is safe elsewhere: nothing here opens it any more. The passphrase goes first."""
        try:
            for path in (passphrase_beside(self._path), self._path):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise WalletError(f"{error.filename} cannot be deleted: {error.strerror}") from error


def passphrase_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.passphrase")


def read_passphrase(file: Path | None, variable: str = "", prompt: str = "", *, confirm: bool = False) -> str:
    """The first line of a file that only its owner reads, else a variable, else what is typed, twice to `confirm`.

    The variable is taken out of the environment, so that no child process inherits it. Raises WalletError.
    """
    if file is not None:
        return _first_line(read_private(file, MAX_PASSPHRASE), str(file))
    if variable:
        value = os.environ.pop(variable, "").encode(errors="surrogateescape")
        return _first_line(value, f"the environment variable {variable}")
    passphrase = _prompted(prompt)
    if confirm and _prompted("the same again: ") != passphrase:
        raise WalletError("the two passphrases differ; nothing was written")
    return passphrase


def read_key(path: Path | None) -> bytes:
    """[32] bytes in hexadecimal, from a file or else a prompt. Raises WalletError."""
    text = read_passphrase(path) if path else _prompted("private key (hexadecimal, not shown): ")
    if match := re.fullmatch(r"(?:0x)?([0-9a-fA-F]{64})", text.strip()):
        return bytes.fromhex(match[1])
    raise WalletError(f"{path or 'what was typed'} is no private key; one has 64 hexadecimal digits")


class _Scrypt(msgspec.Struct, frozen=True):
    """Bounds on what a file can make this process compute: at most 1 GiB and some seconds."""

    n: Annotated[int, Meta(gt=1, le=1 << 20)]
    r: Annotated[int, Meta(ge=1, le=8)]
    p: Annotated[int, Meta(ge=1, le=8)]
    dklen: Literal[32]
    salt: str


class _Crypto(msgspec.Struct, frozen=True):
    cipher: str
    cipherparams: dict[Literal["iv"], str]
    ciphertext: str
    kdf: Literal["scrypt"]
    kdfparams: _Scrypt
    mac: str


class _Keystore(msgspec.Struct, frozen=True):
    crypto: _Crypto
    version: Literal[3]


def _prompted(text: str) -> str:
    if not (sys.stdin and sys.stdin.isatty()):
        raise WalletError("nobody is there to answer a prompt; name a file or an environment variable instead")
    with translated(WalletError, "the prompt was closed without an answer", EOFError, reason=False):
        return getpass.getpass(text)


def _first_line(raw: bytes, source: str) -> str:
    try:
        line = raw.split(b"\n", 1)[0].rstrip(b"\r").decode()
    except UnicodeDecodeError:  # its text shows the bytes
        raise WalletError(f"{source} is not UTF-8 text") from None
    if not line:
        raise WalletError(f"{source} is empty or not set")
    return line
