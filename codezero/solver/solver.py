"""The solver: samples groups of attempts with its policy, and learns from judged ones by GRPO.

Does not judge, does not talk to peers, and never executes what it wrote.
"""

import dataclasses
import logging
import math
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap

import msgspec

from codezero.config import ExternalConfig, SolverConfig
from codezero.models.chat import encode_prompts
from codezero.protocols import GroupSampler
from codezero.solver.advantages import batch_normalized, counts, joint_advantages, merged_advantages, outcomes
from codezero.solver.batch import Batch, TrainingRow, Update
from codezero.solver.peer_rollouts import External, PeerFilter, PeerReader
from codezero.solver.row_limits import weights_to_the_end
from codezero.solver.updater import Learner, Updater
from codezero.system.state import StateFile
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup

logger = logging.getLogger(__name__)


class _Counters(msgspec.Struct):
    rollouts: int
    """Calls of the sampler so far: with the run's seed, the seed of the sampling noise."""
    updates: int
    """Calls of `step` so far: with the run's seed, the seed of the choice among peers' groups."""


def sample(
    sampler: GroupSampler, prompts: Sequence[str], group_size: int, settings: SolverConfig, noise: str
) -> list[list[Completion]]:
    """`group_size` completions for each prompt, as the policy's settings have it. noise: the seed, as text."""
    return sampler.sample(
        prompts,
        group_size=group_size,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        generator_seed=random.Random(noise).getrandbits(63),
        max_prompt_tokens=settings.max_prompt_tokens,
    )


