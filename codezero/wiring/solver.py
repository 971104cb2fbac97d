"""Config -> the solver, and a verifier beside it, which has a policy, trainer, servers and versions of its own."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from codezero.config import NodeConfig, RolloutConfig
from codezero.environment import Environment
from codezero.wiring.evaluator import build_sandbox
from codezero.wiring.models import Say, build_policy

if TYPE_CHECKING:
    from codezero.models.generation import Sampler
    from codezero.solver.solver import GrpoSolver
    from codezero.solver.updater import Learner
    from codezero.solver.verified import VerifiedSolver

VERSIONS = "verifier-weights"
"""The folder of a run that its versions are published in."""


def build_solver(
    config: NodeConfig, environment: Environment, learner: "Learner", sampler: "Sampler", peer_id: str
) -> "GrpoSolver":
    from codezero.solver.solver import GrpoSolver

    return GrpoSolver(
        config.solver,
        sampler=sampler,
        learner=learner,
        prompt=environment.prompt,
        peer_id=peer_id,
        seed=config.seed,
        external=config.external,
        engine=samples_elsewhere(config),
    )


def samples_elsewhere(config: NodeConfig) -> bool:
    """Does another process compute than the one that learns?"""
    return config.trainer.ranks > 0 or config.rollout.has_servers


def verifier_config(config: NodeConfig) -> NodeConfig:
    """That of a node whose solver is the verifier; it learns with the solver's settings."""
    verifier, solver = config.verifier, config.solver
    room = solver.max_prompt_tokens + solver.max_new_tokens
    return replace(
        config,
        model=replace(config.model, solver=verifier.model, thinking=verifier.thinking),
        solver=replace(solver, max_prompt_tokens=room, max_new_tokens=verifier.max_new_tokens),
        trainer=verifier.trainer,
        rollout=RolloutConfig(**asdict(verifier.rollout)),
        weights=replace(config.weights, listen=verifier.listen),
        run=replace(config.run, logs=str(Path(config.run.logs, "verifier"))),
    )


def build_verified(
    config: NodeConfig,
    solver: "GrpoSolver",
    environments: Sequence[Mapping[str, str]],
    folder: Path,
    say: Say,
    stack: ExitStack,
) -> "VerifiedSolver":
    """environments: of its trainer. Raises ModelError, RankError, RolloutError and SandboxError."""
    from codezero.code.worker import StaticGuard
    from codezero.solver.updater import Updater
    from codezero.solver.verified import VerifiedSolver

    own = verifier_config(config)
    learner, sampler = build_policy(own, environments, folder / VERSIONS, say, stack)
    return VerifiedSolver(
        config.verifier,
        solver,
        sampler=sampler,
        updater=Updater(own.solver, learner, engine=samples_elsewhere(own)),
        guard=stack.enter_context(StaticGuard()),
        sandbox=build_sandbox(config, stack),
        block=config.answer.block,
    )
