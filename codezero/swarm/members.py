"""Membership: everybody, or the peers that a file names.

Keys cost nothing: an attacker with a thousand of them is held back by a list, and not by limits per peer.
"""

import logging
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path

import base58

from codezero.errors import ConfigError
from codezero.swarm.identity import INLINE_KEY

logger = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""Least time between two checks of the file."""
MAX_LIST = 1 << 20
"""Bytes of an allow-list: room for 20,000 peer ids."""
PEER_ID = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,64}")
"""The form of a peer id. `schema.PeerId` is the same for records."""

Members = Callable[[str], bool]
"""Whether a peer id belongs. Called for every record and request, so it returns at once and never raises."""


def open_to_all(peer: str) -> bool:
    """Whoever has a peer id belongs."""
    return PEER_ID.fullmatch(peer) is not None


class AllowList:
    """The peers that a text file names: one peer id a line; `#` begins a comment. A change counts within CHECK_SECONDS.

    Used from one thread. `clock` gives seconds, from any start.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError for a file that is missing, larger than MAX_LIST, or has a line that is no peer id."""
        self._path, self._clock = path, clock
        self._checked = clock()
        self._stamp = _stamp(path)
        self._peers = _read(path)

    def __call__(self, peer: str, /) -> bool:
        """Is `peer` named? A list that an edit broke is not used: the one before stays, and a warning says so."""
        now = self._clock()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            before, self._stamp = self._stamp, _stamp(self._path)  # before reading: a broken list is warned of once
            if self._stamp != before:
                try:
                    self._peers = _read(self._path)
                except ConfigError as error:
                    logger.warning("%s; the %d peers named before remain", error, len(self._peers))
        return peer in self._peers


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Time of change in nanoseconds, bytes and inode; None for a file that cannot be read."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> frozenset[str]:
    """Raises ConfigError."""
    try:
        # Without O_NONBLOCK a pipe in its place would hang the node.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} is not a regular file; give a text file with one peer id a line")
            raw = file.read(MAX_LIST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the allow-list {path}: {error.strerror}") from error
    if len(raw) > MAX_LIST:
        raise ConfigError(f"{path} is larger than {MAX_LIST} bytes; an allow-list has one peer id a line")
    lines = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    named = (line.partition(b"#")[0].strip().decode("utf-8", "replace") for line in lines)
    peers = {number: peer for number, peer in enumerate(named, start=1) if peer}
    for number, peer in peers.items():
        if not _is_peer_id(peer):
            raise ConfigError(f"{path}, line {number}: {peer[:64]!a} is no peer id; write one a line, without /p2p/")
    return frozenset(peers.values())


def _is_peer_id(text: str) -> bool:
    """Is it one that `identity.peer_id_of` may write?"""
    if not PEER_ID.fullmatch(text):
        return False
    multihash = base58.b58decode(text)
    if multihash[:2] == b"\x12\x20":
        return len(multihash) == 34
    return multihash[0] == 0 and len(multihash) <= 2 + INLINE_KEY and multihash[1] == len(multihash) - 2
