"""A proposer that learns what to propose: hierarchical GRPO with the solver's success as its reward.

For each level it writes a group of K proposals to one prompt, as prime-rl's `hierarchical_grpo` does. Each earns
validity x novelty x learnability, in [0, 1], and is compared with the others of its group. Its own proposals come back
through the swarm into the batches of the next iterations; after `wait` of them a group is learned from with what is
known. Proposals that nobody attempted are masked out; those that are broken or repeated need no attempt to earn 0.

Learnability is the variance of success, p(1 - p) (Rutherford et al. 2024, "No Regrets"), times 4 to be 1 at one half;
it bounds from below how much one step can gain (Bae et al. 2025, arXiv 2504.03380).
"""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from codezero.config import ProposerConfig
from codezero.proposer.parsing import ProposalReason
from codezero.proposer.prompts import proposal_prompt
from codezero.proposer.proposer import ModelProposer
from codezero.protocols import GroupLearner, GroupSampler, ProblemScreen
from codezero.system.state import StateFile
from codezero.types import BELIEF, Completion, Metrics, Problem, RewardedGroup, ScoredGroup, Screened, problem_id

MAX_GROUPS = 4096
_LEARNER, _SCREEN = "learner", "screen"


class Waiting(msgspec.Struct, forbid_unknown_fields=True):
    """A group of proposals that waits for the solver's attempts."""

    prompt: str
    completions: tuple[Completion, ...]
    """[K]"""
    problems: list[str | None]
    """[K] key of each question on offer (`question_key`); None: not on offer, and nothing more will be known of it."""
    rewards: list[float | None]
    """[K] None: not known."""
    waited: Annotated[int, Meta(ge=0)] = 0
    """Iterations."""

    def __post_init__(self) -> None:
        if not len(self.completions) == len(self.problems) == len(self.rewards):
            raise ValueError("not one problem and one reward for each completion")

    def complete(self) -> bool:
        pairs = zip(self.rewards, self.problems, strict=True)
        return all(reward is not None or problem is None for reward, problem in pairs)


def question_key(problem: Problem) -> str:
    """By which it is known again when it has lost tests since (`vetting`)."""
    return problem_id(problem.question, ())


def learnability(successes: int, attempts: int) -> float:
    """4p(1 - p) of p = (successes + 1) / (attempts + 2) (Laplace's rule of succession): few attempts prove little."""
    success = (successes + 1) / (attempts + 2)
    return 4 * success * (1 - success)


def judged_learnability(groups: Sequence[ScoredGroup]) -> float | None:
    """Of all attempts at one problem that the judge could score; None when there is none.

    An attempt counts whole: by the mean of a judge's probabilities, what cannot be judged would earn the most.
    """
    judged = [verdict for group in groups for verdict in group.verdicts if verdict.trainable]
    return learnability(sum(verdict.correctness >= BELIEF for verdict in judged), len(judged)) if judged else None


