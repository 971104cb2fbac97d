"""The account that pays and signs: its key is in this process's memory, or another process signs, as the login server.

A key leaves its file only into memory. A key or passphrase never comes from a command line, which every user of the
machine can see. The other process serves

    POST {url}/api/sign-transaction   {"transaction": the fields of `transaction_fields`}
    200 {"raw": "0x..", "address": "0x.."}    401, 403: the token is not accepted    409: nobody is logged in"""

import contextlib
import getpass
import os
import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from eth_account import Account
from eth_account.messages import encode_defunct
from eth_account.signers.local import LocalAccount
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from eth_keys.exceptions import BadSignature
from eth_utils.address import is_address, to_checksum_address
from eth_utils.exceptions import ValidationError
from hexbytes import HexBytes
from msgspec import Meta
from rlp.exceptions import RLPException

from codezero.chain.bounded_http import post, shown
from codezero.chain.errors import ChainUnreachableError
from codezero.errors import ConfigError, WalletError, translated
from codezero.system.files import UNDECODABLE, Address, read_private, write_new
from codezero.system.http_client import check_url

WORK = 1 << 18  # scrypt's n for a passphrase that a person chose: some 0.6 s and 256 MiB for each guess
LIGHT_WORK = 1 << 12  # scrypt's n for 256 random bits, which no work factor could make harder to guess
MALFORMED = RLPException, BadSignature, ValidationError, ValueError, TypeError  # raised by eth-account
MAX_SIGNED = 256 << 10  # bytes of a signer's answer; the largest transaction is a deployment


def transaction_fields(
    chain_id: int, nonce: int, to: str | None, data: bytes, gas: int, max_fee: int, max_tip: int
) -> dict[str, Any]:
    """EIP-1559, no value, named as in JSON-RPC. Fees in wei for each unit of gas. to: None is a deployment."""
    fees = {"gas": gas, "maxFeePerGas": max_fee, "maxPriorityFeePerGas": max_tip}
    fields = {"type": 2, "chainId": chain_id, "nonce": nonce, "value": 0, "data": f"0x{data.hex()}", **fees}
    return fields if to is None else {**fields, "to": to}


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
        """The raw transaction of `transaction_fields`, ready to be sent. Raises WalletError."""
        with translated(WalletError, "the transaction cannot be signed", TypeError, ValueError):
            return bytes(self._account.sign_transaction(dict(fields)).raw_transaction)

    def key(self) -> bytes:
        """The private key (32 bytes), for a caller that takes over storing it."""
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
        if len(passphrase) < 8:  # one that opens an existing file may be anything
            raise WalletError("the passphrase needs at least 8 characters")
        wallet = cls.of_key(secrets.token_bytes(32) if key is None else key)
        keystore = Account.encrypt(wallet.key(), passphrase, kdf="scrypt", iterations=work)
        if not write_new(path, msgspec.json.encode(keystore)):
            raise WalletError(f"{path} exists and is never overwritten; choose another name or move it away")
        return wallet

    @classmethod
    def open(cls, path: Path, passphrase: str) -> "KeystoreWallet":
        """Raises WalletError for a file that is missing, open to others, malformed, or of another passphrase."""
        raw = read_private(path, 16 << 10)
        malformed = f"{path} is no keystore of version 3 with scrypt; restore a copy"
        with translated(WalletError, malformed, msgspec.DecodeError, UnicodeDecodeError, reason=False):
            keystore = msgspec.to_builtins(msgspec.json.decode(raw, type=_Keystore))
        with translated(WalletError, f"{path} does not open with this passphrase", ValueError, reason=False):
            return cls.of_key(bytes(Account.decrypt(keystore, passphrase)))

    @classmethod
    def ephemeral(cls, path: Path) -> "KeystoreWallet":
        """The account in `path`, made there first when there is none, its random passphrase in a file beside it. For a
        chain of one's own: who reads the folder has the account. Several processes may call this at once."""
        secret = passphrase_beside(path)
        write_new(secret, secrets.token_hex(32).encode())
        passphrase = read_passphrase(secret)
        if not os.path.lexists(path):
            with contextlib.suppress(WalletError):  # another process was faster; if not, opening says what is wrong
                cls.create(path, passphrase, work=LIGHT_WORK)
        return cls.open(path, passphrase)


