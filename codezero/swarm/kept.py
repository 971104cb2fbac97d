"""What a node's handle on its swarm remembers in the checkpoint: proposals, and whose groups it has taken.

Only what the learning rests on. Trust and the way to others are kept by the network process in the run's folder, and
what was under way is lost with the process, as it may be on any network.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import CheckpointError
from codezero.swarm.offers import AUTHORS, WITHDRAWN_EACH
from codezero.types import Problem

_FILE = "swarm.json"
_MOST_OFFERS = 256
_MOST_SEEN = 8192
_MOST_PEERS = 100_000
_Id = Annotated[str, msgspec.Meta(max_length=64)]


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounded as what it is made of is."""

    offers: Annotated[list[Problem], msgspec.Meta(max_length=_MOST_OFFERS)] = []
    """Everybody's proposals, oldest first."""
    own: Annotated[list[tuple[Problem, list[str]]], msgspec.Meta(max_length=_MOST_OFFERS)] = []
    """Own ones, with the peers that were heard about them."""
    seen: Annotated[list[bytes], msgspec.Meta(max_length=_MOST_SEEN)] = []
    """Fingerprints of the groups that were handed on."""
    heard: Annotated[list[str], msgspec.Meta(max_length=_MOST_PEERS)] = []
    """Peers that a swarm in memory has heard."""
    withdrawn: Annotated[
        dict[str, Annotated[list[_Id], msgspec.Meta(max_length=WITHDRAWN_EACH)]],
        msgspec.Meta(max_length=AUTHORS),
    ] = {}
    """By author, the ids of the problems that it took back."""
    counts: dict[str, int] = {}


def write_kept(folder: Path, kept: Kept) -> None:
    (folder / _FILE).write_bytes(msgspec.json.encode(kept))


def read_kept(folder: Path) -> Kept:
    """Raises CheckpointError."""
    path = folder / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Kept)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
