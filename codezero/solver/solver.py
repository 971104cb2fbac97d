"""The solver: samples groups of attempts with its policy, and learns from judged ones by GRPO.

Does not judge, does not talk to peers, and never executes what it wrote.
"""

import dataclasses
import logging
import math
import random
import threading
from collections.abc import Sequence
from functools import partial

import msgspec

from codezero.code.assertions import examples
from codezero.config import ExternalConfig, SolverConfig
from codezero.protocols import GroupSampler
from codezero.solver.advantages import batch_normalized, counts, joint_advantages, merged_advantages
from codezero.solver.batch import Batch, Pair, TrainingRow
from codezero.solver.learner import TrlLearner, Update
from codezero.solver.mismatch import is_beyond, measure
from codezero.solver.peer_gate import PeerFilter
from codezero.solver.peer_rollouts import External, PeerReader
from codezero.solver.remote import RemoteLearner
from codezero.solver.replay import Replay, second_moment_weights, truncated_weights
from codezero.system.state import StateFile
from codezero.types import Metrics, Problem, RolloutGroup, ScoredGroup, Standing, Style

logger = logging.getLogger(__name__)


class _Counters(msgspec.Struct):
    rollouts: int
    """Calls of `rollout` so far: with the run's seed, the seed of the sampling noise."""
    updates: int
    """Calls of `step` so far: with the run's seed, the seed of the choice among peers' groups."""


def solver_prompt(problem: Problem) -> str:
    """The question, then the form of the answer (which the embedded solver's template drops).

    Expected values of a test that a proposer only claims are not shown.
    """
    program = "with the whole program, which reads stdin and writes stdout,"
    wanted = program if problem.style is Style.STDIO else f"that defines {problem.entry_point}"
    example = "" if problem.standing is Standing.CLAIMED else _example(problem)
    return f"{problem.question}\n\nANSWER FORMAT: one ```python block {wanted} and nothing after it.{example}"


def _example(problem: Problem) -> str:
    """The first test; of a program's tests the first that is short. Empty: there is none."""
    if problem.style is Style.CALL:
        return f"\nIt must pass: {problem.tests[0]}" if problem.tests else ""
    shown = examples(problem.tests, problem.entry_point)[:1]
    return "".join(f"\nGiven this input:\n{test.input}\nit must write:\n{test.output}" for test in shown)


