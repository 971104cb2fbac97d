"""The own rows of the last iterations, to learn from once more when sampling is dear."""

import random
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from codezero.errors import CheckpointError
from codezero.solver.batch import Row

MAX_ITERATIONS = 8
"""Kept; what is older was written by a policy too far away."""
_FILE = "replay.json"

_Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt_ids: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1)]
    completion_ids: tuple[_Id, ...]
    logprobs: tuple[float, ...]
    advantage: float


_State = list[list[_Row]]


class Replay:
    """Rows as they were sampled: the log-probabilities are those of the policy that wrote them."""

    def __init__(self) -> None:
        self._kept: deque[tuple[Row, ...]] = deque(maxlen=MAX_ITERATIONS)

    def add(self, rows: Sequence[Row]) -> None:
        """The rows of one iteration that push; the oldest iteration is forgotten."""
        self._kept.append(tuple(row for row in rows if row.advantage and row.completion_ids))

    def draw(self, count: int, chance: random.Random) -> list[Row]:
        """At most `count` of the kept rows, whole groups as far as they fit: each keeps its pushes up and down."""
        groups: dict[tuple[int, ...], list[Row]] = {}
        for row in (row for rows in self._kept for row in rows):
            groups.setdefault(row.prompt_ids, []).append(row)
        drawn: list[Row] = []
        for group in chance.sample(list(groups.values()), len(groups)):
            if len(drawn) + len(group) <= count:
                drawn += group
        return drawn

    def save(self, folder: Path) -> None:
        state = [[_Row(r.prompt_ids, r.completion_ids, r.logprobs, r.advantage) for r in rows] for rows in self._kept]
        (folder / _FILE).write_bytes(msgspec.json.encode(state))

    def load(self, folder: Path) -> None:
        """Raises CheckpointError."""
        path = folder / _FILE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=_State)
            kept = [tuple(Row(r.prompt_ids, r.completion_ids, r.logprobs, r.advantage) for r in rows) for rows in state]
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        self._kept = deque(kept, maxlen=MAX_ITERATIONS)
