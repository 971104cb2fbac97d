"""Holds an identity for one living node, and ends the daemon that a dead one left with its port and peer id."""

import contextlib
import logging
import os
import signal
import stat
from pathlib import Path

import msgspec

from codezero.errors import IdentityError
from codezero.swarm.messages import NetworkReady
from codezero.swarm.network_status import replace_file
from codezero.system.files import read_json, take_lock

logger = logging.getLogger(__name__)

FILE = "daemon.json"
MAX_FILE = 64 << 10


class IdentityLock:
    """The lock on one identity file, and the note of the own daemon."""

    def __init__(self, identity: Path, folder: Path) -> None:
        """`folder`: where the note survives a kill -9."""
        self._identity, self._file = identity, folder / FILE
        self._lock: int | None = None
        self._ready: NetworkReady | None = None

    def take(self) -> None:
        """Hold the identity and end what a dead node left running. Raises IdentityError when a living node holds it."""
        try:
            self._lock = os.open(self._identity, os.O_RDONLY)
            if not take_lock(self._lock):
                self.release()
                raise IdentityError(
                    f"{self._identity} is in use: another node on this machine is this peer. Stop it, or give this "
                    "one an identity of its own: swarm.identity=FILE"
                )
        except OSError as error:  # a file system without locks
            logger.warning("%s cannot be locked (%s): see to it that one node alone uses it", self._identity, error)
        with contextlib.suppress(OSError, ValueError):
            self._ready = read_json(self._file, NetworkReady, MAX_FILE)
        self.clean()

    def note(self, ready: NetworkReady) -> None:
        self._ready = ready
        replace_file(self._file, msgspec.json.encode(ready))

    def clean(self) -> None:
        """Kill the daemon of a dead network process and remove its sockets, if they are still there.

        The socket's random name in its command line tells the daemon from a stranger that was given its process id.
        """
        ready, self._ready = self._ready, None
        if ready is None or not ready.sockets:
            return
        name = os.path.basename(ready.sockets[0]).encode()
        with contextlib.suppress(OSError):
            if name and name in Path(f"/proc/{ready.daemon}/cmdline").read_bytes():
                os.kill(ready.daemon, signal.SIGKILL)
        for socket in ready.sockets:
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(os.lstat(socket).st_mode):
                    os.unlink(socket)
        with contextlib.suppress(OSError):
            self._file.unlink()

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
