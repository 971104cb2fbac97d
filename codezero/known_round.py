"""The latest round that a node has heard of: what it plays on in while nobody can say which one is open."""

from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import CheckpointError

_FILE = "round.json"


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    round: Annotated[int, msgspec.Meta(ge=0)]


class KnownRound:
    """See `protocols.Persistent`: a restart goes on in it, and not in round 0."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def save(self, folder: Path) -> None:
        (folder / _FILE).write_bytes(msgspec.json.encode(_State(self.number)))

    def load(self, folder: Path) -> None:
        path = folder / _FILE
        try:
            self.number = msgspec.json.decode(path.read_bytes(), type=_State).round
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
