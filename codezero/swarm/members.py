"""Who belongs to the swarm: everybody, or the peers that a file names.

A key costs nothing to make, so the limits that a node sets for each peer hold back only those who cannot bring a
thousand of them. Whoever needs more gives the node a list.
"""

import logging
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import base58

from codezero.errors import ConfigError
from codezero.swarm.identity import INLINE_KEY

logger = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""Least time between two looks at the file."""
MAX_LIST = 1 << 20
"""Bytes of an allow-list: room for 20,000 peer ids."""
PEER_ID = re.compile(r"[1-9A-HJ-NP-Za-km-z]{32,64}")
"""The look of a peer id. `schema.PeerId` is the same for records."""
LONGEST_SHOWN = 64
"""Characters that an error quotes of a line."""

Stamp = tuple[int, int, int]
"""Time of change in nanoseconds, bytes and inode of the file that was read."""


class Members(Protocol):
    """Decides whether a peer id belongs. Asked for every record and request, so it answers at once and never raises."""

    def __call__(self, peer: str, /) -> bool: ...


def open_to_all() -> Members:
    """Whoever has a peer id belongs."""
    return lambda peer: PEER_ID.fullmatch(peer) is not None


class AllowList:
    """The peers that a text file names: one peer id a line; `#` begins a comment. Used from one thread.

    A change of the file counts within CHECK_SECONDS, without a restart. `clock` gives seconds, from any start.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError for a file that is missing, larger than MAX_LIST, or has a line that is no peer id."""
        self._path, self._clock = path, clock
        self._checked = clock()
        self._stamp: Stamp | None
        self._stamp, self._peers = _read(path)

    def __call__(self, peer: str, /) -> bool:
        """Is `peer` named? A list that an edit broke is not used: the one before stays, and a warning says so."""
        now = self._clock()
        if now - self._checked >= CHECK_SECONDS:
            self._checked = now
            self._look()
        return peer in self._peers

    def __len__(self) -> int:
        """How many peers were named when the file was last read."""
        return len(self._peers)

    def _look(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # before reading: a broken list is warned of once, not at every look
        try:
            self._stamp, self._peers = _read(self._path)
        except ConfigError as error:
            logger.warning("%s; the %d peers named before remain", error, len(self._peers))


def _stamp(path: Path) -> Stamp | None:
    """None for a file that cannot be looked at."""
    try:
        return _stamp_of(os.stat(path))
    except OSError:
        return None


def _stamp_of(status: os.stat_result) -> Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(path: Path) -> tuple[Stamp, frozenset[str]]:
    """Raises ConfigError."""
    try:
        # Without O_NONBLOCK a pipe in its place would hang the node.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{path} is not a regular file; give a text file with one peer id a line")
            raw = file.read(MAX_LIST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the allow-list {path}: {error.strerror}") from error
    if len(raw) > MAX_LIST:
        raise ConfigError(f"{path} is larger than {MAX_LIST} bytes; an allow-list has one peer id a line")
    lines = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    named = (_parse(path, number, line) for number, line in enumerate(lines, start=1))
    return _stamp_of(status), frozenset(peer for peer in named if peer)


def _parse(path: Path, number: int, line: bytes) -> str:
    """The peer id in a line; empty when the line has none. Raises ConfigError."""
    text = line.partition(b"#")[0].strip().decode("utf-8", "replace")
    fault = _fault(text) if text else ""
    if fault:
        shown = text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
        raise ConfigError(f"{path}, line {number}: {shown!a} is no peer id: {fault}")
    return text


def _fault(text: str) -> str:
    """What keeps `text` from being a peer id, as `identity.peer_id_of` writes them; empty when it is one."""
    if "/" in text:
        return "an address; write only what follows /p2p/"
    if len(text.split()) > 1:
        return "more than one word; write one peer id a line"
    if re.search(r"[^1-9A-HJ-NP-Za-km-z]", text):
        return "not base58 (digits and letters without 0, O, I and l)"
    if not PEER_ID.fullmatch(text):
        return f"it has {len(text)} characters"
    multihash = base58.b58decode(text)
    hashed = multihash[:2] == b"\x12\x20" and len(multihash) == 34
    inline = multihash[:1] == b"\x00" and len(multihash) <= 2 + INLINE_KEY and multihash[1] == len(multihash) - 2
    if not (hashed or inline):
        return "characters are missing, added or mistyped"
    return ""
