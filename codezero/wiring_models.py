"""Config -> models and what trains them: where each is loaded from, how much of the policy learns."""

import logging
from typing import TYPE_CHECKING

from codezero.config import NodeConfig
from codezero.nano import NANO
from codezero.profiles import recomputes
from codezero.wiring_evaluator import Say

if TYPE_CHECKING:
    from codezero.models.load import LoadedModel
    from codezero.solver.learner import TrlLearner

logger = logging.getLogger(__name__)


def load(config: NodeConfig, name: str, role: str, say: Say, *, for_training: bool = False) -> "LoadedModel":
    """`nano`, a directory or a hub id. Raises ModelError."""
    say(f"loading the {role}, {name}")
    from codezero.models.load import load_model
    from codezero.nano import weights_directory

    path = str(weights_directory(role)) if name == NANO else name
    loaded = load_model(
        path, device=config.model.device, precision=config.model.precision, role=role, for_training=for_training
    )
    logger.info("%s: %s on %s", role, name, loaded.device)
    return loaded


def load_policy(config: NodeConfig, say: Say) -> "LoadedModel":
    """The model that learns, with its adapter where only that does. Raises ModelError and ConfigError."""
    policy = load(config, config.model.solver, "solver", say, for_training=True)
    if config.model.train == "full":
        return policy
    from codezero.models.lora import add_adapter

    told = config.model
    policy = add_adapter(
        policy, rank=told.lora_rank, alpha=told.lora_alpha, targets=told.lora_targets, seed=config.seed
    )
    trained = sum(one.numel() for one in policy.model.parameters() if one.requires_grad)
    frozen = policy.model.num_parameters() - trained
    logger.info("solver: an adapter of %d numbers learns, beside %d frozen ones", trained, frozen)
    return policy


def build_learner(config: NodeConfig, policy: "LoadedModel") -> "TrlLearner":
    from codezero.solver.learner import TrlLearner

    return TrlLearner(policy, config.solver, activation_checkpointing=recomputes(config, policy.model.num_parameters()))


def load_judge(config: NodeConfig, say: Say) -> "LoadedModel":
    """The judge that runs in this process. Raises ModelError."""
    return load(config, config.evaluator.model, "judge", say)
