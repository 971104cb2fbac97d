"""Worked problems from rows that carry references, to draw from at random.

Where a row has no wrong solution, suspects take their place: its references changed at random, and the solutions of
other rows under its name.
"""

from collections.abc import Iterable
from random import Random

from codezero.code.mutations import mutate_code, transplant
from codezero.errors import ProblemError
from codezero.types import Worked

SUSPECTS = 4


class Library:
    """Calls draw a row; the same for the same state of the generator."""

    def __init__(self, rows: Iterable[Worked]) -> None:
        """Raises ProblemError when no row has a right solution."""
        self._rows = [row for row in rows if row.right]
        if not self._rows:
            raise ProblemError("no row carries a right solution to draw canaries from")

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, random: Random) -> Worked:
        row = random.choice(self._rows)
        if row.wrong:
            return row
        own, entry = random.choice(row.right), row.problem.entry_point
        suspects = mutate_code(own, random, SUSPECTS, entry=entry)
        other = random.choice(self._rows)
        if entry and other.problem.entry_point and other.problem.id != row.problem.id:
            moved = transplant(random.choice(other.right), other.problem.entry_point, entry)
            suspects += [] if moved is None else [moved]
        return Worked(row.problem, row.right, suspect=tuple(suspects))
