"""The problems of each iteration: a share of peers' proposals, the rest synthetic; never an item twice.

A synthetic item is the pair (peer, cursor): the cursor only moves on, and each position has its own generator, so two
peers see two orders and a resumed run goes on as if it had never stopped. Level 1 has few programs, so two positions
can hold the same text; one that was among the last 4,096 is skipped. A proposal is an item by its id.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec

from codezero.errors import CheckpointError
from codezero.problems.synthetic import is_held_out, make_task, parse_question
from codezero.types import Problem

_FILE = "stream.json"
_REMEMBERED = 4096
_KEY_DIGITS = 16
"""Of a problem's id; enough to tell 4,096 apart."""

_Keys = Annotated[list[Annotated[str, msgspec.Meta(max_length=_KEY_DIGITS)]], msgspec.Meta(max_length=_REMEMBERED)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cursor: Annotated[int, msgspec.Meta(ge=0)]
    synthetic: _Keys
    proposals: _Keys


class SyntheticStream:
    """batch: problems in an iteration. proposer_share: most of them, in [0, 1], that proposals may fill."""

    def __init__(self, *, seed: int, peer_id: str, batch: int, proposer_share: float) -> None:
        self._origin = f"{seed} {peer_id}"
        self._batch = batch
        self._most_proposals = int(batch * proposer_share)
        self._cursor = 0
        self._synthetic = _Recent()
        self._proposals = _Recent()

    def next_batch(self, proposals: Sequence[Problem]) -> list[Problem]:
        """`batch` problems: the first usable `proposals` up to their share, then synthetic ones."""
        chosen: list[Problem] = []
        for proposal in proposals:
            if len(chosen) == self._most_proposals:
                break
            if self.admits(proposal) and self._proposals.add(proposal.id):
                chosen.append(proposal)
        chosen.extend(self._fresh() for _ in range(self._batch - len(chosen)))
        return chosen

    def admits(self, problem: Problem) -> bool:
        """False for a problem that asks for a held-out program."""
        parsed = parse_question(problem.question)
        return parsed is None or not is_held_out(parsed[1])

    def save(self, folder: Path) -> None:
        state = _State(cursor=self._cursor, synthetic=list(self._synthetic), proposals=list(self._proposals))
        (folder / _FILE).write_bytes(msgspec.json.encode(state))

    def load(self, folder: Path) -> None:
        path = folder / _FILE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=_State)
        except (OSError, msgspec.MsgspecError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        self._cursor = state.cursor
        self._synthetic = _Recent(state.synthetic)
        self._proposals = _Recent(state.proposals)

    def _fresh(self) -> Problem:
        """The next problem from the cursor on; always found, because there are far more than are remembered."""
        while True:
            problem = make_task(Random(f"{self._origin} {self._cursor}")).problem
            self._cursor += 1
            if self._synthetic.add(problem.id):
                return problem


class _Recent:
    """The last ids that were added, oldest first."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._keys = dict.fromkeys(keys)

    def add(self, identifier: str) -> bool:
        """Remember it; False when it is remembered already."""
        key = identifier[:_KEY_DIGITS]
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > _REMEMBERED:
            del self._keys[next(iter(self._keys))]
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)
