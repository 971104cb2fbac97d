"""The embedded chain's directory: who serves it, who uses it, and where it is reached.

Locks are flock(2): the operating system frees them when their process ends, however it ends.
"""

import fcntl
import http.client
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import ChainError

DATABASE, FAUCET_KEY, LOG = "chain.db", "faucet.key", "chain.log"
SERVING, STARTING, USERS, ENDPOINT = "serving.lock", "starting.lock", "users.lock", "endpoint.json"
MAX_ENDPOINT, MAX_ANSWER = 4096, 65536
ASK_SECONDS = 2.0


class ChainBusyError(ChainError):
    """Another process serves this directory."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a chain is served. version: names the one process, which repeats it when asked."""

    url: Annotated[str, msgspec.Meta(max_length=64)]
    chain_id: int
    host: Annotated[str, msgspec.Meta(pattern=r"^(?:127\.0\.0\.1|localhost|::1)\Z")]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    pid: int
    version: Annotated[str, msgspec.Meta(max_length=256)]
    while_used: bool
    """It ends when nobody uses it any more."""


@dataclass(frozen=True)
class ChainDirectory:
    """A directory, made where it is missing. Raises ChainError where that fails."""

    path: Path

    def __post_init__(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ChainError(f"cannot keep a chain in {self.path}: {error.strerror}") from error

    def lock(self, name: str) -> "Lock":
        return Lock(self.path / name)

    def endpoint(self) -> Endpoint | None:
        """As last written; whether somebody answers there is another question. None where nothing readable is."""
        try:
            with (self.path / ENDPOINT).open("rb") as file:
                return msgspec.json.decode(file.read(MAX_ENDPOINT), type=Endpoint)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        except OSError as error:
            raise ChainError(f"cannot read {self.path / ENDPOINT}: {error.strerror}") from error

    def write_endpoint(self, endpoint: Endpoint) -> None:
        """All or nothing; 0600."""
        try:
            descriptor, name = tempfile.mkstemp(prefix=f".{ENDPOINT}.", dir=self.path)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(endpoint))
            os.replace(name, self.path / ENDPOINT)
        except OSError as error:
            raise ChainError(f"cannot write {self.path / ENDPOINT}: {error.strerror}") from error

    def last_words(self) -> str:
        """The last line of the log."""
        try:
            with (self.path / LOG).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
                lines = file.read(2000).decode("utf-8", "replace").split("\n")
        except OSError:
            return "it left no log"
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


class Lock:
    """A lock file. `take` never waits."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ChainError(f"cannot open {path}: {error.strerror}") from error

    def take(self, shared: bool = False) -> bool:
        """Is it ours now? A shared lock goes together with other shared ones."""
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give it back. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def answers(endpoint: Endpoint, seconds: float = ASK_SECONDS) -> bool:
    """Is the very process that wrote this endpoint reached there? Another program on its old port is not."""
    request = b'{"jsonrpc":"2.0","id":1,"method":"web3_clientVersion","params":[]}'
    connection = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=seconds)
    try:
        connection.request("POST", "/", request, {"Content-Type": "application/json"})
        answer = msgspec.json.decode(connection.getresponse().read(MAX_ANSWER), type=dict[str, msgspec.Raw])
        return msgspec.json.decode(answer["result"], type=str) == endpoint.version
    except (OSError, http.client.HTTPException, msgspec.DecodeError, KeyError):
        return False
    finally:
        connection.close()
