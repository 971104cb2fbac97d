"""A node's hold on the embedded chain: it finds the process that serves a directory, or starts one.

A process that was started so inherits `serving.lock`, and ends when nobody holds `users.lock` any more. Locks are
flock(2), which kill -9 frees."""

import subprocess
import threading
import time
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Annotated, Any

import msgspec

from codezero.errors import ChainError, ConfigError
from codezero.system.child import python
from codezero.system.files import UNDECODABLE, Lock, read_known, set_aside

SERVING, USERS, ENDPOINT, LOG = "serving.lock", "users.lock", "endpoint.json", "chain.log"
HOST = "127.0.0.1"
ANSWER_SECONDS, CLOSE_SECONDS, POLL_SECONDS = 2.0, 5.0, 0.02
START_SECONDS = 120.0  # for a busy machine; two seconds are usual


class ChainEndpoint(msgspec.Struct, frozen=True):
    """Where a chain is served on this machine. version: names the one process, which repeats it when asked.

    while_used: it ends when nobody uses it any more."""

    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    chain_id: int
    pid: int
    version: Annotated[str, msgspec.Meta(max_length=256)]
    while_used: bool

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @classmethod
    def of(cls, path: Path) -> "ChainEndpoint | None":
        """As last written in a directory, perhaps by a process that is no more. None: nothing readable."""
        return read_known(path / ENDPOINT, cls, 4096)

    def answers(self) -> bool:
        """Is the very process that wrote this reached there? Another program on its old port is not."""
        from codezero.chain.bounded_http import post  # aiohttp is not for those who only find the file

        request = b'{"jsonrpc":"2.0","id":1,"method":"web3_clientVersion","params":[]}'
        try:
            _, raw = post(self.url, request, ANSWER_SECONDS, limit=65536)
            return msgspec.json.decode(raw, type=dict[str, object]).get("result") == self.version
        except (ChainError, *UNDECODABLE):
            return False


class DevChainHandle(AbstractContextManager["DevChainHandle"]):
    """The chain in a directory, served on loopback while this is open.

    port: 0 is the one it had last time, or any; only for a process that this starts. chain_id: only for a chain that
    this makes, which otherwise gets one of its own; another one than the chain has is a ConfigError. Raises ChainError
    where the chain cannot be served or does not answer within START_SECONDS."""

    endpoint: ChainEndpoint  # its URL changes only when `revive` had to start the chain on another port

    def __init__(self, path: Path, *, port: int = 0, chain_id: int | None = None) -> None:
        self.path, self._port, self._wanted = path, port, chain_id
        self._users = Lock(path / USERS)
        try:
            self.revive()
        except BaseException:
            self._users.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self.endpoint.url

    def revive(self) -> str:
        """The URL of the chain, started where no process serves it. Raises ChainError and ConfigError. Of many callers
        one starts the process, and the others wait for it; when that one dies, the next has its turn."""
        end, child, code = time.monotonic() + START_SECONDS, None, None
        while time.monotonic() < end:
            # First the lock, then the question: a process that answers after this does not end any more.
            if self._users.take(shared=True):
                endpoint = ChainEndpoint.of(self.path)
                if endpoint is not None and endpoint.answers():
                    if self._wanted not in (None, endpoint.chain_id):
                        has = f"the chain in {self.path} has the id {endpoint.chain_id}, not {self._wanted}"
                        raise ConfigError(f"{has}; leave the id out, or give another directory")
                    self.endpoint, self.chain_id, self._wanted = endpoint, endpoint.chain_id, endpoint.chain_id
                    return self.url
                if child is not None and (code := child.poll()) is not None:
                    break
                with closing(Lock(self.path / SERVING)) as serving:
                    if child is None and serving.take():
                        child = self._spawn(serving)
            time.sleep(POLL_SECONDS)
        log = self.path / LOG
        words = log.read_text("utf-8", "replace").strip().rpartition("\n")[2] if log.exists() else ""
        what = "does not answer" if code is None else f"ended with code {code}"
        raise ChainError(f"the embedded chain in {self.path} {what}; its last words: {words}")

    def close(self) -> None:
        """Use it no longer. The last to close waits until the process has ended, unless somebody runs it by hand."""
        last = self._users.take()
        self._users.close()
        end = time.monotonic() + CLOSE_SECONDS
        with closing(Lock(self.path / SERVING)) as serving:
            while last and self.endpoint.while_used and time.monotonic() < end and not serving.take():
                time.sleep(POLL_SECONDS)

    def _spawn(self, serving: Lock) -> subprocess.Popen[bytes]:
        words = str(self.path.resolve()), str(self._port), str(self._wanted or 0)
        command, null = python("-m", "codezero.chain.devchain_server", *words), subprocess.DEVNULL
        # in a session of its own: Ctrl-C in the terminal is for the nodes, which end it by ending
        options: Any = {"stdin": null, "stdout": null, "start_new_session": True, "pass_fds": [serving.fileno()]}
        with set_aside(self.path / LOG, 1 << 20).open("ab") as log:
            child = subprocess.Popen[bytes](command, stderr=log, **options)
        threading.Thread(target=child.wait, name="devchain-reaper", daemon=True).start()
        return child
