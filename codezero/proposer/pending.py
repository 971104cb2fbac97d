"""Groups of proposals that wait for the solver's attempts, which are their rewards."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.proposer.rewards import judged_learnability, reward
from codezero.types import Completion, Problem, RewardedGroup, ScoredGroup, Screened, problem_id

MOST_GROUPS = 4096


class Waiting(msgspec.Struct, forbid_unknown_fields=True):
    """What was written for one prompt."""

    prompt: str
    completions: tuple[Completion, ...]
    """[K]"""
    problems: list[str | None]
    """[K] the question's key of each that is on offer; None: it is not, and nothing more will be known of it."""
    rewards: list[float | None]
    """[K] None: not known."""
    waited: Annotated[int, Meta(ge=0)] = 0
    """Iterations."""

    def __post_init__(self) -> None:
        if not len(self.completions) == len(self.problems) == len(self.rewards):
            raise ValueError("not one problem and one reward for each completion")

    @property
    def whole(self) -> bool:
        """Is nothing more to come?"""
        return all(
            known is not None for known, problem in zip(self.rewards, self.problems, strict=True) if problem is not None
        )


def question_key(problem: Problem) -> str:
    """By which it is known again when it has lost tests since (`vetting`)."""
    return problem_id(problem.question, ())


PendingState = Annotated[list[Waiting], Meta(max_length=MOST_GROUPS)]


class Pending:
    """wait: iterations until a group is given out though some of its proposals were not attempted.

    Those stay unknown: they are masked out, because nothing is known against them.
    """

    def __init__(self, wait: int) -> None:
        self._wait = wait
        self._groups: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._groups)

    def add(self, prompt: str, completions: Sequence[Completion], looked: Sequence[tuple[str, Screened]]) -> None:
        """looked: of each completion the key of its question, empty where it has none, and what the rules say of it."""
        self._groups.append(
            Waiting(
                prompt,
                tuple(completions),
                [identifier if screened is Screened.USABLE else None for identifier, screened in looked],
                [reward(screened, None) for _, screened in looked],
            )
        )

    def observe(self, scored: Sequence[ScoredGroup]) -> list[float]:
        """One iteration's judged attempts; returns the learnability of each proposal that they told of."""
        attempts: dict[str, list[ScoredGroup]] = {}
        for one in scored:
            attempts.setdefault(question_key(one.group.problem), []).append(one)
        told = [value for waiting in self._groups for value in _fill(waiting, attempts)]
        for waiting in self._groups:
            waiting.waited += 1
        return told

    def take(self) -> list[RewardedGroup]:
        """Those that wait no longer, oldest first; they are forgotten."""
        ready = [one for one in self._groups if one.whole or one.waited >= self._wait]
        self._groups = [one for one in self._groups if not (one.whole or one.waited >= self._wait)]
        return [RewardedGroup(one.prompt, one.completions, tuple(one.rewards)) for one in ready]

    def state(self) -> list[Waiting]:
        return self._groups

    def become(self, state: Sequence[Waiting]) -> None:
        self._groups = list(state)


def _fill(waiting: Waiting, attempts: Mapping[str, Sequence[ScoredGroup]]) -> list[float]:
    """Each proposal is attempted in one iteration, so the first that is known of it stands."""
    told: list[float] = []
    for place, problem in enumerate(waiting.problems):
        if problem is None or waiting.rewards[place] is not None or problem not in attempts:
            continue
        learnable = judged_learnability(attempts[problem])
        if learnable is not None:
            waiting.rewards[place] = reward(Screened.USABLE, learnable)
            told.append(learnable)
    return told
