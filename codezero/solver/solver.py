"""The solver: samples groups of attempts with its policy, and learns from judged ones by GRPO.

Does not judge, does not talk to peers, and never executes what it wrote.
"""

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from transformers import PreTrainedTokenizerBase

from codezero.config import SolverConfig
from codezero.models.chat import encode_completions, encode_prompts
from codezero.protocols import GroupSampler
from codezero.solver.batch import Batch, Row
from codezero.solver.external import Reader, external
from codezero.solver.grpo import group_advantages
from codezero.solver.learner import TrlLearner
from codezero.solver.weights import read_counters
from codezero.types import Completion, Metrics, Problem, RolloutGroup, ScoredGroup, Standing

COUNTERS = "solver.json"


def solver_prompt(problem: Problem) -> str:
    """What the solver is asked: the question, then the form of the answer (which the embedded solver's template drops).

    The expected values of a test are shown only where they can be believed.
    """
    form = f"ANSWER FORMAT: one ```python block that defines {problem.entry_point} and nothing after it."
    example = "" if problem.standing is Standing.CLAIMED or not problem.tests else f"\nIt must pass: {problem.tests[0]}"
    return f"{problem.question}\n\n{form}{example}"


class GrpoSolver:
    """A policy, how it is sampled and how it learns. See `protocols.Solver`."""

    def __init__(
        self,
        config: SolverConfig,
        *,
        sampler: GroupSampler,
        learner: TrlLearner,
        tokenizer: PreTrainedTokenizerBase,
        peer_id: str,
        seed: int,
        prompt: Callable[[Problem], str] = solver_prompt,
    ):
        self.config, self.sampler, self.learner, self.tokenizer = config, sampler, learner, tokenizer
        self.peer_id, self.seed, self.prompt = peer_id, seed, prompt
        self.rollouts = 0
        """Calls of `rollout` so far: with `seed`, what the sampling noise is made of."""
        self.updates = 0
        """Calls of `step` so far: with `seed`, what the choice among peers' groups is made of."""
        self.reader = Reader(
            prompt_ids=self._prompt_ids,
            completion_ids=self._completion_ids,
            logprobs=learner.logprobs,
            max_prompt_tokens=config.max_prompt_tokens,
            max_new_tokens=config.max_new_tokens,
        )

    def rollout(self, problems: Sequence[Problem], round_number: int) -> list[RolloutGroup]:
        """`group_size` completions for each problem, in order, all sampled in one batch."""
        noise = random.Random(f"rollout {self.seed} {self.rollouts}").getrandbits(63)
        self.rollouts += 1
        groups = self.sampler.sample(
            [self.prompt(problem) for problem in problems],
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

    def step(self, local: Sequence[ScoredGroup], peers: Sequence[ScoredGroup]) -> Metrics:
        """One GRPO update. Peers' rows are never more than own ones, so with nothing judged nothing is learned."""
        own = self._own_rows(local)
        chance = random.Random(f"peers {self.seed} {self.updates}")
        self.updates += 1
        foreign = external(
            peers,
            self.reader,
            own_peer_id=self.peer_id,
            max_groups=self.config.external_groups,
            max_rows=len(own),
            scale=self.config.scale_rewards,
            chance=chance,
        )
        done = self.learner.update(Batch((*own, *foreign.rows), foreign.idle_rows, foreign.idle_tokens))
        logprobs = [logprob for row in own for logprob in row.logprobs]
        flat = sum(group_advantages(group, "none") is None for group in local)
        told: Metrics = {f"swarm/external_refused/{reason}": count for reason, count in foreign.refused}
        for peer, judged, used in foreign.peers:
            told |= {f"swarm/external_judged/{peer}": judged, f"swarm/external_used/{peer}": used}
        return told | {
            "train/loss": done.loss,
            # Mean of -log p over what the policy sampled: an unbiased estimate of its entropy per token, in nats
            "train/entropy": -math.fsum(logprobs) / len(logprobs) if logprobs else None,
            "train/grad_norm": done.grad_norm,
            "train/clip_share": done.clip_share,
            "train/zero_spread_share": flat / len(local) if local else None,
            "train/rows": done.rows,
            "train/skipped_steps": self.learner.skipped,
            "train/policy_step": self.learner.steps,
            "swarm/external_share": len(foreign.rows) / done.rows if done.rows else 0.0,
            "swarm/external_groups": foreign.groups,
        }

    def save(self, folder: Path) -> None:
        """Weights and tokenizer in `folder/model`, as `from_pretrained` reads them; optimiser and counters beside."""
        self.learner.save(folder)
        counters = {"rollouts": self.rollouts, "updates": self.updates}
        (folder / COUNTERS).write_text(json.dumps(counters))

    def load(self, folder: Path) -> None:
        """Become what `save` wrote, bit for bit. Raises CheckpointError."""
        counters = read_counters(folder / COUNTERS, ("rollouts", "updates"))
        self.learner.load(folder)
        self.rollouts, self.updates = counters

    def _own_rows(self, local: Sequence[ScoredGroup]) -> list[Row]:
        """Trainable rows only: what could not be judged, or attacks the judge, is as if it had not been sampled."""
        prompts = self._prompt_ids([scored.group.problem for scored in local], self.config.max_prompt_tokens)
        rows: list[Row] = []
        for scored, prompt in zip(local, prompts, strict=True):
            weights = group_advantages(scored, self.config.scale_rewards) or [0.0] * len(scored.verdicts)
            for completion, verdict, weight in zip(scored.group.completions, scored.verdicts, weights, strict=True):
                if verdict.trainable:
                    rows.append(Row(prompt, completion.token_ids, completion.logprobs, weight))
        return rows

    def _prompt_ids(self, problems: Sequence[Problem], most: int | None = None) -> list[tuple[int, ...]]:
        texts = [self.prompt(problem) for problem in problems]
        return [tuple(ids) for ids in encode_prompts(self.tokenizer, texts, most)]

    def _completion_ids(self, completions: Sequence[Completion]) -> list[tuple[int, ...]]:
        rows = encode_completions(self.tokenizer, [completion.text for completion in completions])
        eos = cast(int, self.tokenizer.eos_token_id)
        return [
            (*ids, eos) if completion.finished else tuple(ids)
            for ids, completion in zip(rows, completions, strict=True)
        ]
