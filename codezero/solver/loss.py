"""A loss of the user's own in the place of TRL's, and the learning rate of a step.

Legend for shapes: B rows, T longest completion.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from codezero.config import SolverConfig
from codezero.config.contradictions import LOSSES
from codezero.config.learning import named
from codezero.errors import ConfigError
from codezero.models.device import ran_out_of_memory
from codezero.plugins import blamed, load_object


@dataclass(frozen=True, slots=True)
class LossInputs:
    """The rows of one forward pass. Those of advantage 0 are in none, unless solver.kl_beta is set: their loss is 0."""

    logprobs: Tensor
    """[B, T] nats of the completions' tokens under the policy, with gradient; anything beyond a completion's end."""
    old_logprobs: Tensor
    """[B, T] the same under the policy that sampled, or that stands in the ratio's denominator."""
    reference_logprobs: Tensor | None
    """[B, T] the same under the initial model; None without solver.kl_beta."""
    advantages: Tensor
    """[B, T] of its row, times the importance weight where the token is an earlier policy's."""
    mask: Tensor
    """[B, T] 1 for a token, 0 beyond the completion's end."""


def own_loss(spec: Any) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    """`solver.loss_function`, called with `collate`'s tensors and the log-probabilities of one pass.

    A step takes several passes, and ranks share them. What the function makes of one counts as a mean over its tokens:
    it is weighed by their share of the step's. A mean over rows is therefore that of the step only about. Raises
    ConfigError, also for what is no number with a gradient.
    """
    what = f"solver.loss_function={named(spec)}"
    function = load_object(spec, "solver.loss_function", ("__call__",), LOSSES)

    def loss(inputs: dict[str, Tensor], logprobs: Tensor) -> Tensor:
        old, mask = inputs["old_per_token_logps"], inputs["completion_mask"].to(logprobs.dtype)
        advantages = inputs["advantages"]
        pushes = advantages.unsqueeze(1) if advantages.dim() == 1 else advantages
        given = LossInputs(logprobs, old, inputs.get("ref_per_token_logps"), pushes * mask, mask)
        try:
            made = function(given)
        except (Exception, SystemExit) as error:
            if ran_out_of_memory(error):  # smaller passes follow
                raise
            with blamed(ConfigError, what):
                raise
        if not (isinstance(made, Tensor) and made.dim() == 0 and made.requires_grad):
            kind = type(made).__name__
            raise ConfigError(f"{what} returned a {kind}; a loss is a tensor of one number that has a gradient")
        return made

    return loss


def learning_rate(config: SolverConfig, steps: int) -> float:
    """rate / (1 + steps / settle_steps): its sum has no bound, so a run never stops learning; that of its squares has
    one, so the policy comes to rest (Robbins & Monro 1951). Constant when `settle_steps` is 0.
    """
    return config.learning_rate / (1 + steps / config.settle_steps if config.settle_steps else 1)
