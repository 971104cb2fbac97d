"""The knobs of what a person sees, and of where measurements go. Imports nothing heavy; `config.py` has the others."""

from dataclasses import dataclass

from codezero.config_model import bounded


@dataclass(kw_only=True)
class MonitorConfig:
    """metrics.jsonl is always written. Where else measurements go never delays or stops the training."""

    view: str = bounded("auto", one_of=("auto", "live", "plain", "off"))
    """auto: live on a terminal, plain lines elsewhere."""
    log_format: str = bounded("text", one_of=("text", "json"))
    """Of logs/swarm.log. json: one object a line, with time, level, logger, message and the kind of error."""
    wandb: str = ""
    """Project of Weights & Biases, PROJECT or ENTITY/PROJECT; its key is WANDB_API_KEY, and without one everything
    stays in logs/wandb. Empty: none. Needs the extra `wandb`."""
    tensorboard: bool = False
    """Event files for TensorBoard in the run's folder? Needs the extra `tensorboard`."""
