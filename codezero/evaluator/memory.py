"""What the watch remembers across restarts, as one JSON file of the checkpoint."""

from pathlib import Path

import msgspec

from codezero.errors import CheckpointError
from codezero.evaluator.alarm import Look
from codezero.evaluator.audit import Audited
from codezero.evaluator.calibration import Calibration
from codezero.evaluator.window import JudgedCanary

_FILE = "watch.json"


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See `watch.Watch`."""

    identity: str
    """Of the judge: another one starts without memory."""
    calibration: Calibration | None
    first_auroc: float | None
    refits: int
    canaries: list[JudgedCanary]
    looks: dict[str, Look]
    audited: list[Audited]


def write_memory(folder: Path, memory: Memory) -> None:
    (folder / _FILE).write_bytes(msgspec.json.encode(memory))


def read_memory(folder: Path) -> Memory:
    """Raises CheckpointError."""
    path = folder / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Memory)
    except (OSError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