class GrpoSolver(StateFile[_Counters], file="solver.json", schema=_Counters):
    """A policy, how it is sampled and how it learns. See `protocols.Solver`."""

    def __init__(
        self,
        config: SolverConfig,
        *,
        sampler: GroupSampler,
        learner: TrlLearner | RemoteLearner,
        peer_id: str,
        seed: int,
        external: ExternalConfig | None = None,
        engine: bool = False,
    ):
        """`engine`: another engine samples than the one that learns, so rows that they disagree about are masked."""
        self.engine, self._alarm = engine, ""
        self.external = external or ExternalConfig()
        self.gate, self.replay = PeerFilter(), Replay()
        self.config, self.sampler, self.learner = config, sampler, learner
        self.peer_id, self.seed = peer_id, seed
        self.nested = (self.gate, self.replay, learner)
        self.memory, self._lock = _Counters(0, 0), threading.Lock()
        self.reader = PeerReader(
            tokenizer=learner.policy.tokenizer,
            prompt=solver_prompt,
            logprobs=learner.logprobs,
            own_peer_id=peer_id,
            config=config,
            external=self.external,
        )

    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        """`group_size` completions for each problem, in order, all sampled in one batch. For any thread where the
        sampler is."""
        with self._lock:
            noise = random.Random(f"rollout {self.seed} {self.memory.rollouts}").getrandbits(63)
            self.memory.rollouts += 1
        groups = self.sampler.sample(
            [solver_prompt(problem) for problem in problems],
            group_size=self.config.group_size,
            max_new_tokens=self.config.max_new_tokens,
            temperature=self.config.temperature,
            generator_seed=noise,
            max_prompt_tokens=self.config.max_prompt_tokens,
        )
        return [
            RolloutGroup(problem, tuple(completions), self.peer_id, round_number, self.learner.steps)
            for problem, completions in zip(problems, groups, strict=True)
        ]

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
        own, stale, pairs = self._told_apart(self._own_rows(local, foreign.chosen))
        again = self.replay.draw(int(self.config.replay * len(own)), chance) if self.config.replay else []
        rows = (*own, *stale, *foreign.rows, *self._reweighed(again))
        update = self.learner.update(Batch(rows, foreign.idle_rows, foreign.idle_tokens))
        mismatch = self._mismatch(pairs or update.compared)
        for _ in range(self.config.passes - 1):
            update = self.learner.update(Batch(tuple(self._reweighed(rows)), foreign.idle_rows, foreign.idle_tokens))
        if self.config.replay:
            self.replay.add(own)
        return self._metrics(local, foreign, update, len(again)) | mismatch | {"train/stale_rows": len(stale)}

    def _now(self, rows: Sequence[TrainingRow]) -> list[tuple[float, ...]]:
        """The rows' log-probabilities under the present policy."""
        return self.learner.logprobs([row.prompt_ids for row in rows], [row.completion_ids for row in rows])

    def _told_apart(self, rows: list[TrainingRow]) -> tuple[list[TrainingRow], list[TrainingRow], list[Pair]]:
        """Fresh ones that engine and learner agree about, stale ones as if they were fresh, and the pairs of all fresh
        ones. No pairs without an engine: there the update compares what it computes anyway, and nothing is stale."""
        if not self.engine:
            return rows, [], []
        scored = list(zip(rows, self._now(rows), strict=True))
        fresh = [(row, (row.logprobs, now)) for row, now in scored if row.fresh]
        stale = [(row, now) for row, now in scored if not row.fresh]
        agreed = [row for row, pair in fresh if not is_beyond(pair)]
        weighed = self._reweighed([row for row, _ in stale], [now for _, now in stale])
        return agreed, weighed, [pair for _, pair in fresh]

    def _mismatch(self, pairs: Sequence[Pair]) -> Metrics:
        """Of sampler and learner; None where the update had no row of the present policy. Logs when an alarm begins."""
        found, before = measure(pairs, masks=self.engine), self._alarm
        self._alarm = found.alarm() if found.rows else before
        if self._alarm and self._alarm != before:
            logger.warning("ALARM: the sampler %s (%.2g)", self._alarm, found.mean)
        elif before and not self._alarm:
            logger.warning("sampler and learner agree again")
        measured = dataclasses.asdict(found) | {"alarm": self._alarm or None}
        return {f"train/mismatch_{name}": value for name, value in measured.items()}

    def _reweighed(
        self, rows: Sequence[TrainingRow], now: Sequence[tuple[float, ...]] | None = None
    ) -> list[TrainingRow]:
        """An earlier policy's rows as if the present one had written them: ratio 1, an importance weight per token.

        now: the present one's log-probabilities, where they are known."""
        if not rows:
            return []
        now = now or self._now(rows)
        then, advantages = [row.logprobs for row in rows], [row.advantage for row in rows]
        if self.config.stale == "m2po":
            weights = second_moment_weights(now, then, advantages, self.config)
        else:
            weights = truncated_weights(now, then)
        return [
            dataclasses.replace(row, logprobs=logprobs, weights=tuple(line), fresh=False)
            for row, logprobs, line in zip(rows, now, weights, strict=True)
        ]

    def _metrics(self, local: Sequence[ScoredGroup], foreign: External, update: Update, replayed: int) -> Metrics:
        """The figures of an update."""
        sampled = [completion for scored in local for completion in scored.group.completions]
        logprobs = [logprob for completion in sampled for logprob in completion.logprobs]
        flat = sum(joint_advantages([group], "none") is None for group in local)
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
            "train/zero_spread_share": flat / len(local) if local else None,
            "train/rows": update.rows,
            "train/replayed_rows": replayed,
            "train/broken_rewards": broken,
            "train/skipped_steps": self.learner.skipped,
            "train/policy_step": self.learner.steps,
            "swarm/external_share": len(foreign.rows) / update.rows if update.rows else 0.0,
            "swarm/external_groups": len(foreign.chosen),
        }

    def _own_rows(self, local: Sequence[ScoredGroup], foreign: Sequence[ScoredGroup]) -> list[TrainingRow]:
        """Trainable rows of groups with spread; a group without is dropped (DAPO, section 3.2).

        foreign: the chosen groups of peers; those at an own problem share its mean.
        """
        prompts = self.reader.prompt_ids([scored.group.problem for scored in local], self.config.max_prompt_tokens)
        weights = merged_advantages((*local, *foreign), self.config.scale_rewards)
        rows: list[TrainingRow] = []
        for scored, prompt in zip(local, prompts, strict=True):
            advantages = weights[id(scored)]
            if not any(advantages):
                continue
            for completion, verdict, weight in zip(scored.group.completions, scored.verdicts, advantages, strict=True):
                if counts(verdict):
                    fresh = completion.version in (None, self.learner.updates)
                    rows.append(TrainingRow(prompt, completion.token_ids, completion.logprobs, weight, fresh=fresh))
        if not self.config.batch_norm:
            return rows
        normalized = batch_normalized([row.advantage for row in rows], [len(row.completion_ids) for row in rows])
        return [dataclasses.replace(row, advantage=each) for row, each in zip(rows, normalized, strict=True)]
