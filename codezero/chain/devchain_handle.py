"""A node's hold on an embedded chain: it finds the process that serves a directory, or starts one."""

import subprocess
import sys
import threading
import time
from pathlib import Path

from codezero.chain.devchain_files import LOG, SERVING, STARTING, USERS, ChainDirectory, Endpoint, Lock, answers
from codezero.errors import ChainError, ConfigError

BUSY = 75
"""Exit code of a chain process that found its directory served by another (EX_TEMPFAIL)."""
START_SECONDS = 60.0
"""An upper bound for a busy machine; a second or two is usual."""
CLOSE_SECONDS = 5.0
LOOK_SECONDS = 0.02
AGAIN_SECONDS = 1.0
"""Until an address that did not answer is asked again."""
MAX_LOG = 1 << 20


class DevChainHandle:
    """A chain that stays while this is open. `url` changes only when `revive` had to start it on another port."""

    def __init__(self, directory: ChainDirectory, users: Lock, endpoint: Endpoint, port: int) -> None:
        self._directory, self._users, self._endpoint, self._port = directory, users, endpoint, port

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
    def chain_id(self) -> int:
        return self._endpoint.chain_id

    @property
    def pid(self) -> int:
        """Of the process that serves it."""
        return self._endpoint.pid

    @property
    def path(self) -> Path:
        return self._directory.path

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
        end = time.monotonic() + CLOSE_SECONDS
        while self._endpoint.while_used and time.monotonic() < end:
            if _free(self._directory, SERVING) or not self._unused():
                return
            time.sleep(LOOK_SECONDS)

    def _unused(self) -> bool:
        """Does nobody use it? The process that ends for that reason holds the users' lock itself for a moment."""
        return _free(self._directory, USERS) or _free(self._directory, USERS, after=0.1)


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


def _reach(directory: ChainDirectory, port: int, chain_id: int | None, end: float) -> Endpoint:
    """Of many callers one starts the process, and the others wait for it; when that one dies, the next has its turn."""
    starting = directory.lock(STARTING)
    child: subprocess.Popen[bytes] | None = None
    silent: tuple[Endpoint | None, float] = (None, 0.0)
    try:
        while True:
            endpoint = directory.endpoint()
            if endpoint is not None and (endpoint != silent[0] or time.monotonic() > silent[1]):
                if answers(endpoint):
                    return _expect(endpoint, chain_id, directory)
                silent = endpoint, time.monotonic() + AGAIN_SECONDS
            ended = None if child is None else child.poll()
            if ended not in (None, BUSY):
                raise ChainError(f"the embedded chain ended with code {ended}: {directory.last_words()}")
            if (child is None or ended == BUSY) and starting.take():
                child = _spawn(directory, port, chain_id)
            _wait(end, directory)
    finally:
        starting.close()


def _expect(endpoint: Endpoint, chain_id: int | None, directory: ChainDirectory) -> Endpoint:
    if chain_id not in (None, endpoint.chain_id):
        raise ConfigError(
            f"the chain in {directory.path} has the id {endpoint.chain_id}, not {chain_id}; "
            "leave the id out, or give another directory"
        )
    return endpoint


def _spawn(directory: ChainDirectory, port: int, chain_id: int | None) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C in the terminal is for the nodes, which end it by ending."""
    command = [sys.executable, "-m", "codezero.chain.devchain", str(directory.path.resolve()), "--port", str(port)]
    if chain_id is not None:
        command += ["--chain-id", str(chain_id)]
    path = directory.path / LOG
    try:
        mode = "wb" if path.exists() and path.stat().st_size > MAX_LOG else "ab"
        with path.open(mode) as log:
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
            f"the embedded chain in {directory.path} does not answer; its last words: {directory.last_words()}"
        )
    time.sleep(LOOK_SECONDS)


def _free(directory: ChainDirectory, name: str, after: float = 0.0) -> bool:
    """Could the lock be taken, now or after so many seconds?"""
    time.sleep(after)
    lock = directory.lock(name)
    try:
        return lock.take()
    finally:
        lock.close()