class GrpoSolver(StateFile[_Counters], file="solver.json", schema=_Counters):
    """A policy, how it is sampled and how it learns. See `protocols.Solver`."""

    def __init__(
        self,
        config: SolverConfig,
        *,
        sampler: GroupSampler,
        learner: Learner,
        prompt: Callable[..., str],
        peer_id: str,
        seed: int,
        external: ExternalConfig | None = None,
        engine: bool = False,
    ):
        """prompt: see `Environment.prompt`. engine: see `Updater`."""
        self.external = external or ExternalConfig()
        self.gate = PeerFilter()
        self.config, self.sampler, self.learner, self.prompt = config, sampler, learner, prompt
        self.peer_id, self.seed = peer_id, seed
        self.updater = Updater(config, learner, engine=engine)
        self.nested = (self.gate, learner)
        self.memory, self._lock = _Counters(0, 0), threading.Lock()
        self.reader = PeerReader(
            tokenizer=learner.policy.tokenizer,
            prompt=prompt,
            logprobs=learner.logprobs,
            own_peer_id=peer_id,
            config=config,
            external=self.external,
        )

    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        """`group_size` completions for each problem, in order, all sampled in one batch. For any thread where the
        sampler is."""
        groups = self._sample([*map(self.prompt, problems)], self.config.group_size)
        return [
            RolloutGroup(problem, tuple(completions), self.peer_id, round_number, self.learner.steps)
            for problem, completions in zip(problems, groups, strict=True)
        ]

    def retry(self, tries: Sequence[tuple[Problem, str]]) -> list[Completion]:
        """A second attempt at each problem, with feedback on the first. For any thread, as `rollout` is."""
        return [group[0] for group in self._sample([*starmap(self.prompt, tries)], 1)]

    def _sample(self, prompts: Sequence[str], group_size: int) -> list[list[Completion]]:
        with self._lock:
            noise = f"rollout {self.seed} {self.memory.rollouts}"
            self.memory.rollouts += 1
        return sample(self.sampler, prompts, group_size, self.config, noise)

    def short_of(self, scored: Sequence[ScoredGroup]) -> int:
        """How many more problems an iteration needs that sampled `scored`, to replace groups without spread.

        DAPO's dynamic sampling (Yu et al. 2025, section 3.2), but never more than `refill` batches in all.
        """
        batch = self.config.problems_per_iteration
        useful = sum(joint_advantages([group], "none") is not None for group in scored)
        return max(0, min(batch - useful, int(self.config.refill * batch) - len(scored)))

    def step(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> Metrics:
        """One GRPO update. Peers' rows are at most a share of all, so with nothing judged nothing is learned."""
        chance = random.Random(f"peers {self.seed} {self.memory.updates}")
        self.memory.updates += 1
        self.gate.observe(local, peers)
        most = int(sum(len(group.trainable) for group in local) * self.external.share / (1 - self.external.share))
        passing = partial(self.gate.passing, chance=chance) if self.external.gate else set[str]
        foreign = self.reader.rows(peers, local, most, passing, chance)
        own, stale, pairs = self.updater.told_apart(self._own_rows(local, foreign.chosen))
        rows = (*own, *stale, *foreign.rows)
        update = self.learner.update(Batch(rows, foreign.idle_tokens))
        mismatch = {f"train/{name}": value for name, value in self.updater.mismatch(pairs or update.compared).items()}
        metrics = self._metrics(local, foreign, update) | outcomes(local, len(own) + len(stale))
        return metrics | mismatch | {"train/stale_rows": len(stale)}

    def _metrics(self, local: Sequence[ScoredGroup], foreign: External, update: Update) -> Metrics:
        logprobs = [each for scored in local for completion in scored.group.completions for each in completion.logprobs]
        broken = sum(verdict.trainable and not counts(verdict) for scored in local for verdict in scored.verdicts)
        if broken:
            logger.error("%d rewards are no finite numbers; their attempts are left out", broken)
        metrics: Metrics = {f"swarm/external_refused/{reason}": count for reason, count in foreign.refused}
        for peer, judged, used in foreign.peers:
            metrics |= {f"swarm/external_judged/{peer}": judged, f"swarm/external_used/{peer}": used}
        return metrics | {
            "train/loss": update.loss,
            # Mean of -log p over what the policy sampled: an unbiased estimate of its entropy per token, in nats
            "train/entropy": -math.fsum(logprobs) / len(logprobs) if logprobs else None,
            "train/grad_norm": update.grad_norm,
            "train/clip_share": update.clip_share,
            "train/rows": update.rows,
            "train/broken_rewards": broken,
            "train/skipped_steps": self.learner.skipped,
            "train/policy_step": self.learner.steps,
            "swarm/external_share": len(foreign.rows) / update.rows if update.rows else 0.0,
            "swarm/external_groups": len(foreign.chosen),
        }

    def _own_rows(self, local: Sequence[ScoredGroup], foreign: Sequence[ScoredGroup]) -> list[TrainingRow]:
        """Trainable rows of groups with spread; a group without is dropped (DAPO, section 3.2). `foreign`: the chosen
        groups of peers; those at an own problem share its mean."""
        weights, tokenizer = merged_advantages((*local, *foreign), self.config.scale_rewards), self.reader.tokenizer
        rows: list[TrainingRow] = []
        for scored in local:
            advantages, attempts = weights[id(scored)], scored.group.completions
            if not any(advantages):
                continue
            prompts = self._prompts(scored.group)
            for prompt, completion, verdict, weight in zip(prompts, attempts, scored.verdicts, advantages, strict=True):
                if counts(verdict):
                    fresh = completion.version in (None, self.learner.updates)
                    sampled, factors = completion.token_ids, weights_to_the_end(tokenizer, completion, verdict)
                    rows.append(TrainingRow(prompt, sampled, completion.logprobs, weight, factors, fresh=fresh))
        if not self.config.batch_norm:
            return rows
        normalized = batch_normalized([row.advantage for row in rows], [len(row.completion_ids) for row in rows])
        return [dataclasses.replace(row, advantage=each) for row, each in zip(rows, normalized, strict=True)]

    def _prompts(self, group: RolloutGroup) -> list[tuple[int, ...]]:
        """Ids of what each attempt answers."""
        feedback = [check.feedback for check in group.checks if check.feedback]
        texts = [self.prompt(group.problem), *(self.prompt(group.problem, each) for each in feedback)]
        first, *again = map(tuple, encode_prompts(self.learner.policy.tokenizer, texts, self.config.max_prompt_tokens))
        return [first] * (len(group.completions) - len(again)) + again
