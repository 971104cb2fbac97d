"""Files that only their owner may read: made whole, never over another, refused when others could read them."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from codezero.errors import DiskFullError, WalletError
from codezero.room import lacks_room


def write_new(path: Path, content: bytes) -> bool:
    """All or nothing, mode 0600, and never over a file that is there. Did this call make it? Raises WalletError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                os.fchmod(file.fileno(), 0o600)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):
                os.link(name, path)
                return True
            return False
        finally:
            os.unlink(name)
    except OSError as error:
        kind = DiskFullError if lacks_room(error) else WalletError
        raise kind(f"cannot write {path}: {error.strerror}") from error


def read_private(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of a regular file that nobody else may read. Raises WalletError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise WalletError(f"{path} is not a regular file")
            if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise WalletError(f"{path} is open to other users of this machine; run: chmod 600 {path}")
            content = file.read(limit + 1)
    except OSError as error:
        raise WalletError(f"{path}: {error.strerror}") from error
    if len(content) > limit:
        raise WalletError(f"{path} is longer than the {limit} bytes it may have")
    return content
