"""The account that a node makes for itself before anybody owns it, as the login takes it over."""

import contextlib
from pathlib import Path

import msgspec
from eth_utils.address import is_address, to_checksum_address

from codezero.chain.wallet import MAX_KEYSTORE, KeystoreWallet
from codezero.errors import WalletError
from codezero.system.files import read_private


class ThrowAway:
    """The keystore in `path`, with its passphrase beside it. Raises WalletError over files that are none."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._secret = path.with_name(f"{path.name}.passphrase")

    @property
    def address(self) -> str | None:
        """Checksummed. None: there is none, or one with a passphrase of somebody's own, which stays as it is."""
        if not (self._path.exists() and self._secret.exists()):
            return None
        try:
            told = msgspec.json.decode(read_private(self._path, MAX_KEYSTORE), type=dict[str, msgspec.Raw])
            address = "0x" + msgspec.json.decode(told["address"], type=str).removeprefix("0x")
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError) as error:
            raise WalletError(f"{self._path} names no account; restore a copy") from error
        if not is_address(address):
            raise WalletError(f"{self._path} names no account; restore a copy")
        return to_checksum_address(address)

    def adopt(self) -> bytes | None:
        """[32] bytes; nothing changes yet. None: there is nothing to take over."""
        return None if self.address is None else KeystoreWallet.throw_away(self._path).key()

    def adopted(self) -> None:
        """Its key is safe elsewhere: nothing here opens it any more. The passphrase goes first."""
        try:
            for path in (self._secret, self._path):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        except OSError as error:
            raise WalletError(f"{error.filename} cannot be deleted: {error.strerror}") from error
