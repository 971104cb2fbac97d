"""The solver's learner for any other policy: rewarded groups in, one GRPO update out."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Sequence

import torch

from codezero.models.chat import encode_prompts
from codezero.solver.advantages import advantages
from codezero.solver.batch import Batch, TrainingRow
from codezero.solver.learner import TrlLearner
from codezero.types import Metrics, RewardedGroup


class RewardedLearner:
    """See `protocols.GroupLearner`."""

    def __init__(self, learner: TrlLearner) -> None:
        self.learner = learner
        self.save, self.load = learner.save, learner.load

    def learn(self, groups: Sequence[RewardedGroup]) -> Metrics:
        """`loss` and `grad_norm` are None when there was no update, because no group had spread."""
        rows = [row for group in groups for row in self._rows(group)]
        done = self.learner.update(Batch(tuple(rows))) if rows else None
        return {
            "loss": done.loss if done else None,
            "grad_norm": done.grad_norm if done else None,
            "rows": len(rows),
            "steps": self.learner.steps,
            "skipped_steps": self.learner.skipped,
        }

    def _rows(self, group: RewardedGroup) -> list[TrainingRow]:
        """Of the completions with a known reward; none when the rewards do not differ."""
        known = [value is not None and math.isfinite(value) for value in group.rewards]
        values = torch.tensor(
            [value or 0.0 if is_known else 0.0 for value, is_known in zip(group.rewards, known, strict=True)]
        )
        weights = advantages(values, torch.tensor(known, dtype=torch.bool), self.learner.config.scale_rewards).tolist()
        if not any(weights):
            return []
        prompt = tuple(encode_prompts(self.learner.policy.tokenizer, [group.prompt])[0])
        return [
            TrainingRow(prompt, completion.token_ids, completion.logprobs, weight)
            for completion, weight, is_known in zip(group.completions, weights, known, strict=True)
            if is_known
        ]
