"""A loss of your own: REINFORCE on the advantages, without ratios and clips.

    codezero run solver.loss=custom solver.loss_function=examples/own_loss.py:reinforce run.max_iterations=3

`codezero.solver.loss` says what a loss is given, and how the passes of a step are put together.
"""

from torch import Tensor

from codezero.solver.loss import LossInputs


def reinforce(inputs: LossInputs) -> Tensor:
    """A mean over tokens: that of a step comes out the same, however its rows are divided into passes."""
    loss = -(inputs.advantages * inputs.logprobs * inputs.mask).sum() / inputs.mask.sum()
    if inputs.reference_logprobs is not None:  # with solver.kl_beta; each token's estimate k3 of the divergence
        gap = (inputs.reference_logprobs - inputs.logprobs) * inputs.mask
        loss = loss + 0.01 * (gap.exp() - gap - 1).sum() / inputs.mask.sum()
    return loss
