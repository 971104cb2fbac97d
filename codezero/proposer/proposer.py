"""Writes new problems with a model: asks for each level, keeps what holds the contract, counts what does not. No model
writes those of an environment that derives its own."""

from collections.abc import Sequence
from random import Random
from typing import Annotated

import msgspec

from codezero.config import ProposerConfig
from codezero.environment import ScoredEnvironment
from codezero.errors import ProposalError
from codezero.models.base import GroupSampler
from codezero.proposer.base import Proposer
from codezero.proposer.parsing import ProposalReason, parse_proposal, proposal_prompt, refusal
from codezero.system.state import StateFile
from codezero.types import Metrics, Problem

_REMEMBERED = 64  # questions a new one may not repeat; few, because an easy level has few different ones
_LONGEST_NAME = 64  # characters of a name that is shown as taken
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Name = Annotated[str, msgspec.Meta(max_length=_LONGEST_NAME)]


class _State(msgspec.Struct, forbid_unknown_fields=True):
    calls: _Count
    written: _Count
    refused: dict[ProposalReason, _Count]
    recent: Annotated[list[str], msgspec.Meta(max_length=_REMEMBERED)]  # without their functions' names, oldest first
    names: Annotated[list[_Name], msgspec.Meta(max_length=_REMEMBERED)] = msgspec.field(default_factory=list[str])


class ModelProposer(StateFile[_State], Proposer, file="proposer.json", schema=_State):
    """A frozen model that writes problems."""

    def __init__(self, sampler: GroupSampler, settings: ProposerConfig, *, peer_id: str, seed: int) -> None:
        self._sampler, self._settings, self._peer_id, self._seed = sampler, settings, peer_id, seed
        self.memory = _State(0, 0, {}, [])

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """At most one problem for each level, in their order; each attempt asks again for what is still missing."""
        accepted: dict[int, Problem] = {}
        for _ in range(self._settings.attempts):
            missing = [place for place in range(len(levels)) if place not in accepted]
            if not missing:
                break
            taken = self.memory.names[-self._settings.taken :] if self._settings.taken else []
            self.memory.calls += 1
            groups = self._sampler.sample(
                [proposal_prompt(levels[place], taken) for place in missing],
                group_size=1,
                max_new_tokens=self._settings.max_new_tokens,
                temperature=self._settings.temperature,
                generator_seed=Random(f"proposer {self._seed} {self._peer_id} {self.memory.calls}").getrandbits(31),
            )
            for place, (completion,) in zip(missing, groups, strict=True):
                try:
                    accepted[place] = self._read(completion.text, levels[place], taken)
                except ProposalError as error:
                    reason = ProposalReason(str(error).partition(":")[0])
                    self.memory.refused[reason] = self.memory.refused.get(reason, 0) + 1
        self.memory.written += len(accepted)
        return [accepted[place] for place in sorted(accepted)]

    def metrics(self) -> Metrics:
        """Since the first iteration of the run."""
        refused = self.memory.refused
        by_reason = {f"proposer/refused_{reason}": refused.get(reason, 0) for reason in ProposalReason}
        return {"proposer/written": self.memory.written, "proposer/refused": sum(refused.values()), **by_reason}

    def _read(self, text: str, level: int, taken: Sequence[str]) -> Problem:
        """The problem in `text`. taken: names that were shown as taken. Raises ProposalError."""
        problem = parse_proposal(text, level, self._peer_id)
        # the same question under another function name is no new question
        gist = " ".join(problem.question.replace(problem.entry_point, "").split())
        recent, names, name = self.memory.recent, self.memory.names, problem.entry_point
        if name in taken or gist in recent:
            raise refusal(ProposalReason.DUPLICATE, name)
        self.memory.recent = [*recent, gist][-_REMEMBERED:]
        if len(name) <= _LONGEST_NAME:
            self.memory.names = [*(other for other in names if other != name), name][-_REMEMBERED:]
        return problem


class _Derived(msgspec.Struct, forbid_unknown_fields=True):
    written: _Count


class DerivedProposer(StateFile[_Derived], Proposer, file="derived.json", schema=_Derived):
    """Proposes without a model: the next places of the levels that are asked for."""

    def __init__(self, environment: ScoredEnvironment, *, peer_id: str, seed: int) -> None:
        self._environment, self._origin = environment, f"proposer {seed} {peer_id}"
        self.memory = _Derived(0)

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """One for each level."""
        first, self.memory.written = self.memory.written, self.memory.written + len(levels)
        return [self._environment.drawn(level, f"{self._origin} {first + at}") for at, level in enumerate(levels)]

    def metrics(self) -> Metrics:
        """Since the first iteration of the run."""
        return {"proposer/derived": self.memory.written}


class NoProposer(Proposer):
    """Proposes nothing and has nothing to keep."""

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        return []

    def metrics(self) -> Metrics:
        return {}
