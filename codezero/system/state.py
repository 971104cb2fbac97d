"""State: what belongs to a checkpoint, parts whose state is one JSON file, and a memory that is bounded."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from codezero.errors import CheckpointError, translated

T = TypeVar("T")
Key = TypeVar("Key")
Value = TypeVar("Value")


class Newest(OrderedDict[Key, Value]):
    """The `most` entries that were set last, oldest first."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)


class Persistent(Protocol):
    """A part whose state belongs to the checkpoint."""

    def save(self, folder: Path) -> None:
        """Write everything needed to go on into `folder`, which exists and is empty."""

    def load(self, folder: Path) -> None:
        """Become what `save` wrote. Raises CheckpointError."""


class StateFile(Generic[T]):
    """A `Persistent` whose state is one JSON file: `class Part(StateFile[State], file="part.json", schema=State)`.

    optional: a missing file, as of earlier versions, reads as `{}`. nested: parts with files in the same folder."""

    _file: ClassVar[str]
    _schema: ClassVar[Any]
    _optional: ClassVar[bool]
    nested: Sequence[Persistent] = ()
    memory: T  # The state of a part that keeps all of it in one object

    def __init_subclass__(cls, *, file: str = "", schema: Any = None, optional: bool = False) -> None:
        super().__init_subclass__()
        if file:
            cls._file, cls._schema, cls._optional = file, schema, optional

    def state(self) -> T:
        return self.memory

    def restore(self, state: T) -> None:
        """Go on from `state`. Raises ValueError when that is impossible."""
        self.memory = state

    def save(self, folder: Path) -> None:
        for part in self.nested:
            part.save(folder)
        (folder / self._file).write_bytes(msgspec.json.encode(self.state()))

    def load(self, folder: Path) -> None:
        """Raises CheckpointError."""
        path = folder / self._file
        with translated(CheckpointError, f"{path} cannot be read", OSError, ValueError):
            content = b"{}" if self._optional and not path.exists() else path.read_bytes()
            self.restore(msgspec.json.decode(content, type=self._schema))
        for part in self.nested:
            part.load(folder)


class _RoundState(msgspec.Struct, forbid_unknown_fields=True):
    round: Annotated[int, msgspec.Meta(ge=0)] = 0


class KnownRound(StateFile[_RoundState], file="round.json", schema=_RoundState):
    """The latest round that this node knows: it plays on in it while the coordinator does not answer."""

    def __init__(self) -> None:
        self.memory = _RoundState()
