"""A node's hold on the embedded chain: it finds the process that serves a directory, or starts one.

Every handle holds a shared lock on the directory's `users.lock`; a process that was started so ends when nobody holds
one any more. Locks are flock(2): the operating system frees those of the dead, so that kill -9 leaves neither an orphan
nor a lock behind.

    chain.db        everything (SQLite)             serving.lock    held by the one process that serves
    faucet.key      the faucet's key, 0600          users.lock      held, shared, by those that use it
    endpoint.json   where it is served              starting.lock   held by the one caller that starts the process
    chain.log       stderr of a process that `start` made
"""

import fcntl
import http.client
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import ChainError, ConfigError
from codezero.system.files import set_aside, write_atomic

DATABASE, FAUCET_KEY, LOG = "chain.db", "faucet.key", "chain.log"
SERVING, STARTING, USERS, ENDPOINT = "serving.lock", "starting.lock", "users.lock", "endpoint.json"
MAX_ENDPOINT, MAX_ANSWER, MAX_LOG = 4096, 65536, 1 << 20
BUSY = 75
"""Exit code of a chain process that found its directory served by another (EX_TEMPFAIL)."""
ANSWER_SECONDS = 2.0
START_SECONDS = 120.0
"""An upper bound for a busy machine, and for a large chain of version 0.1.0; two seconds are usual."""
CLOSE_SECONDS = 5.0
POLL_SECONDS = 0.02
AGAIN_SECONDS = 1.0
"""Until an address that did not answer is asked again."""


class ChainEndpoint(msgspec.Struct, frozen=True):
    """Where a chain is served. version: names the one process, which repeats it when asked."""

    url: Annotated[str, msgspec.Meta(max_length=64)]
    chain_id: int
    host: Annotated[str, msgspec.Meta(pattern=r"^(?:127\.0\.0\.1|localhost|::1)\Z")]
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    pid: int
    version: Annotated[str, msgspec.Meta(max_length=256)]
    while_used: bool
    """It ends when nobody uses it any more."""


class Lock:
    """A lock file. `take` never waits. Raises ChainError."""

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


