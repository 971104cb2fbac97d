"""The solver: samples groups of attempts with its policy, and learns from judged ones by GRPO.

Does not judge, does not talk to peers, and never executes what it wrote."""

import logging
import math
import random
import threading
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from codezero.config import ExternalConfig, SolverConfig
from codezero.models.base import GroupSampler
from codezero.models.chat import encode_prompts
from codezero.solver.batch import Batch, TrainingRow, counts, has_spread, merged_advantages, outcomes
from codezero.solver.peer_rollouts import PeerFilter, PeerReader, weights_to_the_end
from codezero.solver.updater import Learner, Updater
from codezero.system.state import StateFile
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup

logger = logging.getLogger(__name__)


class _Counters(msgspec.Struct):
    rollouts: int  # calls of the sampler so far: with the run's seed, the seed of the sampling noise
    updates: int  # calls of `step` so far: with the run's seed, the seed of the choice among peers' groups


class GrpoSolver(StateFile[_Counters], file="solver.json", schema=_Counters):
    """A policy, how it is sampled and how it learns."""

    def __init__(
        self,
        config: SolverConfig,
        *,
        sampler: GroupSampler,
        learner: Learner,
        prompt: Callable[[Problem], str],
        peer_id: str,
        seed: int,
        external: ExternalConfig,
        engine: bool = False,
        begin: Callable[[RolloutGroup], object] | None = None,
    ):
        """prompt: see `Environment.prompt`. engine: see `Updater`. begin: called with each group as it ends, while
        others are still sampled."""
        self.external, self.gate = external, PeerFilter()
        self.config, self.sampler, self.learner, self.prompt = config, sampler, learner, prompt
        self.peer_id, self.seed, self._begin = peer_id, seed, begin
        self.updater = Updater(config, learner, engine=engine)
        self.nested = (self.gate, learner)
        self.memory, self._lock = _Counters(0, 0), threading.Lock()
        self.reader = PeerReader(learner.policy.tokenizer, prompt, learner.logprobs, peer_id, config, self.external)

    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        """`group_size` completions for each problem, in order, all sampled in one batch. For any thread where the
        sampler is."""
        with self._lock:
            noise = f"rollout {self.seed} {self.memory.rollouts}"
            self.memory.rollouts += 1
        step = self.learner.steps

        def group(at: int, completions: Sequence[Completion]) -> RolloutGroup:
            return RolloutGroup(problems[at], tuple(completions), self.peer_id, round_number, step)

        begin = self._begin
        groups = self.sampler.sample(
            [*map(self.prompt, problems)],
            group_size=self.config.group_size,
            max_new_tokens=self.config.max_new_tokens,
            temperature=self.config.temperature,
            generator_seed=random.Random(noise).getrandbits(63),
            max_prompt_tokens=self.config.max_prompt_tokens,
            ended=None if begin is None else lambda at, completions: begin(group(at, completions)),
        )
        return [group(at, completions) for at, completions in enumerate(groups)]

    def short_of(self, scored: Sequence[ScoredGroup]) -> int:
        """Number of problems that an iteration needs beside those of `scored`, to replace groups without spread. DAPO's
        dynamic sampling (Yu et al. 2025, section 3.2), but never more than `refill` batches in all."""
        batch = self.config.problems_per_iteration
        useful = sum(has_spread([group]) for group in scored)
        return max(0, min(batch - useful, int(self.config.refill * batch) - len(scored)))

    def step(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> Metrics:
        """One GRPO update. Peers' rows are at most a share of all, so with nothing judged nothing is learned."""
        chance = random.Random(f"peers {self.seed} {self.memory.updates}")
        self.memory.updates += 1
        self.gate.observe(local, peers)
        most = int(sum(len(group.trainable) for group in local) * self.external.share / (1 - self.external.share))
        passing = partial(self.gate.passing, chance=chance) if self.external.gate else set[str]
        peer_part = self.reader.rows(peers, local, most, passing, chance)
        own, stale, pairs = self.updater.split_by_mismatch(self._own_rows(local, peer_part.chosen))
        rows = (*own, *stale, *peer_part.rows)
        update = self.learner.update(Batch(rows, peer_part.idle_tokens))
        metrics = outcomes(local, len(own) + len(stale))
        metrics |= {f"train/{name}": value for name, value in self.updater.mismatch(pairs or update.compared).items()}
        metrics |= {f"swarm/external_refused/{reason}": count for reason, count in peer_part.refused}
        for peer, judged, used in peer_part.peers:
            metrics |= {f"swarm/external_judged/{peer}": judged, f"swarm/external_used/{peer}": used}
        logprobs = [each for scored in local for completion in scored.group.completions for each in completion.logprobs]
        broken = sum(verdict.trainable and not counts(verdict) for scored in local for verdict in scored.verdicts)
        if broken:
            logger.error("%d rewards are no finite numbers; their attempts are left out", broken)
        return metrics | {
            "train/loss": update.loss,
            # Mean of -log p over what the policy sampled: an unbiased estimate of its entropy per token, in nats
            "train/entropy": -math.fsum(logprobs) / len(logprobs) if logprobs else None,
            "train/grad_norm": update.grad_norm,
            "train/clip_share": update.clip_share,
            "train/rows": update.rows,
            "train/stale_rows": len(stale),
            "train/broken_rewards": broken,
            "train/skipped_steps": self.learner.skipped,
            "train/policy_step": self.learner.steps,
            "swarm/external_share": len(peer_part.rows) / update.rows if update.rows else 0.0,
            "swarm/external_groups": len(peer_part.chosen),
        }

    def _own_rows(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> list[TrainingRow]:
        """Trainable rows of groups with spread; a group without is dropped (DAPO, section 3.2). `peers`: the chosen
        groups of peers; those at an own problem share its mean."""
        weights, tokenizer = merged_advantages((*local, *peers), self.config.scale_rewards), self.reader.tokenizer
        rows: list[TrainingRow] = []
        for scored in local:
            advantages, attempts = weights[id(scored)], scored.group.completions
            if not any(advantages):
                continue
            text = self.prompt(scored.group.problem)
            (prompt,) = map(tuple, encode_prompts(tokenizer, [text], self.config.max_prompt_tokens))
            for completion, verdict, weight in zip(attempts, scored.verdicts, advantages, strict=True):
                if counts(verdict):
                    fresh = completion.version in (None, self.learner.updates)
                    sampled, factors = completion.token_ids, weights_to_the_end(tokenizer, completion, verdict)
                    rows.append(TrainingRow(prompt, sampled, completion.logprobs, weight, factors, fresh=fresh))
        return rows