def groups_per_round(places: int, every: int, size: int, most_offers: int) -> int:
    """Groups of `size` that `places` in each of `every` iterations can hold, and one offer to the swarm; at least 1."""
    return max(1, min(places * every, most_offers) // size)


class _Pending(
    StateFile[list[Waiting]], file="pending.json", schema=Annotated[list[Waiting], Meta(max_length=MAX_GROUPS)]
):
    """The groups that wait for attempts."""


class TrainedProposer(ModelProposer):
    """See `protocols.Proposer`. sampler: of the policy that `learner` trains, at the temperature it trains at."""

    def __init__(
        self,
        sampler: GroupSampler,
        settings: ProposerConfig,
        *,
        learner: GroupLearner,
        screen: ProblemScreen,
        most_groups: int,
        peer_id: str,
        seed: int,
    ) -> None:
        """most_groups: in one proposing round."""
        super().__init__(sampler, settings, peer_id=peer_id, seed=seed)
        self._learner, self._screen, self._most_groups = learner, screen, most_groups
        self._pending = _Pending()
        self._pending.memory, self.nested = [], (self._pending,)
        self._screened: list[Screened] = []
        """Of what was written since the last `learn`."""

    def propose(self, levels: Sequence[int]) -> list[Problem]:
        """A group for each different level, as many as `most_groups`; returns what is usable of them."""
        taken, usable = self._taken(), list[Problem]()
        levels = list(dict.fromkeys(levels))[: self._most_groups]
        prompts = [proposal_prompt(level, taken) for level in levels]
        for level, prompt, group in zip(levels, prompts, self._sample(prompts, self._settings.group_size), strict=True):
            screened = [self._screen_text(completion.text, level, taken) for completion in group]
            self._screened += [verdict for _, verdict in screened]
            kept = [problem if verdict is Screened.USABLE else None for problem, verdict in screened]
            usable += filter(None, kept)
            keys = [problem and question_key(problem) for problem in kept]
            zeros = [0.0 if verdict in (Screened.BROKEN, Screened.REPEATED) else None for _, verdict in screened]
            self._pending.memory.append(Waiting(prompt, tuple(group), keys, zeros))
        self.memory.written += len(usable)
        return usable

    def learn(self, scored: Sequence[ScoredGroup]) -> Metrics:
        """One update from the groups that wait no longer. `proposer/learnability` is that of what was attempted now."""
        self._screened = []
        attempts: defaultdict[str | None, list[ScoredGroup]] = defaultdict(list)
        for group in scored:
            if group.group.problem.proposer == self._peer_id:
                attempts[question_key(group.group.problem)].append(group)
        learned: list[float] = []
        pending = self._pending.memory
        for waiting in pending:
            waiting.waited += 1
            for place, key in enumerate(waiting.problems):  # attempted in one iteration: the first that is known stands
                if waiting.rewards[place] is None and (value := judged_learnability(attempts.get(key, ()))) is not None:
                    waiting.rewards[place] = value
                    learned.append(value)
        ready = [waiting for waiting in pending if waiting.complete() or waiting.waited >= self._settings.wait]
        self._pending.memory = [waiting for waiting in pending if waiting not in ready]
        update = self._learner.learn(
            [RewardedGroup(waiting.prompt, waiting.completions, tuple(waiting.rewards)) for waiting in ready]
        )
        return {
            "proposer/learnability": statistics.fmean(learned) if learned else None,
            "proposer/attempted": len(learned),
            "proposer/waiting_groups": len(self._pending.memory),
            **{f"proposer/train_{name}": value for name, value in update.items()},
        }

    def metrics(self) -> Metrics:
        """Since the first iteration, and of what was written in this one: `proposer/validity`, the share that holds
        the rules; `proposer/novelty`, the share of these that is new."""
        valid = [verdict for verdict in self._screened if verdict is not Screened.BROKEN]
        novel = [verdict for verdict in valid if verdict is not Screened.REPEATED]
        return super().metrics() | {
            "proposer/validity": len(valid) / len(self._screened) if self._screened else None,
            "proposer/novelty": len(novel) / len(valid) if valid else None,
        }

    def save(self, folder: Path) -> None:
        """Beside what a frozen one keeps: weights and optimiser, the groups that wait, and the memory of problems."""
        super().save(folder)
        for name, part in ((_LEARNER, self._learner), (_SCREEN, self._screen)):
            (folder / name).mkdir()
            part.save(folder / name)

    def load(self, folder: Path) -> None:
        super().load(folder)
        self._screen.load(folder / _SCREEN)
        self._learner.load(folder / _LEARNER)

    def _screen_text(self, text: str, level: int, taken: Sequence[str]) -> tuple[Problem | None, Screened]:
        problem = self._read(text, level, taken)
        if isinstance(problem, ProposalReason):
            return None, Screened.REPEATED if problem is ProposalReason.DUPLICATE else Screened.BROKEN
        return problem, self._screen.screen(problem)
