"""Writes new problems with a model: asks for each level, keeps what holds the contract, counts what does not."""

from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import msgspec

from codezero.config import ProposerConfig
from codezero.errors import ProposalError
from codezero.proposer.parsing import ProposalReason, parse_proposal
from codezero.proposer.prompts import proposal_prompt
from codezero.protocols import GroupSampler
from codezero.system.state import StateFile
from codezero.types import Completion, Metrics, Problem, ScoredGroup

_REMEMBERED = 64
"""Questions a new one may not repeat; few, because an easy level has few different ones."""
_LONGEST_NAME = 64
"""Characters of a name that is shown as taken."""
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME)]


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    calls: _Count
    written: _Count
    refused: dict[ProposalReason, _Count]
    recent: Annotated[list[str], msgspec.Meta(max_length=_REMEMBERED)]
    names: Annotated[list[_Name], msgspec.Meta(max_length=_REMEMBERED)] = msgspec.field(default_factory=list[str])


class ModelProposer(StateFile[_State], file="proposer.json", schema=_State):
    """Implements `protocols.Proposer` with a frozen model."""

    def __init__(self, sampler: GroupSampler, settings: ProposerConfig, *, peer_id: str, seed: int) -> None:
        self._sampler, self._settings, self._peer_id, self._seed = sampler, settings, peer_id, seed
        self._calls = self._written = 0
        self._refused = Counter[ProposalReason]()
        self._recent, self._names = deque[str](maxlen=_REMEMBERED), deque[str](maxlen=_REMEMBERED)
        """The last questions without their functions' names, and the names; oldest first."""

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """At most one problem for each level, in their order; each attempt asks again for what is still missing."""
        accepted: dict[int, Problem] = {}
        for _ in range(self._settings.attempts):
            missing = [place for place in range(len(levels)) if place not in accepted]
            if not missing:
                break
            taken = self._taken()
            groups = self._sample([proposal_prompt(levels[place], taken) for place in missing], 1)
            for place, (completion,) in zip(missing, groups, strict=True):
                read = self._read(completion.text, levels[place], taken)
                if isinstance(read, Problem):
                    accepted[place] = read
        self._written += len(accepted)
        return [accepted[place] for place in sorted(accepted)]

    def learn(self, scored: Sequence[ScoredGroup]) -> Metrics:
        """A frozen model learns nothing."""
        return {}

    def metrics(self) -> Metrics:
        """Since the first iteration of the run."""
        by_reason = {f"proposer/refused_{reason}": self._refused[reason] for reason in ProposalReason}
        return {"proposer/written": self._written, "proposer/refused": self._refused.total(), **by_reason}

    def state(self) -> _State:
        return _State(self._calls, self._written, dict(self._refused), list(self._recent), list(self._names))

    def restore(self, state: _State) -> None:
        self._calls, self._written = state.calls, state.written
        self._refused = Counter(state.refused)
        self._recent, self._names = deque(state.recent, _REMEMBERED), deque(state.names, _REMEMBERED)

    def _taken(self) -> list[str]:
        """Names that are shown as taken; a proposal that uses one of these is refused."""
        return list(self._names)[-self._settings.taken :] if self._settings.taken else []

    def _sample(self, prompts: Sequence[str], group_size: int) -> list[list[Completion]]:
        self._calls += 1
        return self._sampler.sample(
            prompts,
            group_size=group_size,
            max_new_tokens=self._settings.max_new_tokens,
            temperature=self._settings.temperature,
            generator_seed=Random(f"proposer {self._seed} {self._peer_id} {self._calls}").getrandbits(31),
        )

    def _read(self, text: str, level: int, taken: Sequence[str]) -> Problem | ProposalReason:
        """The problem in `text`, or why it was refused, which is counted."""
        try:
            problem = parse_proposal(text, level, self._peer_id)
        except ProposalError as error:
            reason = ProposalReason(str(error).partition(":")[0])
            self._refused[reason] += 1
            return reason
        # the same question under another function name is no new question
        gist = " ".join(problem.question.replace(problem.entry_point, "").split())
        if problem.entry_point in taken or gist in self._recent:
            self._refused[ProposalReason.DUPLICATE] += 1
            return ProposalReason.DUPLICATE
        self._recent.append(gist)
        if len(problem.entry_point) <= _LONGEST_NAME:
            if problem.entry_point in self._names:
                self._names.remove(problem.entry_point)
            self._names.append(problem.entry_point)
        return problem


class NoProposer:
    """Proposes nothing and has nothing to keep."""

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        return []

    def learn(self, scored: Sequence[ScoredGroup]) -> Metrics:
        return {}

    def metrics(self) -> Metrics:
        return {}

    def save(self, folder: Path) -> None:
        pass

    def load(self, folder: Path) -> None:
        pass
