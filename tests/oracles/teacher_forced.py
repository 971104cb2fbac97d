"""Log-probabilities of completions by plain forward passes, one row at a time."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from codezero.models.likelihood import TokenScores


@torch.no_grad()
def teacher_forced(
    model: PreTrainedModel, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
) -> list[TokenScores]:
    """Scores of `completions[i]` after `prompts[i]`, in order."""
    scores: list[TokenScores] = []
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = torch.tensor([[*prompt, *completion]], device=model.device)
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        chosen = logits.gather(-1, ids[0, len(prompt) :, None])[:, 0]
        scores.append(TokenScores((chosen - logits.logsumexp(-1)).cpu(), (chosen - logits.amax(-1)).cpu()))
    return scores