class ChainDirectory:
    """A directory, made where it is missing. Raises ChainError where that fails."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ChainError(f"cannot keep a chain in {path}: {error.strerror}") from error

    def lock(self, name: str) -> Lock:
        return Lock(self.path / name)

    def free(self, name: str, after: float = 0.0) -> bool:
        """Can the lock be taken, now or after so many seconds?"""
        time.sleep(after)
        lock = self.lock(name)
        try:
            return lock.take()
        finally:
            lock.close()

    def endpoint(self) -> ChainEndpoint | None:
        """As last written; whether somebody answers there is another question. None where nothing readable is."""
        try:
            with (self.path / ENDPOINT).open("rb") as file:
                return msgspec.json.decode(file.read(MAX_ENDPOINT), type=ChainEndpoint)
        except (FileNotFoundError, msgspec.DecodeError):
            return None
        except OSError as error:
            raise ChainError(f"cannot read {self.path / ENDPOINT}: {error.strerror}") from error

    def write_endpoint(self, endpoint: ChainEndpoint) -> None:
        """All or nothing; 0600."""
        try:
            write_atomic(self.path / ENDPOINT, msgspec.json.encode(endpoint), private=True)
        except OSError as error:
            raise ChainError(f"cannot write {self.path / ENDPOINT}: {error.strerror}") from error

    def last_log_line(self) -> str:
        try:
            with (self.path / LOG).open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
                lines = file.read(2000).decode("utf-8", "replace").split("\n")
        except OSError:
            return "it left no log"
        return next((line for line in reversed(lines) if line.strip()), "its log is empty")


class DevChainHandle:
    """A chain that stays while this is open. `url` changes only when `revive` had to start it on another port."""

    def __init__(self, directory: ChainDirectory, users: Lock, endpoint: ChainEndpoint, port: int) -> None:
        self._directory, self._users, self._endpoint, self._port = directory, users, endpoint, port
        self.path, self.chain_id = directory.path, endpoint.chain_id

    def __enter__(self) -> "DevChainHandle":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DevChainHandle({self.url}, chain id {self.chain_id}, {self.path})"

    @property
    def url(self) -> str:
        return self._endpoint.url

    @property
    def pid(self) -> int:
        """Of the process that serves it."""
        return self._endpoint.pid

    def alive(self) -> bool:
        """Does it answer now?"""
        return answers(self._endpoint)

    def revive(self, seconds: float = START_SECONDS) -> str:
        """The URL of the chain, started anew where its process had died. Raises ChainError."""
        self._endpoint = _reach(self._directory, self._port, self.chain_id, time.monotonic() + seconds)
        return self.url

    def close(self) -> None:
        """Use it no longer. The last to close waits until the process has ended, unless somebody runs it by hand."""
        self._users.close()
        end, directory = time.monotonic() + CLOSE_SECONDS, self._directory
        while self._endpoint.while_used and time.monotonic() < end and not directory.free(SERVING):
            # the process that ends because nobody uses it holds the users' lock itself for a moment
            if not directory.free(USERS) and not directory.free(USERS, after=0.1):
                return
            time.sleep(POLL_SECONDS)


def start(path: Path, *, port: int = 0, chain_id: int | None = None, seconds: float = START_SECONDS) -> DevChainHandle:
    """The chain in a directory, served on loopback.

    port: 0 is the one it had last time, or any; only for a process that this call starts. chain_id: only for a chain
    that this call makes, which otherwise gets one of its own; another one than the chain has is a ConfigError. Raises
    ChainError where the chain cannot be served or does not answer within `seconds`.
    """
    directory = ChainDirectory(path)
    end = time.monotonic() + seconds
    users = directory.lock(USERS)
    try:
        # First the lock, then the question: a process that answers after this does not end any more.
        while not users.take(shared=True):
            _wait(end, directory)
        endpoint = _reach(directory, port, chain_id, end)
    except BaseException:
        users.close()
        raise
    return DevChainHandle(directory, users, endpoint, port)


def answers(endpoint: ChainEndpoint, seconds: float = ANSWER_SECONDS) -> bool:
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


def foreign_id(directory: Path, chain_id: int, wanted: int) -> ConfigError:
    return ConfigError(
        f"the chain in {directory} has the id {chain_id}, not {wanted}; leave the id out, or give another directory"
    )


def _reach(directory: ChainDirectory, port: int, chain_id: int | None, end: float) -> ChainEndpoint:
    """Of many callers one starts the process, and the others wait for it; when that one dies, the next has its turn."""
    starting = directory.lock(STARTING)
    child: subprocess.Popen[bytes] | None = None
    silent: tuple[ChainEndpoint | None, float] = (None, 0.0)
    try:
        while True:
            endpoint = directory.endpoint()
            if endpoint is not None and (endpoint != silent[0] or time.monotonic() > silent[1]):
                if answers(endpoint):
                    if chain_id not in (None, endpoint.chain_id):
                        raise foreign_id(directory.path, endpoint.chain_id, chain_id)
                    return endpoint
                silent = endpoint, time.monotonic() + AGAIN_SECONDS
            code = None if child is None else child.poll()
            if code not in (None, BUSY):
                raise ChainError(f"the embedded chain ended with code {code}: {directory.last_log_line()}")
            if (child is None or code == BUSY) and starting.take():
                child = _spawn(directory, port, chain_id)
            _wait(end, directory)
    finally:
        starting.close()


def _spawn(directory: ChainDirectory, port: int, chain_id: int | None) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C in the terminal is for the nodes, which end it by ending."""
    command = [sys.executable, "-m", "codezero.chain.devchain_server", str(directory.path.resolve())]
    command += [str(port), str(chain_id or 0)]
    try:
        with set_aside(directory.path / LOG, MAX_LOG).open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
    except OSError as error:
        raise ChainError(f"cannot start the embedded chain: {error}") from error
    threading.Thread(target=child.wait, name="devchain-reaper", daemon=True).start()
    return child


def _wait(end: float, directory: ChainDirectory) -> None:
    if time.monotonic() > end:
        raise ChainError(
            f"the embedded chain in {directory.path} does not answer; its last words: {directory.last_log_line()}"
        )
    time.sleep(POLL_SECONDS)
