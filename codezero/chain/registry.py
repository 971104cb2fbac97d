"""Who belongs to the swarm, as the contract knows it: the registered peers, kept in a file that the gossip reads.

A registered peer has paid for its place in gas, which is the brake on invented ids. The list only grows, is bounded,
and stays as it is while the chain cannot be read.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from codezero.errors import ChainError
from codezero.system.files import write_atomic

if TYPE_CHECKING:
    from codezero.chain.contract import ContractCoordinator

MAX_MEMBERS = 20_000
EVERY = 5.0
"""Seconds between two readings."""
BASE58 = frozenset("123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz")


class Registry:
    """`tick` is one reading; `rounds.Repeating` calls it."""

    def __init__(self, coordinator: "ContractCoordinator", path: Path, me: str) -> None:
        """Writes the file at once, with `me` alone: a node hears nobody before the chain has named somebody."""
        self._coordinator, self._path = coordinator, path
        self._members, self._cursor = {me: None}, 0
        write_members(path, [me])

    def tick(self) -> None:
        """Raises ChainError."""
        before = len(self._members)
        for page in self._coordinator.history(self._cursor, ["PeerRegistered"]):
            for event in page.events:
                peer = event["args"]["peerId"]
                if len(self._members) < MAX_MEMBERS and 32 <= len(peer) <= 64 and BASE58.issuperset(peer):
                    self._members[peer] = None
            self._cursor = page.cursor
        if len(self._members) > before:
            write_members(self._path, list(self._members))


def write_members(path: Path, members: list[str]) -> None:
    """One a line, all or nothing. Raises ChainError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(f"{member}\n" for member in members))
    except OSError as error:
        raise ChainError(f"{path} cannot be written: {error.strerror}") from error
