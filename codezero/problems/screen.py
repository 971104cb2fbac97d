"""The rules that every problem of a batch is held to, wherever it comes from."""

from collections.abc import Callable

from codezero.problems.dedup import Novelty, NoveltyState, Repeat
from codezero.problems.filters import CURATED, PROPOSED, FilterReason, FilterRefusal, inspect, is_exam
from codezero.system.state import StateFile
from codezero.types import Problem, Screened, Source

Fits = Callable[[Problem], bool]
"""Can the solver's context hold it?"""
_REPEATS = {Repeat.TESTS: FilterReason.DUPLICATE, Repeat.QUESTION: FilterReason.NEAR_DUPLICATE}


def usable(problem: Problem, novelty: Novelty, fits: Fits) -> FilterRefusal | None:
    """What is wrong with a problem; None and remembered when nothing is."""
    refusal = inspect(problem, PROPOSED if problem.source is Source.PROPOSER else CURATED)
    if refusal is not None:
        return refusal
    if is_exam(problem):
        return FilterRefusal(FilterReason.HELD_OUT, "the exam asks it")
    if not fits(problem):
        return FilterRefusal(FilterReason.CONTEXT, "longer than the solver's context holds")
    repeat = novelty.add(problem)
    return None if repeat is None else FilterRefusal(_REPEATS[repeat], f"the {repeat} of an earlier one")


class Screen(StateFile[NoveltyState], file="screen.json", schema=NoveltyState):
    """See `protocols.ProblemScreen`: for whoever wants to know before a problem is offered."""

    def __init__(self, fits: Fits = lambda problem: True) -> None:
        self._fits, self._novelty = fits, Novelty()

    def look(self, problem: Problem) -> Screened:
        """Remembers a usable one, so that the next like it is repeated."""
        refusal = usable(problem, self._novelty, self._fits)
        if refusal is None:
            return Screened.USABLE
        if refusal.reason in _REPEATS.values():
            return Screened.REPEATED
        return Screened.WITHHELD if refusal.reason is FilterReason.HELD_OUT else Screened.BROKEN

    def state(self) -> NoveltyState:
        return self._novelty.state()

    def restore(self, state: NoveltyState) -> None:
        self._novelty = Novelty(state)
