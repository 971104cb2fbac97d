"""The rules that a batch's problems are held to, for whoever wants to know before a problem is offered."""

from pathlib import Path

import msgspec

from codezero.errors import CheckpointError
from codezero.problems.dedup import Novelty, NoveltyState
from codezero.problems.filters import Reason
from codezero.problems.shelf import Fits, usable
from codezero.types import Problem, Screened

_FILE = "screen.json"
_SAID = {
    Reason.DUPLICATE: Screened.REPEATED,
    Reason.NEAR_DUPLICATE: Screened.REPEATED,
    Reason.HELD_OUT: Screened.WITHHELD,
}


class Screen:
    """See `protocols.ProblemScreen`. fits: can the solver's context hold it?"""

    def __init__(self, fits: Fits = lambda problem: True) -> None:
        self._fits = fits
        self._novelty = Novelty()

    def look(self, problem: Problem) -> Screened:
        """Remembers a usable one, so that the next like it is repeated."""
        refusal = usable(problem, self._novelty, self._fits)
        return Screened.USABLE if refusal is None else _SAID.get(refusal.reason, Screened.BROKEN)

    def save(self, folder: Path) -> None:
        (folder / _FILE).write_bytes(msgspec.json.encode(self._novelty.state()))

    def load(self, folder: Path) -> None:
        path = folder / _FILE
        try:
            self._novelty = Novelty(msgspec.json.decode(path.read_bytes(), type=NoveltyState))
        except (OSError, msgspec.MsgspecError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
