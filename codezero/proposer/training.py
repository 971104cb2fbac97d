"""A proposer that learns what to propose: hierarchical GRPO with the solver's success as its reward.

For each level asked for it writes a group of K proposals to one and the same prompt. Each earns validity x novelty x
learnability (`rewards.py`) and is compared with the others of its group, so a level that is easy to please teaches no
more than another. What is learned from is what the node attempted: its own proposals come back through the swarm into
the batches of the next iterations, newest first, as many as `data.proposer_share` has places for. So that a group
gets enough of them, no more groups are written in a proposing round than those places hold until the next one
(`groups_per_round`): alone, a node attempts nearly everything it proposes; among peers, who take turns for the places,
less, and after `wait` iterations a group is learned from with what is known. Proposals that nobody attempted are
masked out, and those that are broken or repeated need no attempt to earn 0.

prime-rl's `hierarchical_grpo` groups proposals in the same way. Absolute Zero (Zhao et al. 2025, arXiv 2505.03335)
rewards 1 - p instead, which pays most for what the solver almost never does.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from codezero.errors import CheckpointError
from codezero.proposer.parsing import Reason
from codezero.proposer.pending import Pending, PendingState, question_key
from codezero.proposer.prompts import proposal_prompt
from codezero.proposer.proposer import ModelProposer
from codezero.protocols import GroupLearner, GroupSampler, ProblemScreen
from codezero.types import Metrics, Problem, ScoredGroup, Screened

_FILE, _LEARNER, _SCREEN = "pending.json", "learner", "screen"


@dataclass(frozen=True, slots=True)
class Groups:
    """How proposals are grouped."""

    size: int
    """K: proposals for one level."""
    most: int
    """Levels in one proposing round."""
    wait: int
    """Iterations until a group is learned from as it is."""


def groups_per_round(places: int, every: int, size: int, most_offers: int) -> int:
    """Groups of `size` that `places` in each of `every` iterations can hold, and one offer to the swarm; at least 1."""
    return max(1, min(places * every, most_offers) // size)


class TrainedProposer(ModelProposer):
    """See `protocols.Proposer`. sampler: of the policy that `learner` trains, at the temperature it trains at."""

    def __init__(
        self,
        sampler: GroupSampler,
        *,
        learner: GroupLearner,
        screen: ProblemScreen,
        groups: Groups,
        peer_id: str,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        taken: int = 0,
    ) -> None:
        super().__init__(
            sampler,
            peer_id=peer_id,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            attempts=1,
            seed=seed,
            taken=taken,
        )
        self._learner, self._screen, self._groups = learner, screen, groups
        self._pending = Pending(groups.wait)
        self._looked: list[Screened] = []
        """What was written since the last `learn`."""

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """A group for each different level, as many as `Groups.most`; returns what is usable of them."""
        taken = self._taken()
        asked = list(dict.fromkeys(levels))[: self._groups.most]
        prompts = [proposal_prompt(level, taken) for level in asked]
        usable: list[Problem] = []
        for level, prompt, completions in zip(asked, prompts, self._sample(prompts, self._groups.size), strict=True):
            looked = [self._look(one.text, level, taken) for one in completions]
            self._pending.add(
                prompt, completions, [(question_key(one) if one else "", screened) for one, screened in looked]
            )
            self._looked += [screened for _, screened in looked]
            usable += [one for one, screened in looked if one is not None and screened is Screened.USABLE]
        self._written += len(usable)
        return usable

    def learn(self, scored: Sequence[ScoredGroup]) -> Metrics:
        """One update from the groups that wait no longer. `proposer/learnability` is that of what was attempted now."""
        self._looked = []
        told = self._pending.observe([one for one in scored if one.group.problem.proposer == self._peer_id])
        done = self._learner.learn(self._pending.take())
        return {
            "proposer/learnability": statistics.fmean(told) if told else None,
            "proposer/attempted": len(told),
            "proposer/waiting_groups": len(self._pending),
            **{f"proposer/train_{name}": value for name, value in done.items()},
        }

    def metrics(self) -> Metrics:
        """Since the first iteration, and of what was written in this one: `proposer/validity`, the share that holds
        the rules; `proposer/novelty`, the share of these that is new."""
        valid = [one for one in self._looked if one is not Screened.BROKEN]
        novel = [one for one in valid if one is not Screened.REPEATED]
        return super().metrics() | {
            "proposer/validity": len(valid) / len(self._looked) if self._looked else None,
            "proposer/novelty": len(novel) / len(valid) if valid else None,
        }

    def save(self, folder: Path) -> None:
        """Beside what a frozen one keeps: weights and optimiser, the groups that wait, and the memory of problems."""
        super().save(folder)
        (folder / _FILE).write_bytes(msgspec.json.encode(self._pending.state()))
        for name, part in ((_LEARNER, self._learner), (_SCREEN, self._screen)):
            (folder / name).mkdir()
            part.save(folder / name)

    def load(self, folder: Path) -> None:
        super().load(folder)
        path = folder / _FILE
        try:
            state = msgspec.json.decode(path.read_bytes(), type=PendingState)
        except (OSError, msgspec.MsgspecError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        self._screen.load(folder / _SCREEN)
        self._learner.load(folder / _LEARNER)
        self._pending.become(state)

    def _look(self, text: str, level: int, taken: Sequence[str]) -> tuple[Problem | None, Screened]:
        read = self._read(text, level, taken)
        if isinstance(read, Reason):
            return None, Screened.REPEATED if read is Reason.DUPLICATE else Screened.BROKEN
        return read, self._screen.look(read)
