"""A frozen model as teacher of every token of the own attempts: losses and a reward of `bench real_learning`.

The reverse divergence KL(p || q) of the policy p from a teacher q, sampled at the tokens that p wrote, has the gradient
of a policy that is rewarded at each token with log q - log p (Gu et al. 2024, MiniLLM, section 2.2; Agarwal et al.
2024, "On-Policy Distillation of Language Models"). REAL_TEACHER in the environment is the directory of the teacher."""

import os
from functools import cache

import torch
from torch import Tensor

from codezero.environments.code import solver_prompt
from codezero.models.chat import encode_prompts
from codezero.models.load import LoadedModel, load_model
from codezero.solver.batch import TrainingRow
from codezero.solver.loss import LossInputs, packed_logprobs
from codezero.types import BELIEF, ScoredGroup

BESIDE = 0.5
"""Weight of the teacher's push beside the judge's advantage: of pairs within groups a program's likelihood orders .65,
the probe .79 rightly, so the one knows about half of what the other knows beyond chance (.15 of .29)."""
CLIP = (0.8, 1.28)
SHOWN = "\n\nThis is a right answer by somebody else:\n\n{}\n\nNow write yours."

Ids = tuple[int, ...]
_asked_with: dict[Ids, str] = {}  # by an attempt's tokens: its question with a right attempt of its group


def reverse_kl(inputs: LossInputs) -> Tensor:
    """The teacher alone."""
    return _pushed(inputs, _lead(inputs, _rows(inputs.prompt_ids, inputs.prompt_mask)))


def judge_and_teacher(inputs: LossInputs) -> Tensor:
    """The reward's advantages and beside them the teacher's lead, for the rows that have an advantage."""
    lead = _lead(inputs, _rows(inputs.prompt_ids, inputs.prompt_mask))
    return _pushed(inputs, inputs.advantages + BESIDE * lead)


def shown_right(inputs: LossInputs) -> Tensor:
    """The policy as it began is the teacher, with a right attempt of the group before its eyes: Hübotter et al. 2026,
    "Reinforcement Learning via Self-Distillation", arXiv 2601.20802. Rows that nothing could be shown for count 0."""
    texts = [_asked_with.get(written) for written in _rows(inputs.completion_ids, inputs.mask)]
    own, tokenizer = _rows(inputs.prompt_ids, inputs.prompt_mask), _teacher().tokenizer
    asked = [tuple(encode_prompts(tokenizer, [text])[0]) if text else ids for text, ids in zip(texts, own, strict=True)]
    shown = torch.tensor([[float(bool(text))] for text in texts], device=inputs.mask.device)
    return _pushed(inputs, _lead(inputs, asked) * shown)


def believed(scored: ScoredGroup) -> list[float | None]:
    """The judge's rewards as they are; notes which attempt it believes most, for `shown_right`."""
    group = scored.group
    best = max(zip(scored.verdicts, group.completions, strict=True), key=lambda pair: pair[0].reward)
    if best[0].trainable and best[0].correctness >= BELIEF:
        text = solver_prompt(group.problem) + SHOWN.format(best[1].text)
        _asked_with.update((each.token_ids, text) for each in group.completions if each.token_ids != best[1].token_ids)
    return [verdict.reward for verdict in scored.verdicts]


@cache
def _teacher() -> LoadedModel:
    loaded = load_model(os.environ["REAL_TEACHER"], role="teacher")
    loaded.model.eval()
    return loaded


def _pushed(inputs: LossInputs, pushes: Tensor) -> Tensor:
    """The clipped loss of GRPO, in the mean over tokens."""
    ratio = (inputs.logprobs - inputs.old_logprobs).exp()
    each = -torch.min(ratio * pushes, ratio.clamp(*CLIP) * pushes)
    return (each * inputs.mask).sum() / inputs.mask.sum()


def _lead(inputs: LossInputs, prompts: list[Ids]) -> Tensor:
    """[rows, tokens] log q - log p in nats, of the teacher that is asked with `prompts`."""
    pairs = zip(prompts, _rows(inputs.completion_ids, inputs.mask), strict=True)
    rows = [TrainingRow(prompt, written, (0.0,) * len(written), 0.0) for prompt, written in pairs]
    model = _teacher().model
    with torch.no_grad():
        return (packed_logprobs(model, rows, 1.0).float() - inputs.old_logprobs) * inputs.mask


def _rows(ids: Tensor, real: Tensor) -> list[Ids]:
    return [tuple(row[there > 0].tolist()) for row, there in zip(ids, real, strict=True)]