class _Signed(msgspec.Struct, frozen=True):
    raw: Annotated[str, Meta(pattern=r"^0x([0-9a-fA-F]{2})+\Z", max_length=MAX_SIGNED)]
    address: Address


class RemoteWallet:
    """address: of the account that has to sign. token: a file that only its owner reads. Raises ConfigError."""

    def __init__(self, url: str, token: Path, address: str) -> None:
        if not is_address(address):
            raise ConfigError(f"chain.account={address[:50]!r} is no address; it has 0x and 40 hexadecimal digits")
        self._url = check_url(url, "chain.signer").rstrip("/") + "/api/sign-transaction"
        self.address, self._token = to_checksum_address(address), token

    def __repr__(self) -> str:
        return f"RemoteWallet({shown(self._url)}, {self.address})"

    def sign_transaction(self, fields: Mapping[str, Any]) -> bytes:
        """Have the expected account sign exactly this. The token is read anew: each login writes another. Raises
        WalletError, ChainUnreachableError."""
        token, where = read_private(self._token, 512).strip(), shown(self._url)
        if not token or not all(0x21 <= byte <= 0x7E for byte in token):  # no word for an HTTP header
            raise WalletError(f"{self._token} holds no token; log in again")
        body = msgspec.json.encode({"transaction": dict(fields)})
        status, raw = post(self._url, body, 10.0, {"Authorization": f"Bearer {token.decode()}"}, MAX_SIGNED)
        refused = f"the signer {where} does not accept the token in {self._token}; log in again"
        locked = f"nobody is logged in at {where}; open it in a browser and log in"
        if reason := {401: refused, 403: refused, 409: locked}.get(status):
            raise WalletError(reason)
        if status != 200:
            raise ChainUnreachableError(f"the signer {where} answers with HTTP {status}")
        malformed = f"the signer {where} answers in a form that no signer has"
        with translated(WalletError, malformed, *UNDECODABLE, reason=False):
            answer = msgspec.json.decode(raw, type=_Signed)
        if (other := to_checksum_address(answer.address)) != self.address:
            raise WalletError(f"the signer signs for {other}, not for {self.address}; log in with that account")
        signed, wanted = HexBytes(answer.raw), {**fields, "to": HexBytes(fields.get("to", b""))}  # in any spelling
        differs = "the signer signed something else than was requested; nothing was sent"
        with translated(WalletError, differs, *MALFORMED, reason=False):
            same = TypedTransaction.from_bytes(signed).hash() == TypedTransaction.from_dict(wanted).hash()
            if not same or Account.recover_transaction(signed) != self.address:
                raise ValueError
        return bytes(signed)


Wallet = KeystoreWallet | RemoteWallet


def ephemeral_key(path: Path) -> bytes | None:
    """[32] bytes of the account that a node has made for itself in a keystore; None: there is none, or one with a
    passphrase of somebody's own. Raises WalletError over files that are none."""
    secret = passphrase_beside(path)
    exists = path.exists() and secret.exists()
    return KeystoreWallet.open(path, read_passphrase(secret)).key() if exists else None


def forget_ephemeral(path: Path) -> None:
    """Delete such a keystore, whose key is safe elsewhere; the passphrase goes first. Raises WalletError."""
    for file in (passphrase_beside(path), path):
        with translated(WalletError, f"{file} cannot be deleted", OSError):
            file.unlink(missing_ok=True)


def passphrase_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.passphrase")


def read_passphrase(file: Path | None, variable: str = "", prompt: str = "", *, confirm: bool = False) -> str:
    """The first line of a file that only its owner reads, else a variable, else what is typed, twice to `confirm`. The
    variable is taken out of the environment, so that no child process inherits it. Raises WalletError."""
    if file is not None:
        return _first_line(read_private(file, 1024), str(file))
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
